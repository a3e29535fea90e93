package imaging

import (
	"context"
	"errors"
	"fmt"

	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/storage/hint"
)

// RootDisk selects the disk for the operating system, without assembling arrays: see DeployDisk. With refresh, it first
// looks up a cached node that has no hints: hints may have been set since. As in the protocol, a failed lookup is not
// fatal.
//
// It returns an error if the disk holds a member of an array that Ironic created: the node object alone determines the
// choice.
func (i *Imager) RootDisk(ctx context.Context, refresh bool) (block.Device, error) {
	n, err := i.currentNode(ctx, refresh)
	if err != nil {
		return block.Device{}, err
	}
	return i.rootDisk(ctx, n, nil)
}

// rootDisk selects the root disk of a node whose arrays run.
func (i *Imager) rootDisk(ctx context.Context, n *node.Node, volumes []Volume) (block.Device, error) {
	if err := i.waitDisks(ctx, n); err != nil {
		return block.Device{}, err
	}
	disks, err := i.o.Disks(ctx)
	if err != nil {
		return block.Device{}, fault.DeviceNotFound("list disks: %w", err)
	}
	if disks, err = hardware.WithoutProtectedArrays(ctx, i.o.System, n, disks); err != nil {
		return block.Device{}, fault.DeviceNotFound("%w", err)
	}
	if disks, err = chooseVolume(disks, volumes); err != nil {
		return block.Device{}, fault.DeviceNotFound("%w", err)
	}
	var disk block.Device
	if isRoot(volumes) {
		disk = disks[0]
		if n != nil && len(n.RootDeviceHints()) > 0 {
			i.o.Log.Warn("root device hints ignored, raid_config has a root volume", "device", disk.Path)
		}
	} else if disk, err = ChooseRootDisk(n, disks); err != nil {
		return block.Device{}, fault.DeviceNotFound("%w", err)
	}
	if err := hardware.CheckCreated(ctx, i.o.System, n, disk); err != nil {
		return block.Device{}, fault.DeviceNotFound("root disk %s: %w", disk.Path, err)
	}
	i.o.Log.Debug("root disk", "device", disk.Path, "bytes", disk.Size, "serial", disk.Serial)
	return disk, nil
}

// writable returns the protocol's error if images cannot be written to d. The choice of the root disk does not
// consider this: the protocol selects by size or hints alone.
func writable(d block.Device) error {
	switch {
	case d.ReadOnly:
		return fault.ImageWrite(d.Path, errors.New("disk is read-only"))
	case d.Zoned == "host-managed":
		return fault.ImageWrite(d.Path,
			errors.New("disk is zoned (host-managed) and accepts only sequential writes within a zone"))
	}
	return nil
}

// canRefresh reports whether the node can be looked up in Ironic.
func (i *Imager) canRefresh() bool {
	c := i.o.Config.Get()
	return i.o.Refresh != nil && !c.Standalone && c.APIURL != ""
}

// ChooseRootDisk selects the root disk among disks by the node's skip list and root device hints; n may be nil. Its
// error wraps [hint.ErrNoDisk] if the hints are valid but no disk matches.
func ChooseRootDisk(n *node.Node, disks []block.Device) (block.Device, error) {
	skips, err := hardware.NewSkipList(n)
	if err != nil {
		return block.Device{}, err
	}
	candidates, err := skips.Without(disks)
	if err != nil {
		return block.Device{}, err
	}
	var hints hint.Hints
	if n != nil {
		if hints, err = hint.Parse(n.RootDeviceHints()); err != nil {
			return block.Device{}, fmt.Errorf("root device hints: %w", err)
		}
	}
	disk, err := hint.RootDisk(hints, candidates)
	if err != nil {
		return block.Device{}, fmt.Errorf("choose the root disk: %w", err)
	}
	if err := skips.CheckRead(disk); err != nil {
		return block.Device{}, fmt.Errorf("root disk %s: %w", disk.Path, err)
	}
	return disk, nil
}
