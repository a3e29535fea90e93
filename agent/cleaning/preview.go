package cleaning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ironroot/agent/node"
	"ironroot/agent/softraid"
	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// PreviewErase returns the decisions of erase_devices about all disks, with the settings of a node, which may be nil.
// It changes nothing. With an error that wraps [block.ErrUnreadable], the result contains the disks that could be
// described.
func (m *Steps) PreviewErase(ctx context.Context, n *node.Node) ([]Decision, error) {
	if err := checkIterations(n); err != nil {
		return nil, err
	}
	arrays, err := softraid.RulesOf(n)
	if err != nil {
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
	rest, err := skips.Without(all)
	if err != nil {
		return nil, err
	}
	r := m.newDiskRun(n, "disk not examined", fullErase)
	decisions := make(map[string]Decision, len(all))
	for _, d := range skippedDisks(all, rest) {
		r.skipped[d.Path] = true
		decisions[d.Path] = Decision{Disk: d, Untouched: skippedReason}
	}
	allowed, remote, unknown := m.divideByReach(rest)
	for _, d := range remote {
		decisions[d.Path] = Decision{Disk: d, Untouched: networkReason(d)}
	}
	for _, d := range unknown {
		decisions[d.Path] = Decision{Disk: d.Device, Err: d.err}
	}
	r.arrays.Rules, r.skips = arrays, skips
	if !pause.Closed(m.o.Settled) {
		listErr = errors.Join(listErr, fmt.Errorf("%w: %w", block.ErrUnreadable, errUnsettled))
	}
	if listErr != nil {
		r.arrays.unread = append(r.arrays.unread, listErr)
	}
	if arrays.HasProtected() {
		r.readMembers(ctx, all)
	}
	for i, err := range r.checkAll(ctx, allowed) {
		if err != nil {
			decisions[allowed[i].Path] = Decision{Disk: allowed[i], Err: err}
			continue
		}
		r.disks = append(r.disks, allowed[i])
	}
	for _, a := range r.findKept(ctx, n) {
		r.kept.keep(a)
		if i := slices.IndexFunc(r.disks, func(d block.Device) bool { return d.Path == a.Running }); i >= 0 {
			decisions[a.Running] = Decision{
				Disk: r.disks[i], Untouched: "array that Ironic created: only its content is erased",
			}
			r.disks = slices.Delete(r.disks, i, i+1)
		}
	}
	for path, decision := range r.decideAll(ctx).decisions {
		decisions[path] = decision.preview()
	}
	ends := r.arrays.conflict(r.isSkipped) != nil ||
		slices.ContainsFunc(slices.Collect(maps.Values(decisions)), Decision.endsStep)
	for path, decision := range decisions {
		if ends && decision.Err == nil && decision.Untouched == "" {
			decisions[path] = Decision{Disk: decision.Disk, Untouched: "the step ends before the first write"}
		}
	}
	list := make([]Decision, 0, len(all))
	for _, d := range all {
		list = append(list, decisions[d.Path])
	}
	return list, errors.Join(listErr, m.unusable(ctx))
}

// endsStep reports whether the step ends before the first write because of the disk.
func (p Decision) endsStep() bool { return p.isConflict() || errors.Is(p.Err, erase.ErrProtected) }

// checkAll returns the errors of the checks that a step makes of each disk before it decides, in the order of the
// disks.
func (r *diskRun) checkAll(ctx context.Context, disks []block.Device) []error {
	errs := make([]error, len(disks))
	group := goroutine.NewGroup()
	for i, d := range disks {
		group.Go(func() error {
			errs[i] = r.guardDisk(ctx, d)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	for i, d := range disks {
		errs[i] = cmp.Or(errs[i], r.skips.CheckRead(d))
	}
	return errs
}

// preview completes a decision with the error that the erase would return, and with what it leaves of a disk.
func (p Decision) preview() Decision {
	if p.Err == nil {
		p.Err = p.refused
	}
	if p.Err != nil {
		p.Report = erase.Report{}
	}
	if p.Err == nil && p.Untouched == "" && !p.isWhole(p.Disk) {
		var reasons []string
		for _, path := range slices.Sorted(maps.Keys(p.untouched)) {
			reasons = append(reasons, path+": "+p.untouched[path])
		}
		p.Untouched = strings.Join(reasons, "; ")
	}
	return p
}

// unusable returns an error that wraps [block.ErrUnreadable] if there are disks that the kernel cannot use.
func (m *Steps) unusable(ctx context.Context) error {
	disks, err := block.UnusableDisks(ctx, m.o.System)
	errs := []error{err}
	for _, d := range disks {
		errs = append(errs, fmt.Errorf("%w: %s: %w", block.ErrUnreadable, d.Path, d.Reason))
	}
	return errors.Join(errs...)
}
