package conformance

import "slices"

// hintDeviations returns the deviations of the group hints.
func hintDeviations() []Deviation {
	var list []Deviation
	both := func(row, reason string, scenarios ...string) {
		const problem = "/agent/0/body/command_error"
		list = slices.Concat(list, withGot("404", at(row, "hints", reason, scenarios, problem+"/code")),
			withGot(`"DeviceNotFound"`, at(row, "hints", reason, scenarios, problem+"/type")))
	}
	both(
		"J1",
		"Unusable hints are an error of the command; there they raise an exception that nothing handles.",
		`serial: "\\u003cin\\u003e "`,
		`serial: "\\u003call-in\\u003e SCSI 7F"`,
		`model: "\\u003call-in\\u003e fast disk"`,
		`size: "\\u003cin\\u003e 5"`,
		`size: "s\\u003c 6"`,
		"a list",
	)
	both(
		"J4",
		"Unusable entries of skip_block_devices are an error of the command; there nothing handles them.",
		"skip all",
		"skip invalid hint",
		"skip invalid size",
		"skip an empty entry",
		"skip no list",
	)
	return list
}
