package generic

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ironroot/storage/block"
)

// namedBySkipControllers is the reason why a controller that the operator does not use is not examined.
const namedBySkipControllers = "not examined: named by skip_storage_controllers"

// examineUnbound adds an error for each storage controller without a driver, because its disks are not known.
// Controllers that the operator or noteOnly names are part of the result.
func (r *diskRun) examineUnbound(ctx context.Context) {
	controllers, err := r.m.unbound(ctx)
	if err != nil {
		r.m.o.Log.Error("storage controllers not examined", "err", err)
		r.failures.add(err)
	}
	for _, c := range controllers {
		d := block.Device{Name: c.Address, Path: c.Address}
		description := fmt.Sprintf("storage controller %s of class %s", c.ID, c.Class)
		switch {
		case r.isUnused(c.Address):
			r.record(d, untouched(d, description+" "+namedBySkipControllers))
		case noteOnly(c.Class):
			r.record(d, untouched(d, description+" not examined: no driver"))
		default:
			r.fail(d, fmt.Errorf("%s has no driver, so its disks are not known: see the kernel's log for a failed "+
				"driver, build the ramdisk with the module, or name the address in skip_storage_controllers",
				description))
		}
	}
}

// noteOnly reports whether the step succeeds although a controller of that PCI class has no driver. The ramdisk has no
// drivers for IDE controllers (0x0101). Others (0x0180) can be anything.
func noteOnly(class string) bool {
	return strings.HasPrefix(class, "0x0101") || strings.HasPrefix(class, "0x0180")
}

// isUnused reports whether the option skip_storage_controllers names a PCI address, with or without its domain.
func (r *diskRun) isUnused(address string) bool {
	return address != "" && slices.ContainsFunc(r.m.o.Config.Get().SkipStorageControllers, func(entry string) bool {
		entry = strings.ToLower(strings.TrimSpace(entry))
		return entry == address || "0000:"+entry == address
	})
}
