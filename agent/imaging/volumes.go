package imaging

import (
	"fmt"
	"slices"

	"ironroot/agent/softraid"
	"ironroot/storage/block"
	"ironroot/storage/raid"
)

// rootCandidates returns the disks that can be the root disk: the root volume if there is one, otherwise all disks
// without the arrays that is_root_volume excludes, and without the disks of their members.
func rootCandidates(disks []block.Device, volumes []*softraid.Volume) ([]block.Device, error) {
	for _, v := range volumes {
		if !v.IsRoot() {
			continue
		}
		if v.Err != nil {
			return nil, fmt.Errorf("root volume %q: %w", v.Name, v.Err)
		}
		at := slices.IndexFunc(disks, func(d block.Device) bool { return d.Path == v.Path() })
		if at < 0 {
			return nil, fmt.Errorf("root volume %q: %s is not among the disks", v.Name, v.Path())
		}
		return disks[at : at+1], nil
	}
	return slices.DeleteFunc(slices.Clone(disks), func(d block.Device) bool {
		return slices.ContainsFunc(volumes, func(v *softraid.Volume) bool {
			return v.Root != nil && (v.Path() == d.Path || slices.ContainsFunc(v.Members, func(m raid.Member) bool {
				return m.Disk.Path == d.Path
			}))
		})
	}), nil
}
