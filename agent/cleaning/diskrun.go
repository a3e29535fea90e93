package cleaning

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"ironroot/agent/config"
	"ironroot/agent/node"
	"ironroot/agent/softraid"
	"ironroot/agent/status"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/raid"
)

// diskRun is one run of a step that erases or overwrites disks. It collects reports and errors, so that a disk that
// fails does not keep the step from the others.
type diskRun struct {
	m        *Steps
	phrase   string // of the log for a disk that failed
	flags    eraseFlags
	arrays   namedArrays
	skips    *node.SkipList
	unused   pciAddresses
	disks    []block.Device  // those to erase or overwrite
	skipped  map[string]bool // paths of the disks that skip_block_devices names
	known    map[string]bool // paths of all disks that were there at the start, whether or not they can be erased
	results  *results
	progress *status.Plan // of the step; nil before announce
	kept     keptArrays
	stuck    sync.Map // errors of disks with which the kernel is still busy, by device path
}

// startDiskRun lists the disks to erase or overwrite. It checks all of them for shared file systems before the first is
// written; one that is found fails the step. A disk that cannot be described or read is an error of that disk alone.
// The phrase is logged for each disk that fails. With the name of a step, the evidence of what it erases is stored.
func (m *Steps) startDiskRun(ctx context.Context, n *node.Node, phrase, step string) (*diskRun, error) {
	c := m.o.Config.Get()
	r := m.newDiskRun(n, phrase, step)
	var err error
	if r.arrays.Rules, err = softraid.RulesOf(n); err != nil {
		return nil, err
	}
	if r.unused, err = unusedControllers(c.SkipStorageControllers, n); err != nil {
		return nil, err
	}
	r.failUnsettled()
	all, err := m.o.Disks.Disks(ctx)
	if err := r.failUnread(err); err != nil {
		return nil, err
	}
	if r.skips, err = node.NewSkipList(n); err != nil {
		return nil, err
	}
	disks, err := r.skips.Without(all)
	if err != nil {
		return nil, err
	}
	r.results.add(all)
	r.recordSkipped(all, disks)
	disks = r.withoutNetwork(disks)
	if err := r.failUnusable(ctx); err != nil {
		return nil, err
	}
	for _, d := range all {
		r.known[d.Path] = true
	}
	disks = r.recoverDisks(ctx, disks)
	if r.arrays.HasProtected() {
		r.readMembers(ctx, all)
	}
	r.warnUnmatched()
	if err := r.guard(ctx, disks); err != nil {
		r.storeEvidence(ctx, err)
		return nil, err
	}
	r.failUnidentified()
	return r, nil
}

// newDiskRun returns a run without disks.
func (m *Steps) newDiskRun(n *node.Node, phrase, step string) *diskRun {
	c := m.o.Config.Get()
	r := &diskRun{
		m: m, phrase: phrase, flags: eraseFlagsOf(n, c), known: map[string]bool{}, skipped: map[string]bool{},
	}
	r.flags.step, r.flags.wait = step, WaitOf(c)
	r.results = newResults(n, step, r.flags)
	return r
}

// WaitOf returns the limits of the wait for holders of a disk.
func WaitOf(c *config.Config) erase.Wait {
	return erase.Wait{
		Interval: c.DiskPartitioner.CheckDeviceInterval, Retries: c.DiskPartitioner.CheckDeviceMaxRetries,
	}
}

// lastFirst returns the disks in reverse order, but arrays and maps before the disks that they are made of: NVMe disks
// have larger device numbers.
func (r *diskRun) lastFirst() []block.Device {
	disks := slices.Clone(r.disks)
	slices.Reverse(disks)
	layer := func(d block.Device) int {
		switch {
		case d.IsArray():
			return 0
		case d.Type == "mpath":
			return 1
		}
		return 2
	}
	slices.SortStableFunc(disks, func(a, b block.Device) int { return layer(a) - layer(b) })
	return disks
}

// limitRunDisk calls a function that erases or reads a disk, with the time limits of the disk. While the kernel is busy
// with a disk, later calls for it in the same run fail.
func limitRunDisk[T any](
	ctx context.Context, r *diskRun, d block.Device, call func(context.Context, block.Device) (T, error),
) (value T, err error) {
	busy, _ := r.stuck.Load(d.Path)
	if err, ok := busy.(error); ok {
		return value, err
	}
	value, err = timelimit.Do(ctx, r.m.limiter.Limits(d), func(ctx context.Context) (T, error) { return call(ctx, d) })
	if errors.Is(err, timelimit.ErrStuck) {
		r.stuck.Store(d.Path, err)
	}
	return value, err
}

// membersOn reads the members of arrays on a disk and its partitions, with the limits of limitRunDisk.
func (r *diskRun) membersOn(ctx context.Context, d block.Device) ([]raid.Member, error) {
	return limitRunDisk(ctx, r, d, func(ctx context.Context, d block.Device) ([]raid.Member, error) {
		return raid.Members(ctx, r.m.o.System, d)
	})
}

// do erases or overwrites one disk with work and records the result.
func (r *diskRun) do(
	ctx context.Context, d block.Device, work func(context.Context, block.Device) (diskReport, error),
) {
	report, err := limitRunDisk(ctx, r, d, work)
	if err != nil {
		r.fail(d, err)
	}
	r.record(d, report)
	r.finishItem(d.Path, d)
}

func (r *diskRun) fail(d block.Device, err error) {
	r.m.o.Log.Error(r.phrase, "device", d.Path, "err", err)
	r.results.fail(d, err)
}

func (r *diskRun) record(d block.Device, report diskReport) {
	for _, path := range slices.Sorted(maps.Keys(report.Untouched)) {
		r.m.o.Log.Warn("device left untouched", "device", path, "reason", report.Untouched[path])
	}
	r.results.record(d, report)
}
