package erase

import (
	"context"
	"fmt"
	"slices"
)

// Controller describes the namespaces of an NVMe controller.
type Controller struct {
	// Attached names the namespaces that are attached to the controller, "" if there are none.
	Attached string
	// NotErased names the namespaces that an erase of the attached ones does not reach, and why, "" if there are none.
	NotErased string
	// Remains wraps ErrRemains and names the unattached namespaces of a private subsystem; nil if there are none.
	Remains error
}

// ReadController asks an NVMe controller for its namespaces. path is its character device. A controller can have
// namespaces without a block device: unattached ones, and those that the kernel does not use. It changes nothing.
func ReadController(ctx context.Context, path string) (Controller, error) {
	c, err := readController(ctx, path, openIdentify)
	if err != nil {
		return Controller{}, fmt.Errorf("read the NVMe namespaces of %s: %w", path, err)
	}
	return c, nil
}

func readController(ctx context.Context, path string, open func(string) (adminDevice, error)) (Controller, error) {
	d, err := open(path)
	if err != nil {
		return Controller{}, err
	}
	defer d.close() //nolint:errcheck // nothing was written
	controller, err := identify(ctx, d, identifyController, 0)
	if err != nil {
		return Controller{}, err
	}
	scope, err := readScope(ctx, d, 0, controller, sharedSubsystem(controller))
	if err != nil {
		return Controller{}, err
	}
	c := Controller{NotErased: scope.notErased(), Remains: scope.hidden()}
	attached := slices.DeleteFunc(scope.others, func(id uint32) bool { return slices.Contains(scope.unattached, id) })
	if len(attached) > 0 {
		c.Attached = namespaceList(attached)
	}
	return c, nil
}
