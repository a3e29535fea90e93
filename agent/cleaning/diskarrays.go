package cleaning

import (
	"context"
	"fmt"
	"slices"

	"ironroot/agent/node"
	"ironroot/agent/softraid"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/raid"
)

// prepareArrays finds the arrays that Ironic created (raid_config) and that the step can keep, and stops those that
// run. Each is the only one of its name, all of its members are on disks that the step erases, and it is as
// create_configuration creates it. Any other array that can be one of raid_config stays an error of its disks, see
// protectedMembers. The log and that error contain the reason.
func (r *diskRun) prepareArrays(ctx context.Context, n *node.Node) {
	for _, a := range r.findKept(ctx, n) {
		if err := r.stopRunning(ctx, a); err != nil {
			r.addNotPreservable(a, err)
			continue
		}
		r.kept.keep(a)
	}
}

// findKept returns the arrays that prepareArrays keeps, and stops none. It logs why others cannot be kept.
func (r *diskRun) findKept(ctx context.Context, n *node.Node) []*softraid.Volume {
	found, err := r.findCreated(ctx, n)
	if err != nil {
		r.m.o.Log.Warn("RAID arrays of raid_config cannot be kept", "err", err)
		r.kept.none = err
		return nil
	}
	return found
}

// findCreated returns the arrays of raid_config that are as create_configuration creates them, and notes why the others
// are not kept. Its error is why no array can be kept.
func (r *diskRun) findCreated(ctx context.Context, n *node.Node) ([]*softraid.Volume, error) {
	if n == nil {
		return nil, nil
	}
	if r.arrays.HasProtected() {
		for _, m := range r.arrays.members {
			if r.arrays.Created(m.Superblock) != "" && !r.arrays.Protected(m.Superblock) {
				return nil, fmt.Errorf("%s on %s: skip_block_devices protects another array by its name",
					m, m.Device.Path)
			}
		}
		return nil, nil
	}
	found, err := r.m.raid(n).Find(ctx, r.arrays.Rules, r.disks, r.membersOn)
	return slices.DeleteFunc(found, func(v *softraid.Volume) bool {
		if v.Err != nil {
			r.addNotPreservable(v, v.Err)
		}
		return v.Err != nil
	}), err
}

// addNotPreservable notes why the step cannot keep an array of raid_config.
func (r *diskRun) addNotPreservable(v *softraid.Volume, err error) {
	r.m.o.Log.Warn("RAID array cannot be kept", "volume_name", v.Name, "err", err)
	r.kept.refuse(v, err)
}

// dropPreserved marks an array as one that the step cannot keep, which is an error of its disks.
func (r *diskRun) dropPreserved(a *softraid.Volume, err error) {
	r.m.o.Log.Error("RAID array not erased", "array", a.String(), "devices", a.Describe(), "err", err)
	r.kept.drop(a, err)
}

// stopRunning stops an array if it runs, and reads its superblocks again. Its device is then no disk of the step.
func (r *diskRun) stopRunning(ctx context.Context, v *softraid.Volume) error {
	if v.Running == "" {
		return nil
	}
	machine := r.m.raid(nil)
	if err := machine.Stop(ctx, v, v.Running); err != nil {
		return err
	}
	if err := machine.Reread(ctx, v); err != nil {
		return err
	}
	r.disks = slices.DeleteFunc(r.disks, func(d block.Device) bool { return d.Path == v.Running })
	return nil
}

// wipeMember removes the content of a member of an array that Ironic created, and keeps its superblock.
func (r *diskRun) wipeMember(ctx context.Context, member raid.Member, record *erase.Recorder) error {
	r.m.o.Log.Info("wiping RAID member", "device", member.Device.Path, "array", member.String())
	if err := raid.Wipe(ctx, member); err != nil {
		return err
	}
	record.Erased(erase.MetadataOnly)
	record.AddLimit("not erased: superblock of " + member.String())
	return nil
}
