package erase

import (
	"context"
	"fmt"
	"slices"
)

// Controller describes the namespaces of an NVMe controller.
type Controller struct {
	// NoDevice names the namespaces that are attached to the controller and have no block device, "" if there are
	// none.
	NoDevice string
	// NotErased names the namespaces that an erase of the attached ones does not reach, and why, "" if there are none.
	NotErased string
	// Remains wraps ErrRemains and names the unattached namespaces of a private subsystem; nil if there are none.
	Remains error
}

// ReadController reads the namespaces of an NVMe controller. path is its character device, shown are the ids of its
// namespaces with a block device. A controller can have others: unattached ones, and those that the kernel does not
// use. ReadController changes nothing.
func ReadController(ctx context.Context, path string, shown []uint32) (Controller, error) {
	c, err := readController(ctx, path, shown, readOnly{}.nvme)
	if err != nil {
		return Controller{}, fmt.Errorf("read the NVMe namespaces of %s: %w", path, err)
	}
	return c, nil
}

func readController(
	ctx context.Context, path string, shown []uint32, open func(string) (adminDevice, error),
) (Controller, error) {
	d, err := open(path)
	if err != nil {
		return Controller{}, err
	}
	defer d.close() //nolint:errcheck // nothing was written
	query := queryNVMe(ctx, d)
	id, err := query.Identify()
	if err != nil {
		return Controller{}, err
	}
	scope, err := readScope(query, 0, id, id.SharedSubsystem)
	if err != nil {
		return Controller{}, err
	}
	c := Controller{NotErased: scope.namespaces().notErased(), Remains: scope.hidden()}
	hidden := slices.DeleteFunc(scope.others, func(id uint32) bool {
		return slices.Contains(scope.unattached, id) || slices.Contains(shown, id)
	})
	if len(hidden) > 0 {
		c.NoDevice = namespaceList(hidden)
	}
	return c, nil
}
