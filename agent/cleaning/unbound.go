package cleaning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ironroot/agent/node"
	"ironroot/storage/block"
)

// skipControllers is the name of the option, and of the key of driver_info, that names unused storage controllers.
const skipControllers = "skip_storage_controllers"

// namedBySkipControllers is the reason why a controller that the operator does not use is not examined.
const namedBySkipControllers = "not examined: named by " + skipControllers

// examineUnbound adds an error for each storage controller without a driver, because its disks are not known.
// Controllers that the operator names, and those without disks, are part of the result.
func (r *diskRun) examineUnbound(ctx context.Context) {
	controllers, err := r.m.prober.Unbound(ctx)
	if err != nil {
		r.m.o.Log.Error("storage controllers not examined", "err", err)
		r.results.addErr(err)
	}
	for _, c := range controllers {
		d := block.Device{Name: c.Address, Path: c.Address}
		description := fmt.Sprintf("storage controller %s of class %s", c.ID, c.Class)
		if r.unused.has(c.Address) {
			r.record(d, untouched(d, description+" "+namedBySkipControllers))
			continue
		}
		reason, err := r.m.withoutDisks(c)
		if err != nil {
			r.fail(d, fmt.Errorf("%s %w: see the kernel's log for a failed driver, build the ramdisk with the module, "+
				"or name the address in %s", description, err, skipControllers))
			continue
		}
		r.record(d, untouched(d, description+" not examined: no driver, "+reason))
	}
}

// errNoDriver is the error of a controller without a driver, behind which there can be disks.
var errNoDriver = errors.New("has no driver, so its disks are not known")

// withoutDisks returns why there are no disks behind a controller without a driver. It returns an error if there can
// be some, or if that is not known.
func (m *Steps) withoutDisks(c block.UnboundController) (reason string, err error) {
	if what := block.FunctionWithoutMedia(c.ID, c.Class); what != "" {
		return what, nil
	}
	if !c.IsIDE() {
		return "", errNoDriver
	}
	present, found, err := block.IDEDrive(m.o.System, c.Address)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w, and whether a drive answers is not known either: %w", errNoDriver, err)
	case present:
		return "", fmt.Errorf("%w: a drive can be there, %s", errNoDriver, found)
	}
	return "no drive answers: " + found, nil
}

// pciAddresses are addresses of storage controllers that the operator does not use.
type pciAddresses []string

// has reports whether the operator names a PCI address, with or without its domain.
func (a pciAddresses) has(address string) bool {
	return address != "" && slices.ContainsFunc(a, func(entry string) bool {
		entry = strings.ToLower(strings.TrimSpace(entry))
		return entry == address || "0000:"+entry == address
	})
}

// unusedControllers returns the PCI addresses of skip_storage_controllers: of the option, and of the node's
// driver_info, a list or a text with commas. Addresses are not validated: a wrong one has no effect.
func unusedControllers(option []string, n *node.Node) ([]string, error) {
	if n == nil {
		return option, nil
	}
	unused := slices.Clone(option)
	switch value := n.DriverInfo()[skipControllers].(type) {
	case nil:
	case string:
		unused = append(unused, strings.Split(value, ",")...)
	case []any:
		for _, entry := range value {
			text, ok := entry.(string)
			if !ok {
				return nil, fmt.Errorf("driver_info %s: got entry %v, want a PCI address", skipControllers, entry)
			}
			unused = append(unused, text)
		}
	default:
		return nil, fmt.Errorf("driver_info %s: got %v, want a list of PCI addresses", skipControllers, value)
	}
	return unused, nil
}
