package imaging

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/agent/node"
	"ironroot/agent/softraid"
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
	disk, _, err := i.rootDisk(ctx, n, nil)
	return disk, err
}

// DeployDisk assembles the arrays of raid_config and selects the disk for the operating system as RootDisk does. An
// array with is_root_volume is the root disk, regardless of root device hints. If the flag is false, neither the array
// nor a disk of its members is the root disk. Without the flag, the array can be selected as any disk. DeployDisk stops
// the arrays that it has assembled, except the root disk.
//
// It also returns an error if the disk is an active member of an array of firmware, see checkFirmwareRAID.
func (i *Imager) DeployDisk(ctx context.Context, refresh bool) (block.Device, error) {
	n, err := i.currentNode(ctx, refresh)
	if err != nil {
		return block.Device{}, err
	}
	var volumes softraid.Assembled
	if i.o.Hardware != nil {
		if err := i.waitDisks(ctx, n); err != nil { // for the drivers: the root disk need not be there yet
			return block.Device{}, err
		}
		if volumes, err = i.o.Hardware.AssembleVolumes(ctx, n); err != nil {
			return block.Device{}, fault.DeviceNotFound("RAID arrays of raid_config: %w", err)
		}
	}
	disk, err := i.writableRootDisk(ctx, n, volumes.Volumes)
	if i.o.Hardware != nil { // also after ctx was cancelled
		failed := i.o.Hardware.ReleaseVolumes(context.WithoutCancel(ctx), volumes, disk.Path)
		if failed != nil {
			return block.Device{}, errors.Join(err, fault.DeviceNotFound("%w", failed))
		}
	}
	return disk, err
}

// writableRootDisk selects the root disk of a node and checks that writing to it destroys no array of firmware.
func (i *Imager) writableRootDisk(ctx context.Context, n *node.Node, volumes []*softraid.Volume) (block.Device, error) {
	disk, disks, err := i.rootDisk(ctx, n, volumes)
	if err != nil {
		return block.Device{}, err
	}
	if err := i.checkFirmwareRAID(ctx, n, disk, disks); err != nil {
		return block.Device{}, err
	}
	return disk, nil
}

// rootDisk selects the root disk of a node with the arrays that were assembled for it. It also returns all disks.
func (i *Imager) rootDisk(
	ctx context.Context, n *node.Node, volumes []*softraid.Volume,
) (disk block.Device, all []block.Device, err error) {
	if err := i.waitDisks(ctx, n); err != nil {
		return block.Device{}, nil, err
	}
	if all, err = i.o.Disks.Disks(ctx); err != nil {
		return block.Device{}, nil, fault.DeviceNotFound("list disks: %w", err)
	}
	if disk, err = i.selectDisk(ctx, n, volumes, all); err != nil {
		return block.Device{}, nil, fault.DeviceNotFound("%w", err)
	}
	i.o.Log.Debug("root disk", "device", disk.Path, "bytes", disk.Size, "serial", disk.Serial)
	return disk, all, nil
}

// selectDisk selects the root disk of a node among disks.
func (i *Imager) selectDisk(
	ctx context.Context, n *node.Node, volumes []*softraid.Volume, disks []block.Device,
) (block.Device, error) {
	disks, err := softraid.WithoutProtected(ctx, i.o.System, n, disks)
	if err != nil {
		return block.Device{}, err
	}
	if disks, err = rootCandidates(disks, volumes); err != nil {
		return block.Device{}, err
	}
	var disk block.Device
	if slices.ContainsFunc(volumes, (*softraid.Volume).IsRoot) {
		if disk = disks[0]; !canBeRoot(i.o.Config.Get(), disk) {
			return block.Device{}, fmt.Errorf("use root volume: %s", excludedNote([]block.Device{disk}))
		}
		if n != nil && n.HasRootDeviceHints() {
			i.o.Log.Warn("root device hints ignored, raid_config has a root volume", "device", disk.Path)
		}
	} else if disk, err = ChooseRootDisk(i.o.Config.Get(), n, disks); err != nil {
		return block.Device{}, err
	}
	if err := softraid.CheckCreated(ctx, i.o.System, n, disk); err != nil {
		return block.Device{}, fmt.Errorf("root disk %s: %w", disk.Path, err)
	}
	return disk, nil
}

// unprotectedDisks lists the disks that the hardware managers report, without those that the node's skip list protects.
type unprotectedDisks struct{ o Options }

// Disks implements [block.Lister].
func (u unprotectedDisks) Disks(ctx context.Context) ([]block.Device, error) {
	disks, unread := u.o.Disks.Disks(ctx)
	if unread != nil && !errors.Is(unread, block.ErrUnreadable) {
		return nil, fmt.Errorf("list disks: %w", unread)
	}
	disks, err := softraid.Unprotected(ctx, u.o.System, u.o.Node.Get(), disks)
	if err != nil {
		return nil, err
	}
	return disks, unread
}

// currentNode returns the cached node. With refresh, it first looks up a node that has no root device hints.
func (i *Imager) currentNode(ctx context.Context, refresh bool) (*node.Node, error) {
	n := i.o.Node.Get()
	if refresh && n != nil && !n.HasRootDeviceHints() && i.canRefresh() {
		if err := i.o.Ironic.Refresh(ctx); ctx.Err() != nil {
			return nil, ctx.Err()
		} else if err != nil {
			i.o.Log.Warn("node not looked up again, root disk chosen from cached node", "node", n.UUID(), "err", err)
		}
		n = i.o.Node.Get()
	}
	return n, nil
}

// waitDisks waits for the disks of a node, if there is hardware that can wait.
func (i *Imager) waitDisks(ctx context.Context, n *node.Node) error {
	if i.o.Hardware == nil {
		return nil
	}
	return i.o.Hardware.WaitDisks(ctx, n)
}

// writable returns the protocol's error if images cannot be written to d. The choice of the root disk does not
// consider this: the protocol selects by size or hints alone.
func writable(d block.Device) error {
	if err := unwritable(d); err != nil {
		return fault.ImageWrite(d.Path, err)
	}
	return nil
}

// unwritable returns why images cannot be written to d, or nil.
func unwritable(d block.Device) error {
	switch {
	case d.ReadOnly:
		return errors.New("disk is read-only")
	case d.Zoned == "host-managed":
		return errors.New("disk is zoned (host-managed) and accepts only sequential writes within a zone")
	}
	return nil
}

// canRefresh reports whether the node can be looked up in Ironic.
func (i *Imager) canRefresh() bool {
	c := i.o.Config.Get()
	return i.o.Ironic != nil && !c.Standalone && c.APIURL != ""
}

// canBeRoot reports whether the image permits a disk as the root disk, see [config.Params.AllowsNetworkDisks]. A disk
// of which it is not known whether it is reached over a network counts as one that is.
func canBeRoot(c *config.Config, d block.Device) bool {
	local, _ := d.IsLocal()
	return local || c.Params.AllowsNetworkDisks(c.Signed)
}

// excludedNote returns a text that names disks which the image does not permit as the root disk.
func excludedNote(disks []block.Device) string {
	var list []string
	for _, d := range disks {
		reason := "reached over " + d.Network
		if _, err := d.IsLocal(); err != nil {
			reason = err.Error()
		}
		list = append(list, fmt.Sprintf("%s (%s)", d.Path, reason))
	}
	return "the signed image lacks ironroot.network_disks=1 in its command line, which excludes " +
		strings.Join(list, ", ")
}

// without returns the disks of a list that are not among others.
func without(disks, others []block.Device) []block.Device {
	return slices.DeleteFunc(slices.Clone(disks), func(d block.Device) bool {
		return slices.ContainsFunc(others, func(o block.Device) bool { return o.Path == d.Path })
	})
}

// ChooseRootDisk selects the root disk among disks by the node's skip list and root device hints; n may be nil. In a
// signed image without ironroot.network_disks=1, disks that are reached over a network are excluded. The error wraps
// [hint.ErrNoDisk] if the hints are valid but no disk matches.
func ChooseRootDisk(c *config.Config, n *node.Node, disks []block.Device) (block.Device, error) {
	skips, err := node.NewSkipList(n)
	if err != nil {
		return block.Device{}, err
	}
	candidates, err := skips.Without(disks)
	if err != nil {
		return block.Device{}, err
	}
	allowed := slices.DeleteFunc(slices.Clone(candidates), func(d block.Device) bool { return !canBeRoot(c, d) })
	var hints hint.Hints
	if n != nil {
		given, err := n.RootDeviceHints()
		if err == nil {
			hints, err = hint.Parse(given)
		}
		if err != nil {
			return block.Device{}, fmt.Errorf("root device hints: %w", err)
		}
	}
	disk, err := hint.RootDisk(hints, allowed)
	if err != nil {
		err = fmt.Errorf("choose the root disk: %w", err)
		if protected := without(disks, candidates); len(protected) > 0 {
			err = fmt.Errorf("%w; skip_block_devices protects %s", err, strings.Join(paths(protected), ", "))
		}
		if remote := without(candidates, allowed); len(remote) > 0 {
			err = fmt.Errorf("%w; %s", err, excludedNote(remote))
		}
		return block.Device{}, err
	}
	if err := skips.CheckRead(disk); err != nil {
		return block.Device{}, fmt.Errorf("root disk %s: %w", disk.Path, err)
	}
	return disk, nil
}

// paths returns the paths of disks.
func paths(disks []block.Device) []string {
	var list []string
	for _, d := range disks {
		list = append(list, d.Path)
	}
	return list
}
