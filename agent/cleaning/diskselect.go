package cleaning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ironroot/agent/fault"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// recoverDisks makes disks usable that an interrupted secure erase has left with a password or sanitizing, unless
// secure erase is switched off for disks of their kind. It recovers them concurrently, so that several disks that hang
// or sanitize delay the step only once. It returns the disks without those that failed.
func (r *diskRun) recoverDisks(ctx context.Context, disks []block.Device) []block.Device {
	errs := make([]error, len(disks))
	group := goroutine.NewGroup()
	for i, d := range disks {
		if !r.flags.secureErase(d) {
			continue
		}
		group.Go(func() error {
			_, errs[i] = limitRunDisk(ctx, r, d, func(ctx context.Context, d block.Device) (any, error) {
				return nil, r.recoverDisk(ctx, d)
			})
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	var usable []block.Device
	for i, d := range disks {
		if err := errs[i]; err != nil {
			r.fail(d, err)
			continue
		}
		usable = append(usable, d)
	}
	return usable
}

// recoverDisk makes a disk usable. It shows the progress of a sanitize that it waits for, which can take hours.
func (r *diskRun) recoverDisk(ctx context.Context, d block.Device) error {
	p := &eraseProgress{m: r.m, device: d, recovers: true}
	defer p.end()
	return r.m.eraser.Recover(ctx, d, &erase.Recorder{Observer: p})
}

// failUnidentified adds an error for each disk that skip_block_devices may name by something that could not be read.
func (r *diskRun) failUnidentified() {
	r.disks = slices.DeleteFunc(slices.Clone(r.disks), func(d block.Device) bool {
		err := r.skips.CheckRead(d)
		if err != nil {
			r.fail(d, err)
		}
		return err != nil
	})
}

// warnUnmatched logs the entries of skip_block_devices that protect nothing: they may be mistakes.
func (r *diskRun) warnUnmatched() {
	for _, entry := range r.skips.Unmatched() {
		r.m.o.Log.Warn("no disk matches an entry of skip_block_devices", "entry", entry)
	}
	for _, name := range r.arrays.Unmatched(r.arrays.members) {
		r.m.o.Log.Warn("no RAID array matches an entry of skip_block_devices", "volume_name", name)
	}
}

// failUnread records the error of a list that lacks disks, because they cannot be described, once. It returns any
// other error of the list.
func (r *diskRun) failUnread(err error) error {
	known := func(other error) bool { return strings.Contains(other.Error(), err.Error()) }
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, block.ErrUnreadable):
		return fmt.Errorf("list disks: %w", err)
	case slices.ContainsFunc(r.arrays.unread, known):
		return nil // the kernel's list and the list of disks to erase contain the same disks
	}
	r.m.o.Log.Error(r.phrase, "err", err)
	r.results.addErr(err)
	r.arrays.unread = append(r.arrays.unread, err)
	return nil
}

// failUnusable adds an error for each disk that is not known yet and that the kernel cannot use and therefore does not
// list: a tenant can format NVMe namespaces and SCSI disks that way. Disks that skip_block_devices names are recorded
// as skipped.
func (r *diskRun) failUnusable(ctx context.Context) error {
	unusable, err := block.UnusableDisks(ctx, r.m.o.System)
	if err := r.failUnread(err); err != nil {
		return err
	}
	var added []block.Device
	reasons := map[string]error{}
	for _, d := range unusable {
		if !r.known[d.Path] {
			d.NetworkUnread = nil // the disk fails below anyway, with the reason why it is unusable
			added, reasons[d.Path], r.known[d.Path] = append(added, d.Device), d.Reason, true
		}
	}
	disks, err := r.skips.Without(added)
	if err != nil {
		return err
	}
	r.recordSkipped(added, disks)
	for _, d := range r.withoutNetwork(disks) {
		r.fail(d, reasons[d.Path])
	}
	return nil
}

const skippedReason = "named by skip_block_devices"

// recordSkipped records the disks of a list that are not among those that skip_block_devices keeps.
func (r *diskRun) recordSkipped(all, kept []block.Device) {
	for _, d := range skippedDisks(all, kept) {
		r.skipped[d.Path] = true
		r.record(d, untouched(d, skippedReason))
	}
}

// skippedDisks returns the disks that are not among the kept ones.
func skippedDisks(all, kept []block.Device) []block.Device {
	return slices.DeleteFunc(slices.Clone(all), func(d block.Device) bool {
		return slices.ContainsFunc(kept, func(other block.Device) bool { return other.Path == d.Path })
	})
}

// guardDisk returns an error if a shared file system is on a disk, or if the disk cannot be read.
func (r *diskRun) guardDisk(ctx context.Context, d block.Device) error {
	if !r.flags.guard {
		return nil
	}
	_, err := limitRunDisk(ctx, r, d, func(ctx context.Context, d block.Device) (any, error) {
		return nil, erase.Guard(ctx, r.m.o.System, d.Path)
	})
	return err
}

// guard selects the disks that can be read and hold no shared file system. If the guard is off, it selects all.
func (r *diskRun) guard(ctx context.Context, disks []block.Device) error {
	var protected []error
	for _, d := range disks {
		switch err := r.guardDisk(ctx, d); {
		case err == nil:
			r.disks = append(r.disks, d)
		case errors.Is(err, erase.ErrProtected):
			protected = append(protected, err)
		default:
			r.fail(d, err)
		}
	}
	if len(protected) > 0 {
		return fault.ProtectedDevice("%w", errors.Join(protected...))
	}
	return nil
}
