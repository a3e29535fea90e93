package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
	"ironroot/internal/uevent"
	"ironroot/storage/sysfs"
)

// deviceDirectory keeps the device nodes of disks in a container's /dev.
type deviceDirectory struct {
	system sysfs.Root
	disks  []string
	nodes  []confine.DeviceNode // that exist
	dir    int                  // /dev of the container
}

// watch changes the nodes with each message about a block device, until ctx ends.
func (d *deviceDirectory) watch(ctx context.Context, messages *uevent.Socket) error {
	for {
		event, err := messages.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it is the cause of ctx
		case err != nil && !errors.Is(err, uevent.ErrLost):
			return err
		case err == nil && event.Subsystem != "block":
			continue
		}
		if err := d.update(); err != nil {
			return err
		}
	}
}

// update creates and removes nodes until they are those that sysfs lists.
func (d *deviceDirectory) update() error {
	now, err := diskNodes(d.system, d.disks)
	if err != nil {
		return err
	}
	for _, n := range d.nodes {
		if slices.Contains(now, n) {
			continue
		}
		if err := unix.Unlinkat(d.dir, n.Name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove device node %s: %w", n.Name, err)
		}
	}
	for _, n := range now {
		if slices.Contains(d.nodes, n) {
			continue
		}
		if err := unix.Mknodat(d.dir, n.Name, n.Mode, int(n.Number)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make device node %s: %w", n.Name, err)
		}
	}
	d.nodes = now
	return nil
}
