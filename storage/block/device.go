package block

import (
	"fmt"
	"strings"
)

// Device describes a block device. String fields are "" if the machine does not provide the value.
type Device struct {
	Name string // kernel name, "sda"
	Path string // device node, "/dev/sda"
	Type string // as lsblk names it: "disk", "part", "raid1", "mpath", "lvm", "crypt", "rom", "loop"; or RAMDisk
	Size int64  // bytes
	// Number is the number of a partition in its table; 0 for others. Only Partitions sets it.
	Number int
	// Start is the start of a partition on its disk in bytes; 0 for others and for maps. Only Partitions sets it.
	Start int64

	Model  string
	Vendor string
	Serial string // the short serial number
	NSID   string // number of an NVMe namespace in its subsystem
	WWN    string // "0x5000c500a1b2c3d4", "eui.…", "nvme.…", "naa.…" for NVMe

	// WWID is the globally unique identifier of a SCSI disk or multipath map in multipathd's form, such as "3" and the
	// NAA identifier.
	WWID               string
	WWNWithExtension   string   // NAA identifier together with its vendor extension
	WWNVendorExtension string   // "0x…", the vendor extension alone
	HCTL               string   // SCSI host:channel:target:lun, "0:0:0:0"
	ByPath             string   // "/dev/disk/by-path/pci-0000:00:1f.2-ata-1"
	ByPaths            []string // every such name, ByPath first
	Transport          string   // "sata", "sas", "nvme", "usb", "virtio", "iscsi", "fc", "ata", "mmc"
	// Network names the way in which the disk is reached over a network: "iscsi", "fc", "fcoe", "srp", "nvme-tcp",
	// "nvme-rdma", "nvme-fc", "nbd", "rbd", "drbd" or "aoe"; "" for a disk of this machine. Other machines can use the
	// same disk. It is not set for partitions.
	Network string
	// NetworkUnread is why it is not known whether Network is complete: the disk may be reached over a network although
	// Network is "".
	NetworkUnread error

	Serials []string // every known serial number, the short one first
	WWNs    []string // every known world wide name, the one without extension first

	Components []Device // paths of a multipath map

	// Unread is why a part of Model, Vendor, Serials or WWNs could not be read, so that the disk may have more of
	// them. It is nil if each was read or does not exist.
	Unread error

	Rotational bool
	ReadOnly   bool
	Removable  bool
	Zoned      string // "host-managed", "host-aware", "" for a disk without zones

	LogicalSector  int64 // bytes
	PhysicalSector int64 // bytes
}

// IsArray reports whether a device is an array of software RAID that runs.
func (d Device) IsArray() bool { return isArray(d.Type) }

// isArray reports whether a type names an array of software RAID, such as "raid1".
func isArray(kind string) bool { return strings.Contains(kind, "raid") }

// IsLocal reports whether a disk is of this machine, not reached over a network. It returns an error if that is not
// known.
func (d Device) IsLocal() (bool, error) {
	if d.Network == "" && d.NetworkUnread != nil {
		return false, fmt.Errorf("not known whether %s is reached over a network: %w", d.Path, d.NetworkUnread)
	}
	return d.Network == "", nil
}
