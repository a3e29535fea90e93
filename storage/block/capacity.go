package block

import (
	"context"
	"errors"
	"io/fs"
	"regexp"
	"slices"
)

// diskName matches the disks of SCSI, SATA, SAS and USB, and those of virtio.
var diskName = regexp.MustCompile(`^(sd|vd)[a-z]+$`)

// DisksWithoutCapacity lists the SCSI and virtio disks for which the kernel reports no capacity, so that
// [System.Disks] does not list them: their sectors have a size that Linux does not support, such as 520 bytes, the
// disk is being formatted, or it is broken. It omits removable ones, such as card readers without a medium, and
// further paths to a disk that has a capacity: some arrays report it on active paths only. With an error that wraps
// [ErrUnreadable], the list contains the disks that could be described.
func (s System) DisksWithoutCapacity(ctx context.Context) ([]Device, error) {
	all, err := s.allDisks(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	units := map[string]bool{} // identifiers of the disks with a capacity
	for _, d := range all {
		if d.WWID != "" && d.Size > 0 {
			units[d.WWID] = true
		}
	}
	return slices.DeleteFunc(all, func(d Device) bool {
		return d.Size > 0 || !diskName.MatchString(d.Name) || d.Removable || units[d.WWID]
	}), err
}
