package cleaning

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ironroot/internal/pause"
	"ironroot/storage/block"
)

var (
	errUnsettled = errors.New("drivers of devices present at boot are still being loaded, some disks may be missing")
	errAppeared  = errors.New("the disk appeared during the step")
)

// failUnsettled adds an error if disks may be missing from the list because their drivers are still being loaded. As
// long as they are missing, no array is protected by its name: see checkRead.
func (r *diskRun) failUnsettled() {
	if pause.Closed(r.m.o.Settled) {
		return
	}
	r.m.o.Log.Error("disks may be missing", "err", errUnsettled)
	r.results.addErr(errUnsettled)
	r.arrays.unread = append(r.arrays.unread, errUnsettled)
}

// failAppeared lists the disks again, and adds an error for each disk that was missing when the step began and
// therefore was not erased.
func (r *diskRun) failAppeared(ctx context.Context) {
	if err := r.listAgain(ctx); err != nil {
		r.results.addErr(fmt.Errorf("disks that appeared during the step: %w", err))
	}
}

func (r *diskRun) listAgain(ctx context.Context) error {
	disks, err := r.m.o.Disks.Disks(ctx)
	if err := r.failUnread(err); err != nil {
		return err
	}
	if disks, err = r.skips.Without(disks); err != nil {
		return err
	}
	disks = slices.DeleteFunc(disks, r.isKnown)
	r.results.add(disks)
	for _, d := range r.withoutNetwork(disks) {
		r.fail(d, errAppeared)
	}
	return r.failUnusable(ctx)
}

// isKnown reports whether a disk was there when the step began. A multipath map is the same disk as its paths, which
// can be joined during the step.
func (r *diskRun) isKnown(d block.Device) bool {
	// A map whose paths are not known counts as a new disk.
	return r.known[d.Path] ||
		slices.ContainsFunc(d.Components, func(path block.Device) bool { return r.known[path.Path] })
}
