package conformance

import "slices"

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
		withGot(`"DeploymentError"`, at("K14", group, noTable,
			[]string{"wait wait=TRUE", "end of a command forces a heartbeat"}, "/agent/0/body/command_error/type")),
		withGot(`"DeploymentError"`, at("K14", group, noTable, []string{"wait for a record"},
			"/agent/[12]/body/command_error/type", "/agent/4/body/commands/1/command_error/type")),
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

// hardwareDeviations returns the deviations of the group hardware, but the deviations of facts.
func hardwareDeviations() []Deviation {
	const group = "hardware"
	scenarios := []string{"inspection of devices"}
	return slices.Concat(
		at("F9", group, "This ramdisk has its own container runtime and a self-test; the one with ironic-python-agent "+
			"has no podman.", scenarios, "/ironic/0/body/configuration/managers"),
		at("R1", group, "The ramdisk with ironic-python-agent has no IPv6.", scenarios,
			"/ironic/0/body/inventory/interfaces/0/ipv6_address"),
	)
}

// extraFacts lists how the facts of the collector extra-hardware differ in the groups protocol and hardware.
func extraFacts() []Deviation {
	const (
		omitted = "Features, pause parameters, firmware and PCI latency of interfaces, addresses other than IPv4, " +
			"links of /dev/disk/by-id, values of SMART and of sensors, the auxiliary vector, the system's release " +
			"and the command line, which can contain secrets, are omitted."
		unread = "lshw and uname did not read the SMBIOS tables and the architecture in the ramdisk with " +
			"ironic-python-agent."
		data = "/ironic/0/body/data/"
	)
	scenarios := []string{"inspection extra-hardware"}
	everywhere := withPrefix(data, "hw auxv *", "network eth0 *-*", "network eth0 autonegotiation",
		"network eth0 highdma", "network eth0 loopback", "system kernel cmdline", "system os *", "system rtc utc")
	known := withPrefix(data, "memory bank:0 *", "memory banks count", "system product *", "system kernel arch")
	return slices.Concat(
		absent("H8", "protocol", omitted, scenarios, append(everywhere, data+"disk vda id")...),
		absent("H8", "hardware", omitted, scenarios, append(everywhere, withPrefix(data, "disk nvme0n1 id",
			"disk sda scsi-id", "disk * SMART|*", "ipmi * value", "network eth0 Autonegotiate", "network eth0 [RT]X*",
			"network eth0 firmware", "network eth0 latency")...)...),
		at("H8", "protocol", unread, scenarios, known...), at("H8", "hardware", unread, scenarios, known...),
	)
}
