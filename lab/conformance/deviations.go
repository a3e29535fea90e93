package conformance

import "slices"

// Deviation is a difference between ironic-python-agent and this ramdisk that scenarios show and that stays.
type Deviation struct {
	Row       string   // of docs/parity.md
	Group     string   // of the scenarios
	Scenarios []string // patterns of path.Match
	Path      string   // of the value in the observation, a pattern of path.Match
	Reason    string   // for a row of docs/parity.md
	// Want and Got are the only values of ironic-python-agent and of this ramdisk that may differ, as JSON. "" is any,
	// null is also a missing value.
	Want, Got string
	// Erases is set if this ramdisk only erases the planted text there. Want and Got are "" then.
	Erases bool
	// Like names another scenario of the group. This ramdisk must leave the disks as ironic-python-agent does there. ""
	// is none. Scenarios are then names, and Path is /disks/SERIAL, a pattern.
	Like string
}

// Deviations returns the differences. The tests fail on others, and on one that does not occur.
func Deviations() []Deviation {
	return slices.Concat(commandDeviations(), heartbeatDeviations("protocol"), protocolDeviations(),
		heartbeatDeviations("hardware"), hardwareDeviations(), extraFacts(), hintDeviations(), imageDeviations(),
		driveDeviations(), stepDeviations(), raidDeviations(), fileDeviations(),
		eraseDeviations(), downloadDeviations(), partitionDeviations(), bootDeviations(),
		metadataDeviations(), skipDeviations(), heartbeatDeviations("options"), optionDeviations())
}

// permits reports whether the values of ironic-python-agent and of this ramdisk, as JSON, may differ.
func (d Deviation) permits(want, got string) bool {
	if d.Erases {
		return want == `"planted"` && got == "null" || want == `"planted, data"` && got == `"data"`
	}
	return (d.Want == "" || d.Want == want) && (d.Got == "" || d.Got == got)
}

// key identifies the deviation in scenarios that match one of its patterns.
func (d Deviation) key(pattern string) string { return pattern + " " + d.Path + " " + d.Want }
