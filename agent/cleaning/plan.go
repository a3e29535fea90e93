package cleaning

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"ironroot/agent/node"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// Decision describes what a step does to a disk.
type Decision struct {
	Disk      block.Device
	Untouched string       // why the step leaves the disk as it is; "" otherwise
	Report    erase.Report // see [erase.Decide]; without a technique unless erase_devices erases the whole disk
	Err       error        // why the step fails because of the disk; nil otherwise

	division
	unit     []block.Device // NVMe namespaces that are erased one after the other, including the disk
	siblings []block.Device // namespaces that a sanitize of the disk may erase, too
	refused  error          // of erase.Decide. The erase fails with it, so that the evidence has its target
	sequence string         // number of the disk in the kernel
}

// division divides a disk into the devices that a step erases and the ones that it leaves as they are.
type division struct {
	targets   []block.Device
	untouched map[string]string // reasons by device path
	hasKept   bool              // a member of an array that Ironic created is kept
}

// isWhole reports whether the step erases a disk as a whole.
func (p division) isWhole(d block.Device) bool {
	return len(p.targets) == 1 && p.targets[0].Path == d.Path
}

// plan has the decisions of a step about its disks, by device path.
type plan struct {
	decisions map[string]Decision
	units     [][]block.Device // see byController
}

// conflict is the error of a disk that keeps the whole step from beginning.
type conflict struct{ error }

// Unwrap returns the error.
func (c conflict) Unwrap() error { return c.error }

// errChanged is the error of a disk that is not as it was when the step decided about it.
var errChanged = errors.New("changed since the step was planned")

// plan decides what the step does to each disk, and stops the arrays that it keeps. It returns an error if a conflict
// keeps the step from beginning. Then nothing was written, and the evidence is stored.
func (r *diskRun) plan(ctx context.Context, n *node.Node) (plan, error) {
	r.prepareArrays(ctx, n)
	p := r.decideAll(ctx)
	var errs []error
	for _, d := range r.disks {
		errs = append(errs, p.decisions[d.Path].Err)
	}
	if !r.failConflict(errs) {
		return p, nil
	}
	// No array has to be started again: a conflict is about protected arrays, beside which the step keeps no others and
	// has stopped none, see findCreated.
	_, err := r.finish()
	r.storeEvidence(ctx, err)
	return plan{}, err
}

// failConflict records the errors of the disks, in their order, if a conflict keeps the whole step from beginning.
func (r *diskRun) failConflict(errs []error) bool {
	known, problem := slices.ContainsFunc(errs, isConflict), r.arrays.conflict(r.isSkipped)
	if !known && problem == nil {
		return false
	}
	for i, d := range r.disks {
		if errs[i] != nil {
			r.fail(d, errs[i])
		}
	}
	if !known { // no disk that the step would write to has the name
		r.m.o.Log.Error(r.phrase, "err", problem)
		r.results.addErr(problem)
	}
	return true
}

// isConflict reports whether the decision keeps the whole step from beginning.
func (p Decision) isConflict() bool { return isConflict(p.Err) }

func isConflict(err error) bool { return errors.As(err, new(conflict)) }

// isSkipped reports whether skip_block_devices names a disk.
func (r *diskRun) isSkipped(path string) bool { return r.skipped[path] }

// decideAll decides about all disks of the step. It examines them concurrently.
func (r *diskRun) decideAll(ctx context.Context) plan {
	p := plan{decisions: map[string]Decision{}, units: r.byController(ctx)}
	var mu sync.Mutex // of the decisions
	group := goroutine.NewGroup()
	for _, unit := range p.units {
		for _, d := range unit {
			group.Go(func() error {
				decision := r.decideLimited(ctx, d, unit)
				mu.Lock()
				defer mu.Unlock()
				p.decisions[d.Path] = decision
				return nil
			})
		}
	}
	_ = group.Wait() // the functions return no errors
	errs := make([]error, len(r.disks))
	for i, d := range r.disks {
		errs[i] = p.decisions[d.Path].Err
	}
	shortenAmbiguous(errs)
	return p
}

// decideLimited is decide with the time limits of the disk. If decide fails, so does the disk.
func (r *diskRun) decideLimited(ctx context.Context, d block.Device, unit []block.Device) Decision {
	p, err := limitRunDisk(ctx, r, d, func(ctx context.Context, d block.Device) (Decision, error) {
		return r.decide(ctx, d, unit)
	})
	if err != nil {
		return Decision{Disk: d, Err: err, unit: unit}
	}
	return p
}

// decide decides what the step does to a disk. It changes nothing.
func (r *diskRun) decide(ctx context.Context, d block.Device, unit []block.Device) (p Decision, err error) {
	p.Disk, p.unit = d, unit
	// As in ironic-python-agent, the other steps skip a read-only disk regardless of agent_erase_skip_read_only.
	skipReadOnly := r.flags.step != fullErase || r.flags.skipReadOnly
	if p.Untouched, err = r.skipReason(ctx, d, skipReadOnly); err != nil || p.Untouched != "" {
		return p, err
	}
	if p.sequence, err = r.sequence(d); err != nil {
		return p, err
	}
	if p.division, err = r.divide(ctx, d); err != nil || r.flags.step != fullErase {
		return p, err
	}
	p.siblings = r.siblings(ctx, d, unit)
	if p.isWhole(d) {
		options := r.flags.options()
		options.Siblings = p.siblings
		p.Report, p.refused = r.m.eraser.Decide(ctx, d, options)
	}
	return p, nil
}

// sequence returns the number that the kernel gives each new disk, "" if it has none. Another disk under the same name
// has another number.
func (r *diskRun) sequence(d block.Device) (string, error) {
	data, err := r.m.o.System.Files.Read(r.m.o.System.Sys("block", d.Name, "diskseq"))
	if errors.Is(err, fs.ErrNotExist) { // before Linux 5.15
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// divide divides a disk. If a partition is a member of a protected array, the step erases the other partitions. If one
// is a member of an array that Ironic created and that the step keeps, it erases each partition, see eraseTarget. If a
// member belongs to another array that Ironic created, divide returns an error.
func (r *diskRun) divide(ctx context.Context, d block.Device) (p division, err error) {
	if p.untouched, err = r.protectedMembers(ctx, d); err != nil {
		return p, err
	}
	if p.hasKept, err = r.kept.onDisk(ctx, r.m.o.System, d); err != nil {
		return p, err
	}
	p.targets = []block.Device{d}
	if len(p.untouched) == 0 && !p.hasKept {
		return p, nil
	}
	if p.targets, err = r.neighbours(ctx, d, p.untouched); err != nil {
		return p, err
	}
	if p.hasKept {
		p.untouched[d.Path] = "partition table of a disk with an array that Ironic created"
	} else if p.untouched[d.Path] == "" {
		p.untouched[d.Path] = "partition table of a disk with a protected array, " +
			"and the space outside of its partitions"
	}
	return p, nil
}

// act erases a disk as it was decided. A decision that no longer holds is an error of the disk, before a write.
func (r *diskRun) act(ctx context.Context, planned Decision) {
	r.do(ctx, planned.Disk, func(ctx context.Context, d block.Device) (diskReport, error) {
		if planned.Err != nil {
			return diskReport{}, planned.Err
		}
		now, err := r.decide(ctx, d, planned.unit)
		if err == nil {
			err = planned.check(now)
		}
		switch {
		case err != nil:
			return diskReport{}, err
		case now.Untouched != "":
			return untouched(d, now.Untouched), nil
		}
		return r.eraseTargets(ctx, now)
	})
}

// check returns an error unless the decision still holds. The erase itself reports why it is refused. If the drive
// could not be asked before and can be now, its own erase takes the place of an overwrite, or of a refusal. The
// technique of a namespace depends on its siblings, which can be erased already.
func (p Decision) check(now Decision) error {
	same := func(a, b block.Device) bool { return a.Path == b.Path && a.Size == b.Size }
	switch {
	case p.sequence != now.sequence:
		return fmt.Errorf("%w: another disk has this name", errChanged)
	case p.Untouched != now.Untouched:
		return fmt.Errorf("%w: got %q as the reason to leave it, want %q", errChanged, now.Untouched, p.Untouched)
	case !slices.EqualFunc(p.targets, now.targets, same) || !maps.Equal(p.untouched, now.untouched):
		return fmt.Errorf("%w: other partitions have to be erased", errChanged)
	case now.refused == nil && p.refused == nil && now.Report.Technique != p.Report.Technique &&
		p.Report.Technique != erase.Overwrite && len(p.unit) < 2:
		return fmt.Errorf("%w: got technique %q, want %q", errChanged, now.Report.Technique, p.Report.Technique)
	}
	return nil
}
