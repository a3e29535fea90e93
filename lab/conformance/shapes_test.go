//go:build linux

package conformance

import "ironroot/lab/qemu"

const (
	mib = 1 << 20
	gib = 1 << 30
)

// rootDisk is a disk that is large enough for the agent's default root disk.
func rootDisk() disk {
	return disk{Disk: qemu.Disk{Bus: qemu.Virtio, Size: 5 * gib, Serial: "ROOT"}}
}

// fewEvents is a kernel parameter that saves time in an emulated machine: udev does not search for several paths to a
// disk. In the machine of ironic-python-agent, the programs that udev starts also read the agent's parameters.
const fewEvents = "nompath"
