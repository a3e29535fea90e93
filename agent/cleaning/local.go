package cleaning

import (
	"context"

	"ironroot/agent/hardware/burnin"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/sysfs"
)

// eraser erases disks.
type eraser interface {
	// Recover makes a disk usable that an interrupted erase has left with a password or sanitizing.
	Recover(ctx context.Context, d block.Device, record *erase.Recorder) error
	// Decide returns the report that Erase would make.
	Decide(ctx context.Context, d block.Device, o erase.Options) (erase.Report, error)
	Erase(ctx context.Context, d block.Device, o erase.Options) error
}

// prober reads the content of disks and controllers.
type prober interface {
	// CheckZeros returns an error unless ranges of a disk are zero.
	CheckZeros(ctx context.Context, d block.Device, ranges [][2]int64, o erase.Options) error
	// Controller reads the namespaces of an NVMe controller, except the ones that are shown.
	Controller(ctx context.Context, path string, shown []uint32) (erase.Controller, error)
	// Unbound returns the storage controllers without a driver.
	Unbound(ctx context.Context) ([]block.UnboundController, error)
}

// tester overwrites and tests open disks.
type tester interface {
	Test(ctx context.Context, f burnin.Medium, size int64, o burnin.DiskOptions,
		progress func(done, total int64)) (burnin.DiskReport, error)
}

// limiter returns the time limits of operations on a disk.
type limiter interface {
	Limits(d block.Device) timelimit.Limits
}

// thisMachine implements eraser, prober, tester and limiter for the disks of this machine.
type thisMachine struct{ sys sysfs.Root }

func (l thisMachine) Recover(ctx context.Context, d block.Device, record *erase.Recorder) error {
	return erase.Recover(ctx, d, record)
}

func (l thisMachine) Decide(ctx context.Context, d block.Device, o erase.Options) (erase.Report, error) {
	return erase.Decide(ctx, l.sys, d, o)
}

func (l thisMachine) Erase(ctx context.Context, d block.Device, o erase.Options) error {
	return erase.Run(ctx, l.sys, d, o)
}

func (l thisMachine) CheckZeros(ctx context.Context, d block.Device, ranges [][2]int64, o erase.Options) error {
	return erase.CheckZeros(ctx, l.sys, d, ranges, o)
}

func (l thisMachine) Controller(ctx context.Context, path string, shown []uint32) (erase.Controller, error) {
	return erase.ReadController(ctx, path, shown)
}

func (l thisMachine) Unbound(ctx context.Context) ([]block.UnboundController, error) {
	return block.UnboundControllers(ctx, l.sys)
}

func (l thisMachine) Test(
	ctx context.Context, f burnin.Medium, size int64, o burnin.DiskOptions, progress func(done, total int64),
) (burnin.DiskReport, error) {
	return burnin.Disk(ctx, f, size, o, progress)
}

func (l thisMachine) Limits(block.Device) timelimit.Limits { return timelimit.Disk }
