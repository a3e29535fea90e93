// Package block knows the machine's block devices: it lists disks and partitions from sysfs without udev, waits for
// them with kernel uevents, and issues the ioctls that flush a device or read its partition table again.
//
// Identity (serial, WWN, path) is computed from sysfs alone, by the rules udev's scsi_id, ata_id and path_id follow:
// SCSI vital product data pages 0x80 and 0x83 (SPC-4, 7.8), NVMe serial and wwid, the virtio serial attribute.
// Device nodes are expected from devtmpfs. Multipath maps and md arrays are listed, never assembled here: see package
// multipath.
package block

import (
	"path/filepath"

	"ironroot/storage/sysfile"
)

// System reaches the machine through folders that a test can replace by a fixture tree. The zero value is the
// running machine.
type System struct {
	// Root is the folder below which sys, dev and proc are found; "" means "/".
	Root string
	// Files reads sysfs and remembers which files hang; nil remembers and logs nothing.
	Files *sysfile.Reader
}

// Sys returns the path of a file below /sys.
func (s System) Sys(elem ...string) string { return s.path("sys", elem) }

// Dev returns the path of a file below /dev.
func (s System) Dev(elem ...string) string { return s.path("dev", elem) }

// Proc returns the path of a file below /proc.
func (s System) Proc(elem ...string) string { return s.path("proc", elem) }

func (s System) path(top string, elem []string) string {
	root := s.Root
	if root == "" {
		root = "/"
	}
	return filepath.Join(append([]string{root, top}, elem...)...)
}
