package conformance

import "slices"

// stepDeviations returns the deviations of the group steps.
func stepDeviations() []Deviation {
	const result = "/agent/0/body/command_result"
	wrongArguments := []string{
		"step/arguments of text", "step/* arguments", "step/erase_pstore with arguments", "step/more parameters",
		"step/text",
		"step/execute_bootc_install without arguments", "step/write_image more", "step/write_image without an image",
	}
	return slices.Concat(invalidArguments("E8", "steps",
		"Wrong arguments of a step are invalid parameters; there they are a Python exception.", wrongArguments,
	), fails("E8", "steps",
		"A step runs only as one of the kinds that list it; there any method of a manager can be run.", 500,
		"HardwareManagerMethodNotFound", "step/erase_pstore as a * step",
	), []Deviation{
		{
			Row: "P9", Group: "steps", Scenarios: []string{"step/burnin_cpu", "step/burnin_memory"},
			Path:   result + "/clean_result",
			Reason: "Burn-in returns what it has tested.",
		},
		{
			Row: "F9", Group: "steps", Scenarios: []string{"steps of *"},
			Path:   result + "/*_steps/ContainerHardwareManager",
			Reason: "Containers need no podman, so that the manager is always there.",
		},
		{
			Row: "F9", Group: "steps", Scenarios: []string{"steps of *"},
			Path:   result + "/hardware_manager_version/ContainerHardwareManager",
			Reason: "Containers need no podman, so that the manager is always there.",
		},
		{
			Row: "F3", Group: "steps", Scenarios: []string{"steps of clean", "steps of service"},
			Path:   result + "/*_steps/SelfTestHardwareManager",
			Reason: "The step selftest is this ramdisk's own.",
		},
		{
			Row: "F3", Group: "steps", Scenarios: []string{"steps of *"},
			Path:   result + "/hardware_manager_version/selftest_hardware_manager",
			Reason: "The step selftest is this ramdisk's own.",
		},
	})
}
