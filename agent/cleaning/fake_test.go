package cleaning

import (
	"context"

	"ironroot/agent/hardware/burnin"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// fakeDisks implements eraser, prober, tester and limiter. Methods whose function is nil use this machine.
type fakeDisks struct {
	thisMachine

	recover    func(ctx context.Context, d block.Device, record *erase.Recorder) error
	decide     func(ctx context.Context, d block.Device, o erase.Options) (erase.Report, error)
	erase      func(ctx context.Context, d block.Device, o erase.Options) error
	checkZeros func(ctx context.Context, d block.Device, ranges [][2]int64, o erase.Options) error
	controller func(ctx context.Context, path string, shown []uint32) (erase.Controller, error)
	unbound    func(ctx context.Context) ([]block.UnboundController, error)
	test       func(ctx context.Context, f burnin.Medium, size int64, o burnin.DiskOptions,
		progress func(done, total int64)) (burnin.DiskReport, error)
	limits func(d block.Device) timelimit.Limits
}

// fake returns the fake of a machine. The first call makes the machine use it.
func fake(m *Steps) *fakeDisks {
	if f, ok := m.eraser.(*fakeDisks); ok {
		return f
	}
	f := &fakeDisks{thisMachine: thisMachine{m.o.System}}
	m.eraser, m.prober, m.tester, m.limiter = f, f, f, f
	return f
}

func (f *fakeDisks) Recover(ctx context.Context, d block.Device, record *erase.Recorder) error {
	if f.recover != nil {
		return f.recover(ctx, d, record)
	}
	return f.thisMachine.Recover(ctx, d, record)
}

func (f *fakeDisks) Decide(ctx context.Context, d block.Device, o erase.Options) (erase.Report, error) {
	if f.decide != nil {
		return f.decide(ctx, d, o)
	}
	return f.thisMachine.Decide(ctx, d, o)
}

func (f *fakeDisks) Erase(ctx context.Context, d block.Device, o erase.Options) error {
	if f.erase != nil {
		return f.erase(ctx, d, o)
	}
	return f.thisMachine.Erase(ctx, d, o)
}

func (f *fakeDisks) CheckZeros(ctx context.Context, d block.Device, ranges [][2]int64, o erase.Options) error {
	if f.checkZeros != nil {
		return f.checkZeros(ctx, d, ranges, o)
	}
	return f.thisMachine.CheckZeros(ctx, d, ranges, o)
}

func (f *fakeDisks) Controller(ctx context.Context, path string, shown []uint32) (erase.Controller, error) {
	if f.controller != nil {
		return f.controller(ctx, path, shown)
	}
	return f.thisMachine.Controller(ctx, path, shown)
}

func (f *fakeDisks) Unbound(ctx context.Context) ([]block.UnboundController, error) {
	if f.unbound != nil {
		return f.unbound(ctx)
	}
	return f.thisMachine.Unbound(ctx)
}

func (f *fakeDisks) Test(
	ctx context.Context, m burnin.Medium, size int64, o burnin.DiskOptions, progress func(done, total int64),
) (burnin.DiskReport, error) {
	if f.test != nil {
		return f.test(ctx, m, size, o, progress)
	}
	return f.thisMachine.Test(ctx, m, size, o, progress)
}

func (f *fakeDisks) Limits(d block.Device) timelimit.Limits {
	if f.limits != nil {
		return f.limits(d)
	}
	return f.thisMachine.Limits(d)
}
