package generic

import (
	"context"
	"fmt"
	"slices"

	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// unattachedPolicy is how an erase step handles unattached namespaces of a private NVMe subsystem.
type unattachedPolicy bool

const (
	unattachedNoted unattachedPolicy = false // they are part of the result
	unattachedFail  unattachedPolicy = true  // they are an error
)

// examineControllers reads from each NVMe controller the namespaces that no disk of the step shows: the unattached
// ones, and attached ones without a block device. It is called after the disks were erased.
func (r *eraseRun) examineControllers(ctx context.Context, policy unattachedPolicy) {
	controllers, err := r.m.o.System.NVMeControllers(ctx)
	if err != nil {
		r.m.o.Log.Error("NVMe controllers not examined", "err", err)
		r.failures.add(err)
	}
	for _, c := range controllers {
		if !slices.ContainsFunc(c.Namespaces, r.examined) {
			r.examineController(ctx, c, policy)
		}
	}
}

// examined reports whether the step erased a disk, or tried to.
func (r *eraseRun) examined(path string) bool {
	report, ok := r.reports[path]
	return ok && report.Untouched[path] == ""
}

// examineController examines a controller. If it has namespaces and none of them was erased, the operator protects
// them: the others are left untouched as well, and are not an error. The erase of a namespace reports the unattached
// ones itself.
func (r *eraseRun) examineController(ctx context.Context, c block.NVMeController, policy unattachedPolicy) {
	d := block.Device{Name: c.Name, Path: c.Path}
	found, err := bounded(ctx, r, d, func(ctx context.Context, d block.Device) (erase.Controller, error) {
		return r.m.controller(ctx, d.Path)
	})
	protected := len(c.Namespaces) > 0
	switch {
	case protected && err != nil:
		r.record(d, untouched(d, fmt.Sprintf("unattached namespaces, if any, are not known: %v", err)))
	case err != nil:
		r.fail(d, err)
	case !protected && found.Attached != "":
		r.fail(d, fmt.Errorf("the kernel has no block device for %s of this NVMe controller", found.Attached))
	case !protected && policy == unattachedFail && found.Remains != nil:
		r.fail(d, found.Remains)
	case found.NotErased != "":
		r.record(d, untouched(d, found.NotErased))
	case !protected:
		r.m.o.Log.Info("NVMe controller has no namespaces", "device", d.Path)
	}
}
