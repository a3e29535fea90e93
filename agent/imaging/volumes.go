package imaging

import (
	"context"
	"fmt"
	"slices"

	"ironroot/storage/block"
)

// Volume is a software RAID array of the node's raid_config.
type Volume struct {
	Name  string
	Root  *bool    // is_root_volume; nil if it is not given
	Path  string   // of its device, "" if it does not run
	Disks []string // device paths of the disks with its members; nil if these are not known
	Err   error    // why it does not run, nil if it runs
}

// isRoot reports whether the array is the root volume.
func (v Volume) isRoot() bool { return v.Root != nil && *v.Root }

// Volumes are the arrays of a node for a deployment.
type Volumes struct {
	List []Volume
	// Release stops the arrays that were started for this deployment, except the one with the device path. It may be
	// nil.
	Release func(ctx context.Context, except string) error
}

// release calls Release, if it is set, also after ctx was cancelled.
func (v Volumes) release(ctx context.Context, except string) error {
	if v.Release == nil {
		return nil
	}
	return v.Release(context.WithoutCancel(ctx), except)
}

// rootCandidates returns the disks that can be the root disk: the root volume if there is one, otherwise all disks
// without the arrays that is_root_volume excludes, and without the disks of their members.
func rootCandidates(disks []block.Device, volumes []Volume) ([]block.Device, error) {
	for _, v := range volumes {
		if !v.isRoot() {
			continue
		}
		if v.Err != nil {
			return nil, fmt.Errorf("root volume %q: %w", v.Name, v.Err)
		}
		at := slices.IndexFunc(disks, func(d block.Device) bool { return d.Path == v.Path })
		if at < 0 {
			return nil, fmt.Errorf("root volume %q: %s is not among the disks", v.Name, v.Path)
		}
		return disks[at : at+1], nil
	}
	return slices.DeleteFunc(slices.Clone(disks), func(d block.Device) bool {
		return slices.ContainsFunc(volumes, func(v Volume) bool {
			return v.Root != nil && (v.Path == d.Path || slices.Contains(v.Disks, d.Path))
		})
	}), nil
}
