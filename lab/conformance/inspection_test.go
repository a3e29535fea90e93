//go:build linux

package conformance

import (
	"strings"

	"ironroot/lab/qemu"
)

const inspectionURL = "http://10.0.2.2:6385/v1/continue_inspection"

// inspected is a scenario with an inspection by the given collectors. "" are the default ones.
func inspected(name, collectors string, r ...reply) scenario {
	s := scenario{
		name: "inspection " + name, ironic: replies{inspection: r},
		cmdline: "ipa-inspection-callback-url=" + inspectionURL + " ipa-lldp-timeout=1",
	}
	if collectors != "" {
		s.cmdline += " ipa-inspection-collectors=" + collectors
	}
	return s
}

// inspections are the documents that collectors send.
func inspections() []scenario {
	only := inspected("of an agent without an API URL", "pci-devices")
	only.cmdline += " no-ipa-api-url=1" // no option of the agent; machine.start then adds no URL
	only.until = until{inspectionRequest, 1}
	byAPI := scenario{name: "inspection by the API URL", cmdline: "ipa-inspection-collectors=numa-topology " +
		"ipa-global-request-id=req-1be26c0b-03f2-4d2e-ae87-c02d7f33c123"}
	boot := inspected("of a network boot", "usb-devices,,default,")
	boot.cmdline += " BOOTIF=01-52-54-00-1a-00-01"
	two := inspected("at the second URL", "numa-topology")
	two.cmdline = strings.Replace(two.cmdline, "http://", "http://10.0.2.2:6384/v1/continue,http://", 1)
	return []scenario{
		inspected("by default", ""), inspected("of devices", "pci-devices,numa-topology,dmi-decode,usb-devices,lldp"),
		inspected("extra-hardware", "extra-hardware"), inspected("unknown collector", "default,unknown"),
		only, byAPI, boot, two,
	}
}

// hardware contains inspections of a machine with two NUMA nodes, a BMC, a SCSI and an NVMe disk, and a network card of
// another kind.
func hardware() group {
	return group{
		name: "hardware",
		shape: shape{
			// The kernel reserves 38 MiB on one of the nodes; which one differs between boots. With these sizes, both
			// cases are rounded to the same multiples of 64 MiB.
			memory: 3098 * mib, nic: "e1000e",
			disks: []disk{
				{Disk: qemu.Disk{Bus: qemu.SCSI, Size: 5 * gib, Serial: "WITHWWN", WWN: 0x5000c500a1b2c3d4}},
				{Disk: qemu.Disk{Bus: qemu.NVMe, Size: gib, Serial: "NVME"}},
			},
			extra: []string{
				"-object", "memory-backend-ram,id=memory0,size=1060M",
				"-object", "memory-backend-ram,id=memory1,size=2038M",
				"-numa", "node,nodeid=0,cpus=0,memdev=memory0", "-numa", "node,nodeid=1,cpus=1,memdev=memory1",
				"-device", "ipmi-bmc-sim,id=bmc", "-device", "isa-ipmi-kcs,bmc=bmc",
			},
		},
		scenarios: []scenario{
			inspected("extra-hardware", "extra-hardware"),
			inspected("of devices", "default,pci-devices,numa-topology,usb-devices"),
		},
	}
}
