package cleaning

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/agent/hardware/burnin"
	"ironroot/agent/node"
	"ironroot/agent/status"
	"ironroot/internal/test/disktest"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// stepFunc is a step.
type stepFunc func(context.Context, *node.Node) (any, error)

// newMachine returns a machine with disks and an empty sysfs.
func newMachine(t *testing.T, disks ...block.Device) *Steps {
	t.Helper()
	return newMachineOn(sysfs.Root{Path: t.TempDir()}, disks...)
}

// newMachineOn returns a machine with disks.
func newMachineOn(sys sysfs.Root, disks ...block.Device) *Steps {
	return New(Options{
		Config: config.NewLive(&config.Config{MD5Enabled: true}),
		System: sys,
		Disks:  disktest.Lister(func(context.Context) ([]block.Device, error) { return disks, nil }),
		Log:    slog.New(slog.DiscardHandler),
		Board:  (*status.Board)(nil),
	})
}

func typeOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Type
	}
	return ""
}

func paths(disks []block.Device) []string {
	var list []string
	for _, d := range disks {
		list = append(list, d.Path)
	}
	return list
}

// burninNode returns a node with settings in driver_info.
func burninNode(t *testing.T, info string) *node.Node {
	t.Helper()
	return nodeWith(t, `"driver_info": {`+info+`}`)
}

// burninDisk tests the disks of a machine with the settings of a node.
func burninDisk(ctx context.Context, t *testing.T, m *Steps, n *node.Node) (any, error) {
	t.Helper()
	options, err := burnin.DiskOptionsOf(n.DriverInfo())
	if err != nil {
		t.Fatal(err)
	}
	return m.TestDisks(ctx, n, options)
}

// eraseDisk decides about a disk and erases it.
func eraseDisk(ctx context.Context, run *diskRun, d block.Device) (diskReport, error) {
	p, err := run.decide(ctx, d, []block.Device{d})
	if err != nil {
		return diskReport{}, err
	}
	return run.eraseTargets(ctx, p)
}
