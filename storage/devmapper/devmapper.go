// Package devmapper creates, changes and removes maps of the kernel's device mapper by the ioctls of
// /dev/mapper/control (linux/dm-ioctl.h, version 4; Documentation/admin-guide/device-mapper).
//
// Device nodes come from devtmpfs, /dev/dm-N: there are no names in /dev/mapper, and udev is not notified. A map is
// identified by its UUID. Limits: a table, and the kernel's reply with it, must fit into 16 KiB; every map has a single
// table; maps cannot be suspended, and snapshots are not supported.
package devmapper

// Sector is the unit of the device mapper in bytes, regardless of a device's sector size.
const Sector = 512

// Target is a range of a map and its mapping.
type Target struct {
	Kind       string // of the kernel's targets: "linear", "multipath"
	Start      int64  // bytes from the start of the map
	Size       int64  // bytes
	Parameters string // in the target's own format
}

// Map is a device of the device mapper. Name and UUID are unique. Their maximum lengths are 127 and 128 bytes.
type Map struct {
	Name, UUID string
	Targets    []Target
}
