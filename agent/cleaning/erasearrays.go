package cleaning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ironroot/agent/softraid"
	"ironroot/agent/status"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
)

// eraseArrays erases the content of the arrays that Ironic created and that the step keeps, one after the other: it
// assembles each of them, overwrites the array's device and stops it again. The unused ranges of the members are erased
// later with their disks. An array that fails is an error of its disks, whose other content is then not erased.
func (r *diskRun) eraseArrays(ctx context.Context) {
	for _, a := range slices.Clone(r.kept.arrays) {
		if !slices.ContainsFunc(a.Members, r.flags.erasesMember) {
			continue
		}
		if err := r.eraseArray(ctx, a); err != nil {
			r.progress.Finish(a.String(), status.Failed)
			r.dropPreserved(a, err)
		}
	}
}

// eraseArray assembles an array, erases its content, and stops it. It must be complete afterwards.
func (r *diskRun) eraseArray(ctx context.Context, a *softraid.Volume) error {
	path, err := r.m.raid(nil).Assemble(ctx, a)
	if err != nil {
		return err
	}
	r.known[path] = true
	stop := func() error { return r.m.raid(nil).Stop(context.WithoutCancel(ctx), a, path) }
	d, err := block.Find(r.m.o.System, path)
	if err == nil {
		err = r.guardDisk(ctx, d) // startDiskRun sees only arrays that run
	}
	if err != nil {
		return errors.Join(err, stop())
	}
	a.Device = d
	r.progress.Split(a.String(), []status.Item{{Device: path, Size: r.arrayItem(a).Size}})
	r.results.add([]block.Device{d})
	report, err := limitRunDisk(ctx, r, d, func(ctx context.Context, d block.Device) (diskReport, error) {
		return r.eraseContent(ctx, a, d)
	})
	// A member can also fail when the array is stopped.
	if err = errors.Join(err, stop()); err == nil {
		_, err = raid.ReadMembers(ctx, r.m.o.System, a.Members[0].UUID, a.Members.Paths())
	}
	if err != nil {
		r.fail(d, err)
		r.record(d, diskReport{})
		return fmt.Errorf("the content of %s was not erased", path)
	}
	r.record(d, report)
	r.finishItem(a.String(), d)
	return nil
}

// revoke marks the content of an array as not erased: a member holds other data than the array.
func (r *diskRun) revoke(a *softraid.Volume, err error) {
	r.results.revoke(a.Device, err)
	r.progress.Finish(a.String(), status.Failed)
}

// eraseContent overwrites the device of an array. It returns an error if the array has lost a member, or a member could
// not be written to.
func (r *diskRun) eraseContent(ctx context.Context, a *softraid.Volume, d block.Device) (diskReport, error) {
	started := time.Now()
	record, end := r.results.begin(d, d)
	record.AddLimit(fmt.Sprintf("content of %s on %s", a, a.Describe()))
	err := goroutine.Catch(func() error {
		err := r.eraseWith(ctx, d, r.flags.overwriteOptions(), record)
		if err == nil {
			err = r.m.raid(nil).CheckWritten(a, d.Path)
		}
		if err != nil {
			return err
		}
		return ctx.Err() // the step may have stopped waiting for this array
	})
	end(err)
	if err != nil {
		return diskReport{}, err
	}
	r.logErased(d, record.Report(), started)
	var report diskReport
	report.addErased(d.Path, record.Report())
	return report, nil
}

// eraseMember overwrites the ranges of a member that its array does not use. After zeros, it reads the data back on the
// member, too.
func (r *diskRun) eraseMember(ctx context.Context, member raid.Member, record *erase.Recorder) error {
	array := r.kept.of(member)
	if array == nil {
		return fmt.Errorf("%s is not kept", member)
	}
	_, used, err := array.Members.UsedSizes()
	if err != nil {
		return err
	}
	ranges, err := raid.UnusedRanges(member, used[member.Role], max(member.Device.LogicalSector, 512))
	if err != nil {
		return err
	}
	if err := r.eraseRanges(ctx, member.Device, ranges, record); err != nil {
		return err
	}
	text := "its data was erased through the array"
	if r.flags.overwriteOptions().Zeroize { // other data cannot be compared on a single member
		data := [][2]int64{{member.DataOffset, member.DataOffset + used[member.Role]}}
		if err := r.m.prober.CheckZeros(ctx, member.Device, data, r.flags.overwriteOptions()); err != nil {
			r.revoke(array, err)
			return err
		}
		text += " and read back on this member"
	}
	record.AddLimit(fmt.Sprintf("not erased: superblock of %s", member))
	record.AddLimit(text)
	return nil
}

// eraseGaps overwrites the space outside of the partitions of a disk with members of arrays that Ironic created, and
// records it in the report. Then it does what wipeGaps does, for the boot code.
func (r *diskRun) eraseGaps(ctx context.Context, d block.Device, report *diskReport) error {
	ranges, err := partition.Gaps(ctx, d.Path)
	if err != nil {
		return err
	}
	if len(ranges) > 0 {
		record, end := r.results.begin(d, d)
		record.AddLimit("outside of the partitions")
		err := r.eraseRanges(ctx, d, ranges, record)
		if end(err); err != nil {
			return err
		}
		report.addErased(d.Path, record.Report())
	}
	return r.kept.wipeGaps(ctx, r.m.o.System, d)
}

// eraseRanges overwrites ranges of a device.
func (r *diskRun) eraseRanges(
	ctx context.Context, d block.Device, ranges [][2]int64, record *erase.Recorder,
) error {
	size := int64(0)
	for _, s := range ranges {
		size += s[1] - s[0]
	}
	options := r.flags.overwriteOptions()
	options.Recorder = record
	return r.withProgress(d, size, record, func() error {
		return erase.Ranges(ctx, r.m.o.System, d, ranges, options)
	})
}

// restartArrays starts the arrays again that prepareArrays has stopped, so that the kernel can resync them.
func (r *diskRun) restartArrays(ctx context.Context) {
	for _, a := range r.kept.arrays {
		if a.Running == "" || ctx.Err() != nil {
			continue
		}
		path, err := r.m.raid(nil).Restart(ctx, a)
		if err != nil {
			r.fail(block.Device{Path: a.Running}, err)
			continue
		}
		r.known[path] = true
		r.m.o.Log.Info("RAID array started again", "device", path)
	}
}
