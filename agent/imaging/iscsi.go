package imaging

import (
	"context"
	"net/netip"

	"github.com/google/uuid"

	"ironroot/agent/fault"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/iscsi"
	"ironroot/storage/iscsitarget"
	"ironroot/storage/partition"
)

// ISCSITarget holds the parameters of start_iscsi_target.
type ISCSITarget struct {
	IQN          string // name of the target; "" generates one
	Port         uint16 // TCP port of the portal; 0 is 3260
	WipeMetadata bool   // erase partition tables and signatures before the disk is exported
	// Local is the address on which the command was requested, where the portal is; Peer is the address of the client,
	// which alone can connect to it.
	Local, Peer netip.Addr
}

// StartISCSITarget exports the root disk as unit 1 of an iSCSI target and returns the target's name. Errors are faults
// of the protocol.
func (i *Imager) StartISCSITarget(ctx context.Context, t ISCSITarget) (string, error) {
	if t.IQN == "" {
		t.IQN = "iqn.2008-10.org.openstack:" + uuid.NewString()
	}
	if t.Port == 0 {
		t.Port = iscsi.DefaultPort
	}
	if err := iscsitarget.CheckName(t.IQN); err != nil { // before the search for the disk
		return "", fault.ISCSI("%w", err)
	}
	if i.o.Targets == nil {
		return "", fault.ISCSI("this agent exports no disks")
	}
	disk, err := i.DeployDisk(ctx, true)
	if err != nil {
		return "", err
	}
	if err := unwritable(disk); err != nil {
		return "", fault.ISCSI("%s: %w", disk.Path, err)
	}
	if err := i.checkBootable(ctx, disk); err != nil {
		return "", err
	}
	err = i.o.Targets.Start(ctx, iscsitarget.Export{
		Name: t.IQN, Device: disk.Path, Portal: netip.AddrPortFrom(t.Local, t.Port), Peer: t.Peer,
	}, func(ctx context.Context) error { return i.prepareExport(ctx, disk, t.WipeMetadata) })
	if err != nil {
		return "", fault.ISCSI("%w", err)
	}
	return t.IQN, nil
}

// prepareExport makes it possible to open the disk exclusively. If wipe is set, it erases the disk's metadata.
func (i *Imager) prepareExport(ctx context.Context, disk block.Device, wipe bool) error {
	i.forgetWritten() // the exporter forgets by itself
	if err := partition.Release(ctx, i.o.System, disk.Path); err != nil {
		return err
	}
	if !wipe {
		return nil
	}
	c := i.o.Config.Get().DiskPartitioner
	wait := erase.Wait{Interval: c.CheckDeviceInterval, Retries: c.CheckDeviceMaxRetries}
	if err := erase.Metadata(ctx, i.o.System, disk.Path, wait); err != nil {
		return err
	}
	i.o.Log.Info("metadata erased", "device", disk.Path)
	return nil
}

// stopISCSITarget removes the target, if there is one, and makes the kernel read the partition table that the initiator
// has written.
func (i *Imager) stopISCSITarget(ctx context.Context) error {
	if i.o.Targets == nil {
		return nil
	}
	device := i.o.Targets.Device()
	if err := i.o.Targets.Stop(ctx); err != nil {
		return fault.ISCSI("%w", err)
	}
	if device == "" {
		return nil
	}
	if err := partition.Sync(ctx, i.o.System, device); err != nil {
		i.o.Log.Warn("kernel does not see the new partitions", "device", device, "err", err)
	}
	return nil
}
