package cleaning

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"ironroot/agent/fault"
	"ironroot/agent/hardware/burnin"
	"ironroot/agent/node"
	"ironroot/internal/goroutine"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// TestDisks overwrites and tests all disks in parallel, except those that EraseDevices protects and those with members
// of protected arrays. As with EraseDevices, a storage controller without a driver is an error.
func (m *Steps) TestDisks(ctx context.Context, n *node.Node, options burnin.DiskOptions) (any, error) {
	run, err := m.startDiskRun(ctx, n, "disk not tested", "")
	if err != nil {
		return nil, notTested(err)
	}
	files, err := burnin.NewDiskResults(options)
	if err != nil {
		return nil, fault.CommandExecution(fmt.Errorf("burnin_disk: %w", err))
	}
	b := &diskBurnin{diskRun: run, options: options, files: files}
	run.announce()
	reasons, errs := b.examine(ctx)
	if b.failConflict(errs) {
		for i, d := range b.disks {
			if errs[i] != nil {
				b.files.Add(d.Path, burnin.DiskReport{}, errs[i])
			}
		}
		return b.finish(ctx)
	}
	group := goroutine.NewGroup()
	for i, d := range run.disks {
		group.Go(func() error {
			run.do(ctx, d, func(ctx context.Context, d block.Device) (diskReport, error) {
				return b.testDisk(ctx, d, reasons[i], errs[i])
			})
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors: run collects them
	run.examineUnbound(ctx)
	return b.finish(ctx)
}

// notTested converts the error of a list of disks to the type of errors of a step that does not erase. The error of a
// shared file system keeps its type.
func notTested(err error) error {
	if errors.Is(err, erase.ErrProtected) {
		return err
	}
	var f *fault.Error
	if errors.As(err, &f) {
		err = f.Err
	}
	return fault.CommandExecution(fmt.Errorf("burnin_disk: %w", err))
}

// diskBurnin is one run of burnin_disk.
type diskBurnin struct {
	*diskRun
	options burnin.DiskOptions
	files   *burnin.DiskResults
}

// examine returns why disks must be left as they are, "" for those to test, and the errors of disks, in their order.
func (b *diskBurnin) examine(ctx context.Context) (reasons []string, errs []error) {
	reasons, errs = make([]string, len(b.disks)), make([]error, len(b.disks))
	group := goroutine.NewGroup()
	for i, d := range b.disks {
		group.Go(func() error {
			reasons[i], errs[i] = limitRunDisk(ctx, b.diskRun, d, b.leaveReason)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	shortenAmbiguous(errs)
	return reasons, errs
}

// leaveReason returns why a disk must be left as it is, "" if it is tested.
func (b *diskBurnin) leaveReason(ctx context.Context, d block.Device) (string, error) {
	if reason, err := b.skipReason(ctx, d, b.flags.skipReadOnly); err != nil || reason != "" {
		return reason, err
	}
	protected, err := b.protectedMembers(ctx, d)
	return strings.Join(slices.Sorted(maps.Values(protected)), ", "), err
}

// testDisk tests one disk, unless examine has found a reason to leave it as it is, or an error.
func (b *diskBurnin) testDisk(
	ctx context.Context, d block.Device, reason string, problem error,
) (_ diskReport, err error) {
	var report burnin.DiskReport
	defer func() {
		if err != nil {
			b.files.Add(d.Path, report, err)
		}
	}()
	if problem != nil {
		return diskReport{}, problem
	}
	if reason != "" {
		return untouched(d, reason), nil
	}
	log := b.m.o.Log
	log.Info("testing disk", "device", d.Path, "bytes", d.Size)
	tracker := b.m.track("testing disk", d.Path)
	defer tracker.End()
	err = erase.Exclusive(ctx, b.m.o.System, d, b.flags.wait, func(f *os.File, size int64) (err error) {
		report, err = b.m.tester.Test(ctx, f, size, b.options, func(done, total int64) {
			timelimit.Progress(ctx)
			tracker.Set(done, total)
		})
		return err
	})
	if err != nil {
		return diskReport{}, err
	}
	b.files.Add(d.Path, report, nil)
	log.Info("disk tested", "device", d.Path, "written", report.Written, "verified", report.Verified,
		"duration", time.Duration(report.Seconds*float64(time.Second)).Round(time.Millisecond))
	return diskReport{tested: &report}, nil
}

// finish returns the reports by disk: what was tested, or why the disk was left untouched. It returns an error if a
// disk has failed, or if none was tested.
func (b *diskBurnin) finish(ctx context.Context) (any, error) {
	result, reports := map[string]any{}, b.results.reports()
	var passed []string
	for _, path := range slices.Sorted(maps.Keys(reports)) {
		report := reports[path]
		if report.tested == nil {
			result[path] = report
			continue
		}
		result[path] = report.tested
		passed = append(passed, path)
	}
	err := b.results.err()
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	if err == nil && len(passed) == 0 {
		err = errors.New("no disk was tested")
	} else if err != nil && len(passed) > 0 {
		err = fmt.Errorf("%w; tested without errors: %s", err, strings.Join(passed, ", "))
	}
	if err := errors.Join(err, b.files.Finish()); err != nil {
		return nil, fault.CommandExecution(fmt.Errorf("burnin_disk: %w", err))
	}
	return result, nil
}
