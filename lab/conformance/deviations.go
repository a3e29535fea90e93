package conformance

// Deviation is a difference between ironic-python-agent and this ramdisk that scenarios show and that stays.
type Deviation struct {
	Row       string   // of docs/parity.md
	Group     string   // of the scenarios
	Scenarios []string // patterns of path.Match
	Path      string   // of the value in the observation, a pattern of path.Match
	Reason    string   // one sentence
}

// Deviations returns the differences by group. The tests fail on others, and on one that does not occur.
func Deviations() []Deviation {
	return []Deviation{}
}
