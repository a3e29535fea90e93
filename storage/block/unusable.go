package block

import (
	"context"
	"errors"
	"io/fs"
	"regexp"
)

var namespaceName = regexp.MustCompile(`^nvme\d+n\d+$`)

// IsNVMeNamespace reports whether a kernel name is that of an NVMe namespace. Partitions of a namespace (nvme0n1p1)
// and its hidden paths (nvme0c1n1) are not.
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

// UnusableDisks lists the disks that the kernel knows and cannot read or write, so that [System.Disks] does not list
// them: NVMe namespaces that are hidden or have no size, because of their command set or their format, such as one
// with metadata behind each block; and SCSI and virtio disks without a capacity. It omits removable ones of these,
// such as card readers without a medium, and further paths to a disk that has a capacity: some arrays report it on
// active paths only. With an error that wraps [ErrUnreadable], the list contains the disks that could be described.
func (s System) UnusableDisks(ctx context.Context) ([]UnusableDisk, error) {
	all, err := s.describe(ctx, func(name string) bool { return IsNVMeNamespace(name) || s.isDisk(name) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	paths := s.mapPaths(all)
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
			if d.Size == 0 || s.text(s.Sys("block", d.Name, "hidden")) == "1" {
				unusable = append(unusable, UnusableDisk{d, ErrUnusableNamespace})
			}
		case diskName.MatchString(d.Name) && d.Size == 0 && !d.Removable && !units[d.WWID] && !paths[d.Name]:
			unusable = append(unusable, UnusableDisk{d, ErrNoCapacity})
		}
	}
	return unusable, err
}
