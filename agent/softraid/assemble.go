package softraid

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ironroot/agent/node"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/raid"
)

// Assembled are the arrays of a node for a deployment.
type Assembled struct {
	Volumes []*Volume

	arrays  *Arrays
	started []*Volume // for this deployment
}

// Release stops the arrays that were started for this deployment, except the one with the device path. If one cannot be
// stopped, it stops the others.
func (a Assembled) Release(ctx context.Context, except string) error {
	var problems []error
	for _, v := range a.started {
		if v.Device.Path != except {
			problems = append(problems, a.arrays.Stop(ctx, v, v.Device.Path))
		}
	}
	return errors.Join(problems...)
}

// AssembleRoot assembles the arrays of the node's raid_config for a deployment, unless they run. If there is a root
// volume, it assembles no other one. Arrays that are not complete, or not as create_configuration creates them, are
// logged and listed with the reason.
func (r *Arrays) AssembleRoot(ctx context.Context) (Assembled, error) {
	rules, disks, err := r.volumeDisks(ctx)
	if err != nil || rules.IsEmpty() {
		return Assembled{}, err
	}
	found, err := r.Find(ctx, rules, disks, r.membersOn)
	if err != nil {
		if rules.hasRoot() {
			return Assembled{}, err
		}
		r.o.Log.Warn("RAID arrays of raid_config cannot be assembled", "err", err)
		return Assembled{}, nil
	}
	if slices.ContainsFunc(found, (*Volume).IsRoot) {
		found = slices.DeleteFunc(found, func(v *Volume) bool { return v.Err == nil && !v.IsRoot() })
	}
	return r.assembleFound(ctx, found), nil
}

// AssembleAll assembles all arrays of the node's raid_config that do not run, whether or not there is a root volume. It
// logs arrays that are not complete, or not as create_configuration creates them.
func (r *Arrays) AssembleAll(ctx context.Context) (Assembled, error) {
	rules, disks, err := r.volumeDisks(ctx)
	if err != nil || rules.IsEmpty() {
		return Assembled{}, err
	}
	found, err := r.Find(ctx, rules, disks, r.membersOn)
	if err != nil {
		return Assembled{}, err
	}
	return r.assembleFound(ctx, found), nil
}

// volumeDisks returns the arrays that the node names, and the disks that can have their members. It lists no disks if
// the node names no array.
func (r *Arrays) volumeDisks(ctx context.Context) (Rules, []block.Device, error) {
	rules, err := RulesOf(r.o.Node)
	if err != nil || rules.IsEmpty() {
		return Rules{}, nil, err
	}
	disks, err := r.o.Disks.List(ctx)
	if err != nil {
		return Rules{}, nil, err
	}
	skips, err := node.NewSkipList(r.o.Node)
	if err != nil {
		return Rules{}, nil, err
	}
	if disks, err = skips.Without(disks); err != nil {
		return Rules{}, nil, err
	}
	return rules, slices.DeleteFunc(disks, block.Device.IsArray), nil
}

// Missing returns why an array of raid_config cannot be assembled from the disks, nil if all can. Problems that do not
// depend on the disks are left to the step.
func (r *Arrays) Missing(ctx context.Context, rules Rules, disks []block.Device) error {
	found, err := r.Find(ctx, rules, disks, r.membersOn)
	if err != nil {
		return nil //nolint:nilerr // the configuration or a disk, which is an error of the step
	}
	for _, v := range found {
		if v.Err != nil && !errors.Is(v.Err, errProtectedVolume) {
			return fmt.Errorf("RAID array %q: %w", v.Name, v.Err)
		}
	}
	return nil
}

// hasRoot reports whether raid_config has a root volume.
func (r Rules) hasRoot() bool {
	return slices.ContainsFunc(r.created, func(v Volume) bool {
		return v.controller == softwareController && v.IsRoot()
	})
}

// assembleFound assembles the arrays that were found and do not run.
func (r *Arrays) assembleFound(ctx context.Context, volumes []*Volume) Assembled {
	warn := func(v *Volume) { r.o.Log.Warn("RAID array not assembled", "volume_name", v.Name, "err", v.Err) }
	var found []*Volume
	for _, v := range volumes {
		if v.Err != nil {
			warn(v)
			continue
		}
		found = append(found, v)
	}
	var started []*Volume
	for _, v := range found {
		if v.Running != "" {
			continue
		}
		if v.Device.Path, v.Err = r.Assemble(ctx, v); v.Err != nil {
			warn(v)
			continue
		}
		started = append(started, v)
	}
	return Assembled{Volumes: volumes, arrays: r, started: started}
}

// Assemble starts an array, read-only until it is written to, and returns its device path. The device has the number
// with which Ironic created the array, or the next one that no array has.
func (r *Arrays) Assemble(ctx context.Context, v *Volume) (string, error) {
	running, err := r.o.Kernel.List(ctx)
	if err != nil {
		return "", err
	}
	number := raid.FreeNumber(v.number, raid.Names(running))
	path, err := timelimit.Do(ctx, r.o.Limits(v.Members[0].Disk), func(ctx context.Context) (string, error) {
		return r.o.Kernel.Assemble(ctx, number, v.Members[0].UUID, v.Members.Paths())
	})
	if err != nil {
		return "", err
	}
	r.o.Log.Info("RAID array assembled", "device", path, "array", v.String(), "members", v.Members.Paths())
	return path, nil
}

// Restart assembles an array and makes it writable, so that the kernel can resync it. It returns the device path.
func (r *Arrays) Restart(ctx context.Context, v *Volume) (string, error) {
	path, err := r.Assemble(ctx, v)
	if err == nil {
		err = r.limitDisk(ctx, v.Members[0].Disk, func(context.Context) error { return r.o.Kernel.Resync(path) })
	}
	return path, err
}

// CheckWritten returns an error unless everything that was written to an array with a device path is on all members.
func (r *Arrays) CheckWritten(v *Volume, path string) error {
	return r.o.Kernel.CheckWritten(path, v.Level, v.Members.Paths())
}

// Stop stops an array with a device path. It has a time limit, because the kernel writes to the members.
func (r *Arrays) Stop(ctx context.Context, v *Volume, path string) error {
	err := r.limitDisk(ctx, v.Members[0].Disk, func(ctx context.Context) error { return r.o.Kernel.Stop(ctx, path) })
	if err != nil {
		return err
	}
	r.o.Log.Info("RAID array stopped", "device", path)
	return nil
}

// Reread reads the superblocks of an array that was stopped: while it ran, the kernel changed them one after the
// other. They must belong to a complete array, see [raid.ReadMembers].
func (r *Arrays) Reread(ctx context.Context, v *Volume) error {
	members, err := raid.ReadMembers(ctx, r.o.System, v.Members[0].UUID, v.Members.Paths())
	if err != nil {
		return err
	}
	for i := range members {
		at := slices.IndexFunc(v.Members, func(m raid.Member) bool { return m.Device.Path == members[i].Device.Path })
		members[i].Disk = v.Members[at].Disk
	}
	v.Members = members
	return nil
}
