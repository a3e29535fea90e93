package block

import (
	"context"
	"errors"
	"io/fs"
	"regexp"

	"ironroot/storage/sysfs"
)

var namespaceName = regexp.MustCompile(`^nvme\d+n\d+$`)

// IsNVMeNamespace reports whether a kernel name names an NVMe namespace. Partitions of a namespace (nvme0n1p1) and its
// hidden paths (nvme0c1n1) are not.
func IsNVMeNamespace(name string) bool { return namespaceName.MatchString(name) }

// diskName matches the kernel names of SCSI (including SATA, SAS and USB) and virtio disks.
var diskName = regexp.MustCompile(`^(sd|vd)[a-z]+$`)

// Reasons why the kernel cannot use a disk.
var (
	ErrUnusableNamespace = errors.New(
		"the kernel can neither read nor write this NVMe namespace, because of its command set or format")
	ErrNoCapacity = errors.New("the kernel reports no capacity: " +
		"the size of its sectors is not supported, it is being formatted, or it is broken")
)

// UnusableDisk describes a disk that the kernel knows and cannot use.
type UnusableDisk struct {
	Device

	Reason error // ErrUnusableNamespace or ErrNoCapacity
}

// UnusableDisks lists the disks that the kernel knows but cannot read or write, so that [Disks] does not list them.
// These are NVMe namespaces that are hidden or have no size because of their command set or format, such as one with
// metadata after each block, and SCSI and virtio disks without a capacity. Of the latter it omits removable ones, such
// as card readers without a medium, and further paths to a disk that has a capacity: some arrays report it on active
// paths only. With an error that wraps [ErrUnreadable], the list contains the disks that could be described.
func UnusableDisks(ctx context.Context, s sysfs.Root) ([]UnusableDisk, error) {
	all, err := describe(ctx, s, func(name string) bool { return IsNVMeNamespace(name) || isDisk(s, name) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	paths := mapPaths(all)
	units := map[string]bool{} // identifiers of the disks with a capacity
	for _, d := range all {
		if d.WWID != "" && d.Size > 0 && !paths[d.Name] {
			units[d.WWID] = true
		}
	}
	var unusable []UnusableDisk
	for _, d := range all {
		switch {
		case IsNVMeNamespace(d.Name):
			if d.Size == 0 || readText(s, s.Sys("block", d.Name, "hidden")) == "1" {
				unusable = append(unusable, UnusableDisk{d, ErrUnusableNamespace})
			}
		case diskName.MatchString(d.Name) && d.Size == 0 && !d.Removable && !units[d.WWID] && !paths[d.Name]:
			unusable = append(unusable, UnusableDisk{d, ErrNoCapacity})
		}
	}
	return unusable, err
}
