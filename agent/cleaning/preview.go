package cleaning

import (
	"context"
	"errors"
	"fmt"

	"ironroot/agent/node"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// ErasePreview describes what erase_devices would do to a disk.
type ErasePreview struct {
	Disk      block.Device
	Report    erase.Report // see [erase.Decide]; without a technique if the disk would not be erased
	Untouched string       // why the step would leave the disk as it is; "" otherwise
	Err       error        // why the step would fail because of the disk; nil otherwise
}

// PreviewErase describes what erase_devices would do to each disk, with the settings of a node, which may be nil. It
// changes nothing. Arrays that the node's raid_config or skip_block_devices names are not considered. With an error
// that wraps [block.ErrUnreadable], the result contains the disks that could be described.
func (m *Machine) PreviewErase(ctx context.Context, n *node.Node) ([]ErasePreview, error) {
	if err := checkIterations(n); err != nil {
		return nil, err
	}
	skips, err := node.NewSkipList(n)
	if err != nil {
		return nil, err
	}
	all, listErr := m.o.Disks.Disks(ctx)
	if listErr != nil && !errors.Is(listErr, block.ErrUnreadable) {
		return nil, listErr
	}
	kept, err := skips.Without(all)
	if err != nil {
		return nil, err
	}
	previews := make(map[string]ErasePreview, len(all))
	for _, d := range all {
		previews[d.Path] = ErasePreview{Disk: d, Untouched: "named by skip_block_devices"}
	}
	allowed, remote, unknown := m.divideByReach(kept)
	for _, d := range remote {
		previews[d.Path] = ErasePreview{Disk: d, Untouched: networkReason(d)}
	}
	for _, d := range unknown {
		previews[d.Path] = ErasePreview{Disk: d.Device, Err: d.err}
	}
	for _, p := range m.previewLocal(ctx, n, allowed) {
		previews[p.Disk.Path] = p
	}
	list := make([]ErasePreview, 0, len(all))
	for _, d := range all {
		list = append(list, previews[d.Path])
	}
	return list, errors.Join(listErr, m.unusable(ctx))
}

// unusable returns an error that wraps [block.ErrUnreadable] if there are disks that the kernel cannot use.
func (m *Machine) unusable(ctx context.Context) error {
	disks, err := block.UnusableDisks(ctx, m.o.System)
	errs := []error{err}
	for _, d := range disks {
		errs = append(errs, fmt.Errorf("%w: %s: %w", block.ErrUnreadable, d.Path, d.Reason))
	}
	return errors.Join(errs...)
}

// previewLocal describes what erase_devices would do to disks of this machine. It asks all of them concurrently.
func (m *Machine) previewLocal(ctx context.Context, n *node.Node, disks []block.Device) []ErasePreview {
	r := &diskRun{
		m: m, flags: eraseFlagsOf(n, m.o.Config.Get().GuardSpecialFilesystems), disks: disks,
		stuck: map[string]error{},
	}
	var previews []ErasePreview
	group := goroutine.NewGroup()
	for _, unit := range r.bySubsystem(ctx) {
		for _, d := range unit {
			group.Go(func() error {
				p := r.preview(ctx, d, unit)
				r.mu.Lock()
				defer r.mu.Unlock()
				previews = append(previews, p)
				return nil
			})
		}
	}
	_ = group.Wait() // the functions return no errors
	return previews
}

// preview describes what erase_devices would do to a disk. unit are the disks of its NVMe subsystem.
func (r *diskRun) preview(ctx context.Context, d block.Device, unit []block.Device) ErasePreview {
	p, err := limitRunDisk(ctx, r, d, func(ctx context.Context, d block.Device) (p ErasePreview, err error) {
		p.Disk = d
		if p.Untouched, err = r.skipReason(ctx, d, r.flags.skipReadOnly); p.Untouched != "" || err != nil {
			return p, err
		}
		if r.flags.guard {
			if err := erase.Guard(ctx, r.m.o.System, d.Path); err != nil {
				return p, err
			}
		}
		options := r.flags.options()
		options.Siblings = r.siblings(ctx, d, unit)
		p.Report, err = r.m.eraser.Decide(ctx, d, options)
		return p, err
	})
	if err != nil {
		return ErasePreview{Disk: d, Err: err}
	}
	return p
}
