package generic

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
	"ironroot/agent/hardware"
	"ironroot/agent/hardware/burnin"
	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// burninCPU tests the processors. Its settings are agent_burnin_cpu_* in driver_info.
func (m *Manager) burninCPU(ctx context.Context, call hardware.Call) (any, error) {
	return burn(ctx, m, call, "burnin_cpu", burnin.CPUOptionsOf, burnin.CPU)
}

// burninMemory tests the memory. Its settings are agent_burnin_vm_* in driver_info.
func (m *Manager) burninMemory(ctx context.Context, call hardware.Call) (any, error) {
	return burn(ctx, m, call, "burnin_memory", burnin.MemoryOptionsOf, burnin.Memory)
}

// burninNetwork sends data to a partner and receives data from it. Its settings are agent_burnin_fio_network_* in
// driver_info.
func (m *Manager) burninNetwork(ctx context.Context, call hardware.Call) (any, error) {
	if m.o.Journal != nil && call.Node != nil {
		if text, ok := call.Node.DriverInfo()[burnin.NetworkBackend].(string); ok {
			m.o.Journal.RedactURLs(text)
		}
	}
	return burn(ctx, m, call, "burnin_network", burnin.NetworkOptionsOf, burnin.Network)
}

// burninGPU fails: the drivers and libraries of graphics processors are not part of the ramdisk.
func (m *Manager) burninGPU(_ context.Context, call hardware.Call) (any, error) {
	return nil, fault.CommandExecution(errors.New("burnin_gpu: not supported: the ramdisk has no driver for GPUs"))
}

// burn runs a test with the options in driver_info of the node.
func burn[Options, Report any](
	ctx context.Context, m *Manager, call hardware.Call, step string,
	parse func(map[string]any) (Options, error),
	test func(context.Context, burnin.Machine, Options) (Report, error),
) (any, error) {
	options, err := burninOptions(call, parse)
	if err != nil {
		return nil, err
	}
	defer m.trackTest(ctx, step, time.Now(), durationOf(options))()
	report, err := test(ctx, burnin.Machine{System: m.o.System, Log: m.o.Log}, options)
	if errors.Is(err, burnin.ErrPairing) {
		return nil, fault.Cleaning("%s: %w", step, err)
	} else if err != nil {
		return nil, fault.CommandExecution(fmt.Errorf("%s: %w", step, err))
	}
	return report, nil
}

// durationOf returns how long a test takes by its options, 0 if that depends on another node.
func durationOf(options any) time.Duration {
	switch o := options.(type) {
	case burnin.CPUOptions:
		return o.Timeout
	case burnin.MemoryOptions:
		return o.Timeout
	}
	return 0
}

// tested names what burn-in steps without disks test.
var tested = map[string]string{"burnin_cpu": "processors", "burnin_memory": "memory", "burnin_network": "network"}

// trackTest shows the progress of a test that takes a known time, 0 for an unknown one, until stop is called.
func (m *Manager) trackTest(ctx context.Context, step string, started time.Time, takes time.Duration) (stop func()) {
	tracker := m.track("testing", tested[step])
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	goroutine.Go(func() error {
		interval := min(max(takes/200, time.Second), time.Minute)
		for takes > 0 && pause.For(ctx, interval) == nil {
			percent := min(100*time.Since(started).Seconds()/takes.Seconds(), 99) // a test ends after its last check
			tracker.SetPercent("", &percent)
		}
		return nil
	}, func(error) { close(ended) }) // the test does not depend on its display
	return func() {
		cancel()
		<-ended
		tracker.End()
	}
}

// burninOptions reads the options of a burn-in step.
func burninOptions[Options any](
	call hardware.Call, parse func(map[string]any) (Options, error),
) (options Options, err error) {
	info := map[string]any{}
	if call.Node != nil {
		info = call.Node.DriverInfo()
	}
	if options, err = parse(info); errors.Is(err, burnin.ErrPairing) {
		return options, fault.Cleaning("%w", err)
	} else if err != nil {
		return options, fault.CommandExecution(err)
	}
	return options, nil
}

// burninDisk overwrites and tests all disks in parallel, except those that erase_devices protects and those with
// members of protected arrays. Its settings are agent_burnin_fio_disk_* in driver_info. As with erase_devices, a
// storage controller without a driver is an error.
func (m *Manager) burninDisk(ctx context.Context, call hardware.Call) (any, error) {
	options, err := burninOptions(call, burnin.DiskOptionsOf)
	if err != nil {
		return nil, err
	}
	run, err := m.startDiskRun(ctx, call, "disk not tested", "")
	if err != nil {
		return nil, notTested(err)
	}
	results, err := burnin.NewDiskResults(options)
	if err != nil {
		return nil, fault.CommandExecution(fmt.Errorf("burnin_disk: %w", err))
	}
	b := &diskBurnin{diskRun: run, options: options, results: results}
	run.announce()
	group := goroutine.NewGroup()
	for _, d := range run.disks {
		group.Go(func() error {
			run.do(ctx, d, b.testDisk)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors: run collects them
	run.examineUnbound(ctx)
	return b.finish(ctx)
}

// notTested returns the error of a list of disks as that of a step that does not erase. That of a shared file system
// keeps its type.
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
	results *burnin.DiskResults
}

// testDisk tests one disk, unless it must be left as it is.
func (b *diskBurnin) testDisk(ctx context.Context, d block.Device) (_ diskReport, err error) {
	var report burnin.DiskReport
	defer func() {
		if err != nil {
			b.results.Add(d.Path, report, err)
		}
	}()
	if reason, err := b.skipReason(ctx, d, b.flags.skipReadOnly); err != nil || reason != "" {
		return untouched(d, reason), err
	}
	protected, err := b.protectedMembers(ctx, d)
	if err != nil {
		return diskReport{}, err
	}
	if len(protected) > 0 {
		reasons := slices.Sorted(maps.Values(protected))
		return untouched(d, strings.Join(reasons, ", ")), nil
	}
	log := b.m.o.Log
	log.Info("testing disk", "device", d.Path, "bytes", d.Size)
	tracker := b.m.track("testing disk", d.Path)
	defer tracker.End()
	err = erase.Exclusive(ctx, b.m.o.System, d, b.flags.wait, func(f *os.File, size int64) (err error) {
		report, err = b.m.testDisk(ctx, f, size, b.options, func(done, total int64) {
			timelimit.Progress(ctx)
			tracker.Set(done, total)
		})
		return err
	})
	if err != nil {
		return diskReport{}, err
	}
	b.results.Add(d.Path, report, nil)
	log.Info("disk tested", "device", d.Path, "written", report.Written, "verified", report.Verified,
		"duration", time.Duration(report.Seconds*float64(time.Second)).Round(time.Millisecond))
	return diskReport{tested: &report}, nil
}

// finish returns the reports by disk: what was tested, or why the disk was left untouched. It returns an error if a
// disk has failed, or if none was tested.
func (b *diskBurnin) finish(ctx context.Context) (any, error) {
	result := map[string]any{}
	var passed []string
	for _, path := range slices.Sorted(maps.Keys(b.reports)) {
		report := b.reports[path]
		if report.tested == nil {
			result[path] = report
			continue
		}
		result[path] = report.tested
		passed = append(passed, path)
	}
	err := b.failures.err()
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	if err == nil && len(passed) == 0 {
		err = errors.New("no disk was tested")
	} else if err != nil && len(passed) > 0 {
		err = fmt.Errorf("%w; tested without errors: %s", err, strings.Join(passed, ", "))
	}
	if err := errors.Join(err, b.results.Finish()); err != nil {
		return nil, fault.CommandExecution(fmt.Errorf("burnin_disk: %w", err))
	}
	return result, nil
}
