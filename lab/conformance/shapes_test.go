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

// fewEvents are kernel parameters that save time in an emulated machine with ironic-python-agent: udev does not look
// for several paths to each disk. Programs that udev starts see the agent's parameters.
const fewEvents = "nompath"
