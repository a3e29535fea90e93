package conformance

// recordOrFault returns the deviations of a reply if one agent replies with a command record and the other one with an
// HTTP error.
func recordOrFault(row, group, reason string, scenarios ...string) []Deviation {
	var all []Deviation
	for _, field := range []string{
		"status", "body/command_error", "body/command_name", "body/command_result", "body/command_status",
		"body/faultcode", "body/faultstring", "body/id",
	} {
		all = append(all, Deviation{
			Row: row, Group: group, Scenarios: scenarios, Path: "/agent/0/" + field, Reason: reason,
		})
	}
	return all
}

// at returns a deviation for each path in the same scenarios.
func at(row, group, reason string, scenarios []string, paths ...string) []Deviation {
	var all []Deviation
	for _, path := range paths {
		all = append(all, Deviation{Row: row, Group: group, Scenarios: scenarios, Path: path, Reason: reason})
	}
	return all
}

// heartbeatDeviations returns the deviations of heartbeats, which contain a line about the step.
func heartbeatDeviations(group string) []Deviation {
	const reason = "A heartbeat contains a line about the step, which requires API version 1.72."
	return []Deviation{
		{
			Row: "B5", Group: group, Scenarios: []string{"*"}, Path: "/ironic/*/body/agent_status_message",
			Reason: reason,
		},
		{
			Row: "B5", Group: group, Scenarios: []string{"*"}, Path: "/ironic/*/version", Want: `"1.68"`, Got: `"1.72"`,
			Reason: reason,
		},
	}
}

// commandDeviations returns the deviations of the group commands.
func commandDeviations() []Deviation {
	const (
		group       = "commands"
		clientError = "A value of a wrong type is an error of the client; ironic-python-agent fails with an exception."
		named       = "The error names the wrong parameter; ironic-python-agent reports the exception of Python."
		runtime     = "This ramdisk has its own container runtime and a self-test; the one with ironic-python-agent " +
			"has no podman."
		offered = "A step is run only if its kind offers it; ironic-python-agent calls any method of a manager."
		crash   = "ironic-python-agent cannot encode the exception and answers with 500, as it " +
			"does to each list from then on."
	)
	failed := []string{"/agent/0/body/command_error/code", "/agent/0/body/command_error/type"}
	kind := []string{"/agent/0/body/command_error/type"}
	refused := []string{"/agent/0/status", "/agent/0/body/faultcode"}
	var all []Deviation
	for _, part := range [][]Deviation{
		recordOrFault("A4", group, "A byte order mark is not JSON.", "body with a byte order mark"),
		at("A4", group, clientError, []string{"body with names of other types"}, "/agent/[0-4]/status",
			"/agent/[0-4]/body/faultcode"),
		at("A2", group, "A redirect has no page for people.", []string{"redirect without token", "redirects"},
			"/agent/*/body"),
		at("A2", group, "The slash is added for all methods.", []string{"redirects"},
			"/agent/3/status", "/agent/3/header/Content-Type", "/agent/3/header/Location"),
		at("A2", group, "Two slashes are another path, which no client uses.", []string{"path with two slashes"},
			"/agent/[01]/status", "/agent/[01]/body", "/agent/[01]/header/Content-Type", "/agent/[01]/header/Location"),
		at("A2", group, "An escaped slash in a path is a slash.", []string{"path with escapes"}, "/agent/2/status",
			"/agent/2/body/*"),
		recordOrFault("E17", group, clientError, "bootc null"),
		recordOrFault("E6", group, clientError, "bootloader failure ignored by text", "bootloader root number"),
		at("F9", group, runtime, []string{"steps *"}, "/agent/0/body/command_result/*_steps/ContainerHardwareManager",
			"/agent/0/body/command_result/hardware_manager_version/ContainerHardwareManager",
			"/agent/0/body/command_result/hardware_manager_version/selftest_hardware_manager"),
		at("F9", group, runtime, []string{"steps [cs]*", "steps of a small node", "steps ports null"},
			"/agent/0/body/command_result/*_steps/SelfTestHardwareManager"),
		at("E8", group, named, []string{
			"execute * args list", "execute * args text", "execute * node *", "execute * of a list",
			"execute * of a text",
			"execute * with a number", "execute clean erase_pstore unknown args",
			"execute deploy apply without raid_config",
			"execute deploy bootc without image", "execute deploy write_image without image",
		}, failed...),
		at("E8", group, named, []string{"execute * with null", "execute deploy apply with null"}, kind...),
		at("E8", group, offered, []string{"execute * private", "execute clean method that is no step"}, kind...),
		at("E8", group, offered, []string{
			"execute clean step of deploy", "execute deploy step of clean",
			"execute service step of clean",
		},
			"/agent/0/body/command_error", "/agent/0/body/command_result", "/agent/0/body/command_status"),
		at("A12", group, named, []string{"execute * versions text"}, append(failed, "/agent/0/body/command_status")...),
		at("E13", group, "A flow in a flow fails in ironic-python-agent; here it is an unknown extension.",
			[]string{"flow in a flow"},
			append(failed, "/agent/0/body/command_name")...),
		recordOrFault("A10", group, crash, "flow unknown parameter", "command_name as a parameter"),
		at("E13", group, "Null parameters mean no parameters.", []string{"flow with params null"},
			"/agent/0/body/command_error", "/agent/0/body/command_status"),
		recordOrFault("E13", group, "A flow is validated before its first command.", "flow with params of a list"),
		at("R1", group, "The ramdisk with ironic-python-agent has no IPv6.", []string{"hardware info"},
			"/agent/0/body/command_result/interfaces/0/ipv6_address"),
		at("E14", group, "ironic-python-agent has no iSCSI any more.", []string{
			"iscsi", "iscsi port",
			"iscsi unknown command",
		},
			"/agent/0/status"),
		recordOrFault("E7", group, "ironic-python-agent takes the missing uuid for a missing extension.",
			"key error steps node empty"),
		at("E11", group, "Errors of the collection are a file; the agent's log is part of the journal.",
			[]string{"log archive"},
			"/agent/0/body/command_result/system_logs/errors", "/agent/0/body/command_result/system_logs/var/log/*/*"),
		recordOrFault("A10", group, crash, "type error hardware info", "type error logs", "type error node info",
			"type error partition uuids", "type error rescue unknown", "type error steps unknown",
			"type error steps without *",
			"type error sync", "type error sync self"),
		recordOrFault("E13", group, "A missing flow is an empty one; ironic-python-agent fails with an exception.",
			"type error flow missing", "type error flow null"),
		at("E13", group, clientError, []string{"type error flow number", "type error flow of a text"}, refused...),
		at("E10", group, clientError, []string{"type error rescue list", "type error rescue null"}, refused...),
		at("E7", group, clientError, []string{"type error steps node *"}, refused...),
	} {
		all = append(all, part...)
	}
	return all
}

// protocolDeviations returns the deviations of the group protocol.
func protocolDeviations() []Deviation {
	const (
		group   = "protocol"
		runtime = "This ramdisk has its own container runtime and a self-test; the one with ironic-python-agent " +
			"has no podman."
		logs    = "Errors of the collection are a file; the agent's log is part of the journal."
		unknown = "An unknown collector does not keep the inventory back, and the node that Ironic names is looked up."
		reached = "Ironic is looked for on every link before the data is posted, because the first URL does not answer."
	)
	withInventory := []string{"inspection by default", "inspection of a network boot"}
	var all []Deviation
	for _, part := range [][]Deviation{
		at("A2", group, "A redirect has no page for people.", []string{"documents"}, "/agent/[26]/body"),
		at("A4", group,
			"A body of a wrong type is an error of the client; ironic-python-agent fails with an exception.",
			[]string{"body"}, "/agent/[34]/status", "/agent/[34]/body/faultcode"),
		at("F9", group, runtime, []string{"busy", "wait for a record"},
			"/agent/*/body/commands/0/command_result/deploy_steps/ContainerHardwareManager",
			"/agent/*/body/commands/0/command_result/hardware_manager_version/ContainerHardwareManager",
			"/agent/*/body/commands/0/command_result/hardware_manager_version/selftest_hardware_manager"),
		at("F9", group, runtime, withInventory, "/ironic/0/body/configuration/managers"),
		at("R1", group, "The ramdisk with ironic-python-agent has no IPv6.", withInventory,
			"/ironic/0/body/inventory/interfaces/0/ipv6_address"),
		at("H6", group, logs, []string{"inspection by default"}, "/ironic/0/body/logs/errors",
			"/ironic/0/body/logs/var/log/*/*"),
		at("H8", group,
			"Keys are named as by dmidecode before version 3.6, which renamed one and omits unknown voltages.",
			[]string{"inspection of devices"}, "/ironic/0/body/dmi/bios/BIOS Revision",
			"/ironic/0/body/dmi/bios/Platform Firmware Revision", "/ironic/0/body/dmi/cpu/0/Voltage"),
		extraFacts(group),
		at("H5", group, unknown, []string{"inspection unknown collector"}, "/ironic/0/body/boot_interface",
			"/ironic/0/body/configuration", "/ironic/0/body/inventory", "/ironic/0/body/root_disk",
			"/ironic/2/query/node_uuid"),
		{{
			Row: "B1", Group: group, Path: "/ironic/+2",
			Scenarios: []string{
				"root without a version", "version fails 404", "version fails html", "version fails text",
			},
			Got: `{"method":"GET","path":"/v1/lookup","query":{"addresses":["52:54:00:1a:00:01"]},"status":200,` +
				`"version":"1.62"}`,
			Reason: "The node is looked up again once Ironic's version is known, because at an assumed one it issues " +
				"no token.",
		}},
		at("B1", group, "The version is also taken from the header of Ironic's replies.",
			[]string{"root without a version"}, "/ironic/2/version", "/ironic/2/body/agent_token",
			"/ironic/2/body/agent_verify_ca", "/ironic/2/body/agent_version", "/ironic/2/body/callback_url"),
		at("B1", group, "A version is assumed only if Ironic answers.", []string{"version fails hangs up"},
			"/ironic/1/version"),
		at("B11", group, reached, []string{"inspection at the second URL"},
			"/ironic/[01]/body", "/ironic/[01]/method", "/ironic/[01]/path", "/ironic/[01]/status"),
	} {
		all = append(all, part...)
	}
	return all
}

// extraFacts lists how the facts of the collector extra-hardware differ.
func extraFacts(group string) []Deviation {
	const (
		omitted = "Features of interfaces, addresses other than IPv4, links of /dev/disk/by-id, the auxiliary " +
			"vector, the system's release and the command line, which can contain secrets, are omitted."
		unread = "lshw and uname did not read the SMBIOS tables and the architecture in the ramdisk with " +
			"ironic-python-agent."
	)
	scenarios := []string{"inspection extra-hardware"}
	var all []Deviation
	for _, fact := range []string{
		"disk vda id", "hw auxv *", "network eth0 *-*", "network eth0 autonegotiation", "network eth0 highdma",
		"network eth0 loopback", "system kernel cmdline", "system os *", "system rtc utc",
	} {
		all = append(all, Deviation{
			Row: "H8", Group: group, Scenarios: scenarios, Path: "/ironic/0/body/data/" + fact, Reason: omitted,
			Got: "null",
		})
	}
	for _, fact := range []string{"memory bank:0 *", "memory banks count", "system product *", "system kernel arch"} {
		all = append(all, Deviation{
			Row: "H8", Group: group, Scenarios: scenarios, Path: "/ironic/0/body/data/" + fact, Reason: unread,
		})
	}
	return all
}
