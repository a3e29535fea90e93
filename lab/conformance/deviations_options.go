package conformance

// optionDeviations returns the deviations of the group options.
func optionDeviations() []Deviation {
	const (
		group   = "options"
		runtime = "This ramdisk has its own container runtime and a self-test; the one with ironic-python-agent " +
			"has no podman."
		callback = "/ironic/*/body/callback_url"
		reply    = "/agent/0/body/"
	)
	inspections := []string{"inspection without waiting", "inspection collect_lldp"}
	var all []Deviation
	for _, part := range [][]Deviation{
		at("B12", group, "An empty address counts as not set; ironic-python-agent sends a URL without a host.",
			[]string{"advertise_host empty"}, callback),
		at("C3", group, "A dash in the name of an option equals an underscore, in files as in flags.",
			[]string{"file other names"}, callback),
		at("R1", group, "The ramdisk with ironic-python-agent has no IPv6.", []string{"reply agent_skip_bmc_detect"},
			"/agent/0/body/command_result/interfaces/0/ipv6_address"),
		at("F9", group, runtime, []string{"inject_files_priority"},
			"/agent/*/body/command_result/*_steps/ContainerHardwareManager",
			"/agent/*/body/command_result/hardware_manager_version/ContainerHardwareManager",
			"/agent/*/body/command_result/hardware_manager_version/selftest_hardware_manager"),
		at("F9", group, runtime, []string{"inject_files_priority"},
			"/agent/1/body/command_result/service_steps/SelfTestHardwareManager"),
		at("F9", group, runtime, inspections, "/ironic/0/body/configuration/managers"),
		at("R1", group, "The ramdisk with ironic-python-agent has no IPv6.", inspections,
			"/ironic/0/body/inventory/interfaces/0/ipv6_address"),
		at("H2", group, "The path of a disk is known without udev, whose link ironic-python-agent can miss.",
			inspections, "/ironic/0/body/inventory/disks/0/by_path", "/ironic/0/body/root_disk/by_path"),
		at("C3", group, "References to other options are not replaced.", []string{"file references"},
			"/ironic/*/request_id"),
		at("K7", group, "An empty list permits no format; there it permits all.", []string{"formats reply empty"},
			resultPaths()...),
		at("K10", group, "A timeout has the type and the code of the protocol's error for it.",
			[]string{"connection_timeout", "max_duration"}, reply+"command_error/type"),
		at("K10", group, "A timeout has the type and the code of the protocol's error for it.",
			[]string{"max_duration"}, reply+"command_error/code"),
		at("B2", group, "An address of several interfaces is sent once.", []string{"enable_vlan_interfaces"},
			"/ironic/*/query/addresses/0"),
	} {
		all = append(all, part...)
	}
	return all
}
