package generic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/hardware/burnin"
	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
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

// burninDisk tests all disks. Its settings are agent_burnin_fio_disk_* in driver_info.
func (m *Manager) burninDisk(ctx context.Context, call hardware.Call) (any, error) {
	options, err := burninOptions(call, burnin.DiskOptionsOf)
	if err != nil {
		return nil, err
	}
	return m.cleaning().TestDisks(ctx, call.Node, options)
}
