package cleaning

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// unattachedPolicy says how an erase step handles unattached namespaces of a private NVMe subsystem.
type unattachedPolicy bool

const (
	unattachedNoted unattachedPolicy = false // they are part of the result
	unattachedFail  unattachedPolicy = true  // they are an error
)

// examineControllers reads from each NVMe controller the namespaces that no disk of the step shows: the unattached
// ones, and attached ones without a block device. It is called after the disks were erased.
func (r *diskRun) examineControllers(ctx context.Context, policy unattachedPolicy) {
	controllers, err := block.NVMeControllers(ctx, r.m.o.System)
	if err != nil {
		r.m.o.Log.Error("NVMe controllers not examined", "err", err)
		r.results.addErr(err)
	}
	for _, c := range controllers {
		if r.unused.has(c.Address) {
			d := block.Device{Name: c.Name, Path: c.Path}
			r.record(d, untouched(d, namedBySkipControllers))
			continue
		}
		r.examineController(ctx, c, policy)
	}
}

// wasErased reports whether the step erased the disk of a namespace, or tried to.
func (r *diskRun) wasErased(namespace block.NVMeNamespace) bool {
	report, ok := r.results.reports()[namespace.Path]
	return ok && report.Untouched[namespace.Path] == ""
}

// examineController examines a controller. If it has namespaces and none of them was erased, the operator protects
// them: the others are left untouched as well, and are not an error. The erase of a namespace reports the unattached
// ones itself.
func (r *diskRun) examineController(ctx context.Context, c block.NVMeController, policy unattachedPolicy) {
	d := block.Device{Name: c.Name, Path: c.Path}
	var shown []uint32
	for _, namespace := range c.Namespaces {
		shown = append(shown, namespace.ID)
	}
	found, err := limitRunDisk(ctx, r, d, func(ctx context.Context, d block.Device) (erase.Controller, error) {
		return r.m.prober.Controller(ctx, d.Path, shown)
	})
	erased := slices.ContainsFunc(c.Namespaces, r.wasErased)
	switch {
	case len(c.Namespaces) > 0 && !erased:
		r.noteProtected(d, found, err)
	case err != nil:
		r.fail(d, err)
	case found.NoDevice != "":
		r.fail(d, fmt.Errorf("the kernel has no block device for %s of this NVMe controller", found.NoDevice))
	case erased:
	case policy == unattachedFail && found.Remains != nil:
		r.fail(d, found.Remains)
	case found.NotErased != "":
		r.record(d, untouched(d, found.NotErased))
	default:
		r.m.o.Log.Info("NVMe controller has no namespaces", "device", d.Path)
	}
}

// noteProtected records the namespaces of a controller that no disk shows, if its disks are protected.
func (r *diskRun) noteProtected(d block.Device, found erase.Controller, err error) {
	var notes []string
	if err != nil {
		notes = append(notes, fmt.Sprintf("namespaces without a block device, if any, are not known: %v", err))
	}
	if found.NoDevice != "" {
		notes = append(notes, "not erased: "+found.NoDevice+", for which the kernel has no block device")
	}
	if found.NotErased != "" {
		notes = append(notes, found.NotErased)
	}
	if len(notes) > 0 {
		r.record(d, untouched(d, strings.Join(notes, "; ")))
	}
}
