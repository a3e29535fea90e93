package generic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
)

// eraseArrays erases the content of the arrays that Ironic created and that the step keeps, one after the other: it
// assembles each of them, overwrites the array's device and stops it again. What is on the members beside the data is
// erased later with their disks. An array that fails is an error of its disks, which are then not written to.
func (r *diskRun) eraseArrays(ctx context.Context) {
	for _, a := range slices.Clone(r.kept) {
		if !slices.ContainsFunc(a.disks, r.erasesFully) {
			continue
		}
		if err := r.eraseArray(ctx, a); err != nil {
			r.drop(a, err)
		}
	}
}

// erasesFully reports whether the step erases all data of a disk with a kept array, and not only metadata.
func (r *diskRun) erasesFully(d block.Device) bool {
	return r.step == fullErase || r.step == expressErase && d.Transport == "nvme"
}

// keptOptions returns the options for the erase of an array, and of what is beside the data of its members.
// erase_devices_express overwrites them once, with zeros.
func (r *diskRun) keptOptions() erase.Options {
	options := r.flags.options(nil)
	if r.step == expressErase {
		options.Iterations, options.Zeroize = 0, true
	}
	return options
}

// eraseArray erases the content of an array.
func (r *diskRun) eraseArray(ctx context.Context, a *keptArray) error {
	path, err := r.m.assemble(ctx, a)
	if err != nil {
		return err
	}
	r.known[path] = true
	stop := func() error { return r.m.stop(context.WithoutCancel(ctx), a, path) }
	d, err := block.Find(r.m.o.System, path)
	if err == nil {
		err = r.guardArray(ctx, d)
	}
	if err != nil {
		return errors.Join(err, stop())
	}
	a.device = d
	r.evidence.add([]block.Device{d})
	report, err := bounded(ctx, r, d, func(ctx context.Context, d block.Device) (diskReport, error) {
		return r.eraseContent(ctx, a, d)
	})
	// A member can also fail when the array is stopped.
	if err = errors.Join(err, stop()); err == nil {
		err = raid.CheckComplete(ctx, r.m.o.System, a.members[0].UUID, a.paths())
	}
	if err != nil {
		r.fail(d, err)
		r.record(d, diskReport{})
		return fmt.Errorf("the content of %s was not erased", path)
	}
	r.record(d, report)
	return nil
}

// guardArray returns an error if a shared file system is on an array: startDiskRun sees only arrays that run.
func (r *diskRun) guardArray(ctx context.Context, d block.Device) error {
	if !r.flags.guard {
		return nil
	}
	_, err := bounded(ctx, r, d, func(ctx context.Context, d block.Device) (any, error) {
		return nil, erase.Guard(ctx, r.m.o.System, d.Path)
	})
	return err
}

// revoke marks the content of an array as not erased: a member holds other data than the array.
func (r *diskRun) revoke(a *keptArray, err error) {
	r.evidence.fail(a.device, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reports, a.device.Path)
}

// eraseContent overwrites the device of an array. Then all members must still be in use, and must have accepted all
// writes.
func (r *diskRun) eraseContent(ctx context.Context, a *keptArray, d block.Device) (diskReport, error) {
	started := time.Now()
	traced, ended := r.evidence.begin(ctx, d, d)
	var method erase.Method
	err := goroutine.Catch(func() (err error) {
		method, err = r.erasing(d, r.keptOptions(), func(o erase.Options) (erase.Method, error) {
			return r.m.eraseFull(traced, r.m.o.System, d, o)
		})
		if err == nil {
			err = r.m.checkWritten(r.m.o.System, d.Path, a.level, a.paths())
		}
		if err != nil {
			return err
		}
		method += erase.Method(fmt.Sprintf("; content of %s on %s", a, a.describe()))
		return ctx.Err() // the step may have stopped waiting for this array
	})
	ended(method, err)
	if err != nil {
		return diskReport{}, err
	}
	r.m.o.Log.Info("device erased", "device", d.Path, "method", string(method),
		"duration", time.Since(started).Round(time.Millisecond))
	return diskReport{Erased: map[string]erase.Method{d.Path: method}}, nil
}

// eraseMember overwrites what is on a member of an array beside superblock, bitmap and data.
func (r *diskRun) eraseMember(ctx context.Context, member md.Member) (erase.Method, error) {
	i := slices.IndexFunc(r.kept, func(a *keptArray) bool { return a.members[0].UUID == member.UUID })
	if i < 0 {
		return "", fmt.Errorf("%s is not kept", member)
	}
	_, covered, err := md.UsedSizes(r.kept[i].members)
	if err != nil {
		return "", err
	}
	ranges, err := raid.UnusedRanges(member, covered[member.Role], max(member.Device.LogicalSector, 512))
	if err != nil {
		return "", err
	}
	method, err := r.eraseRanges(ctx, member.Device, ranges)
	if err != nil {
		return "", err
	}
	text := "its data was erased through the array"
	if r.keptOptions().Zeroize { // other data cannot be compared on a single member
		data := [2]int64{member.DataOffset, member.DataOffset + covered[member.Role]}
		if err := r.m.checkZeros(ctx, r.m.o.System, member.Device, [][2]int64{data}, r.keptOptions()); err != nil {
			r.revoke(r.kept[i], err)
			return "", err
		}
		text += " and read back on this member"
	}
	return method + erase.Method(fmt.Sprintf("; not erased: superblock of %s; %s", member, text)), nil
}

// eraseBeside overwrites the space of a disk with kept arrays outside of its partitions, and records it in the report.
// The disk must not have other superblocks afterwards.
func (r *diskRun) eraseBeside(ctx context.Context, d block.Device, report *diskReport) error {
	ranges, err := partition.Gaps(ctx, d.Path)
	if err != nil {
		return err
	}
	if len(ranges) > 0 {
		traced, ended := r.evidence.begin(ctx, d, d)
		method, err := r.eraseRanges(traced, d, ranges)
		method += "; outside of the partitions"
		ended(method, err)
		if err != nil {
			return err
		}
		report.Erased[d.Path] = method
	}
	return r.wipeBeside(ctx, d) // boot code too
}

// eraseRanges overwrites ranges of a device.
func (r *diskRun) eraseRanges(ctx context.Context, d block.Device, ranges [][2]int64) (erase.Method, error) {
	return r.erasing(d, r.keptOptions(), func(o erase.Options) (erase.Method, error) {
		return erase.Ranges(ctx, r.m.o.System, d, ranges, o)
	})
}

// restartArrays starts the kept arrays again that ran when the step began, so that the kernel can resync them.
func (r *diskRun) restartArrays(ctx context.Context) {
	for _, a := range r.kept {
		if a.running == "" || ctx.Err() != nil {
			continue
		}
		path, err := r.m.assemble(ctx, a)
		if err == nil {
			err = r.m.withLimits(ctx, a.disks[0], func(context.Context) error { return r.m.resyncArray(path) })
		}
		if err != nil {
			r.fail(block.Device{Path: a.running}, err)
			continue
		}
		r.known[path] = true
		r.m.o.Log.Info("RAID array started again", "device", path)
	}
}

// assemble starts an array and returns its device path. Its number is that of its device when Ironic created it, unless
// another array has that number. The array is read-only until it is written to.
func (m *Manager) assemble(ctx context.Context, a *keptArray) (string, error) {
	running, err := m.listArrays(ctx, m.o.System)
	if err != nil {
		return "", err
	}
	used := func(number int) bool {
		return slices.ContainsFunc(running, func(other raid.Array) bool {
			return other.Name == fmt.Sprintf("md%d", number)
		})
	}
	number := a.number
	for used(number) {
		number++
	}
	path, err := erase.Bounded(ctx, m.limits(a.disks[0]), func(ctx context.Context) (string, error) {
		return m.assembleArray(ctx, m.o.System, number, a.members[0].UUID, a.paths())
	})
	if err == nil {
		m.o.Log.Info("RAID array assembled", "device", path, "array", a.String(), "members", a.paths())
	}
	return path, err
}

// stop stops an array, with a time limit: the kernel writes to its members.
func (m *Manager) stop(ctx context.Context, a *keptArray, path string) error {
	return m.withLimits(ctx, a.disks[0], func(ctx context.Context) error { return m.stopArray(ctx, path) })
}
