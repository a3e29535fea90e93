package imaging

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ironroot/agent/fault"
	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/storage/bootloader"
)

// Volume is a software RAID array of the node's raid_config.
type Volume struct {
	Name  string
	Root  *bool    // is_root_volume; nil if it is not given
	Path  string   // of its device, "" if it does not run
	Disks []string // device paths of the disks with its members, if it runs
	Err   error    // why it does not run, nil if it runs
}

// Volumes are the arrays of a node for a deployment.
type Volumes struct {
	List []Volume
	// Release stops the arrays that were started for this deployment, except the one with the device path. It may be
	// nil.
	Release func(ctx context.Context, except string) error
}

func (v Volumes) release(ctx context.Context, except string) error {
	if v.Release == nil {
		return nil
	}
	return v.Release(context.WithoutCancel(ctx), except)
}

// DeployDisk selects the disk for the operating system as RootDisk does. Before, it assembles the arrays of
// raid_config: one with is_root_volume is the root disk, regardless of root device hints; one for which it is false is
// not, nor are the disks of its members; any other one can be. The other arrays that it has assembled are stopped
// again.
func (i *Imager) DeployDisk(ctx context.Context, refresh bool) (block.Device, error) {
	n, err := i.currentNode(ctx, refresh)
	if err != nil {
		return block.Device{}, err
	}
	var volumes Volumes
	if i.o.Volumes != nil {
		if err := i.waitDisks(ctx, n); err != nil { // for the drivers: the root disk need not be there yet
			return block.Device{}, err
		}
		if volumes, err = i.o.Volumes(ctx, n); err != nil {
			return block.Device{}, fault.DeviceNotFound("RAID arrays of raid_config: %w", err)
		}
	}
	disk, err := i.rootDisk(ctx, n, volumes.List)
	if failed := volumes.release(ctx, disk.Path); failed != nil {
		return block.Device{}, errors.Join(err, fault.DeviceNotFound("%w", failed))
	}
	return disk, err
}

// chooseVolume returns the candidates for the root disk that is_root_volume of the arrays leaves. If an array is the
// root volume, it is the only one.
func chooseVolume(disks []block.Device, volumes []Volume) ([]block.Device, error) {
	for _, v := range volumes {
		if v.Root == nil || !*v.Root {
			continue
		}
		if v.Err != nil {
			return nil, fmt.Errorf("root volume %q: %w", v.Name, v.Err)
		}
		at := slices.IndexFunc(disks, func(d block.Device) bool { return d.Path == v.Path })
		if at < 0 {
			return nil, fmt.Errorf("root volume %q: %s is not among the disks", v.Name, v.Path)
		}
		return disks[at : at+1], nil
	}
	return slices.DeleteFunc(slices.Clone(disks), func(d block.Device) bool {
		return slices.ContainsFunc(volumes, func(v Volume) bool {
			return v.Root != nil && (v.Path == d.Path || slices.Contains(v.Disks, d.Path))
		})
	}), nil
}

// isRoot reports whether one of the arrays is the root volume.
func isRoot(volumes []Volume) bool {
	return slices.ContainsFunc(volumes, func(v Volume) bool { return v.Root != nil && *v.Root })
}

// checkBoots returns an error if the disk is an array that firmware cannot boot from, unless the option
// ignore_bootloader_failure is set. install_bootloader would fail after the image was written.
func (i *Imager) checkBoots(disk block.Device) error {
	err := bootloader.CheckArray(i.o.System, disk)
	if err == nil {
		return nil
	}
	if i.o.Config.Get().IgnoreBootloaderFailure {
		i.o.Log.Warn("image is written to a disk that firmware cannot boot from", "device", disk.Path, "err", err)
		return nil
	}
	return fault.ImageWrite(disk.Path, fmt.Errorf("%w; the disk was not written to; the option "+
		"ignore_bootloader_failure permits it for machines that boot another way", err))
}

// currentNode returns the cached node. With refresh, it first looks up a node that has no root device hints.
func (i *Imager) currentNode(ctx context.Context, refresh bool) (*node.Node, error) {
	n := i.o.Node.Get()
	if refresh && n != nil && len(n.RootDeviceHints()) == 0 && i.canRefresh() {
		if err := i.o.Refresh(ctx); ctx.Err() != nil {
			return nil, ctx.Err()
		} else if err != nil {
			i.o.Log.Warn("node not looked up again, root disk chosen from cached node", "node", n.UUID(), "err", err)
		}
		n = i.o.Node.Get()
	}
	return n, nil
}

func (i *Imager) waitDisks(ctx context.Context, n *node.Node) error {
	if i.o.WaitDisks == nil {
		return nil
	}
	return i.o.WaitDisks(ctx, n)
}
