//go:build linux

package conformance

// deviation is a difference between ironic-python-agent and this ramdisk that stays.
type deviation struct {
	row       string // of docs/parity.md
	group     string
	scenarios []string // patterns of path.Match
	path      string   // pattern of path.Match for the place in the observation
	reason    string
}

func deviations() []deviation {
	return []deviation{}
}
