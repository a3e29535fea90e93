package erase

import (
	"context"
	"errors"
	"fmt"

	"ironroot/internal/timelimit"
	"ironroot/storage/ata"
	"ironroot/storage/block"
	"ironroot/storage/nvme"
	"ironroot/storage/scsi"
	"ironroot/storage/sysfs"
	"ironroot/storage/tcg"
)

// ErrTCGLocked is the cause of an error about a self-encrypting drive that is locked by its owner. Locked ranges can
// return zeros or errors, and reject or ignore writes.
var ErrTCGLocked = errors.New("drive is locked (TCG)")

// isLockable reports whether a device is asked for its locking state by SCSI commands: a drive of a driver of libata,
// or a SCSI disk as of [isSCSI], including ATA and NVMe drives behind SAS adapters. USB bridges are not asked, because
// some stop working after an unknown command.
func isLockable(d block.Device) bool {
	return isATA(d) || d.Type == "disk" && d.HCTL != "" && (d.Transport == "sas" || d.Transport == "")
}

// checkLocked returns an error that wraps ErrTCGLocked if a SATA or SCSI disk is locked. If its state cannot be read,
// unknown is true, and the report says why: the drive may then ignore writes and return zeros, so an erase must prove
// its writes (see Options.prove).
func checkLocked(ctx context.Context, device block.Device, open sgOpener, record *Recorder) (unknown bool, err error) {
	if !isLockable(device) {
		return false, nil
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	transport, file, _, err := open(device.Path)
	if err != nil {
		return lockNotRead(ctx, err, record)
	}
	defer file.Close() //nolint:errcheck // nothing was written
	found, err := tcg.Discover(scsi.New(transport).SecurityReceive)
	timelimit.Progress(ctx)
	var rejected *scsi.CommandError
	if errors.As(err, &rejected) && rejected.Unsupported() { // most disks: they have no such feature
		if !isATA(device) {
			return false, nil
		}
		drive := ata.New(transport)
		id, identifyErr := drive.Identify()
		timelimit.Progress(ctx)
		switch {
		case identifyErr != nil:
			return lockNotRead(ctx, identifyErr, record)
		case !id.Trusted:
			return false, nil
		}
		found, err = tcg.Discover(drive.TrustedReceive)
		timelimit.Progress(ctx)
	}
	return lockState(ctx, found, err, record)
}

// checkLockedDevice is checkLocked for any device. For a partition, it asks the disk.
func checkLockedDevice(
	ctx context.Context, sys sysfs.Root, device block.Device, query opener, record *Recorder,
) (unknown bool, err error) {
	if device.Type == "part" && !block.IsNVMeNamespace(device.Name) {
		path, err := block.DiskOf(sys, device.Name)
		if err != nil {
			return lockNotRead(ctx, err, record)
		}
		if device, err = block.Find(sys, path); err != nil {
			return lockNotRead(ctx, err, record)
		}
	}
	if !block.IsNVMeNamespace(device.Name) {
		return checkLocked(ctx, device, query.sg, record)
	}
	d, err := query.nvme(device.Path)
	if err != nil {
		return lockNotRead(ctx, err, record)
	}
	defer d.close() //nolint:errcheck // nothing was written
	controller, err := queryNVMe(ctx, d).Identify()
	if err != nil {
		return lockNotRead(ctx, err, record)
	}
	return checkLockedNVMe(ctx, controller, d, record)
}

// checkLockedNVMe is checkLocked for the controller of a namespace.
func checkLockedNVMe(
	ctx context.Context, controller nvme.Identity, d adminDevice, record *Recorder,
) (unknown bool, err error) {
	if !controller.SecurityCommands {
		return false, nil
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	found, err := tcg.Discover(nvme.New(d).SecurityReceive)
	timelimit.Progress(ctx)
	return lockState(ctx, found, err, record)
}

const discoverySource = "TCG Level 0 Discovery"

// lockNotRead is lockState without a discovery.
func lockNotRead(ctx context.Context, why error, record *Recorder) (unknown bool, _ error) {
	return lockState(ctx, tcg.Discovery{}, why, record)
}

// lockState returns the error of a drive that is locked according to a discovery. err is why the discovery is not
// complete; unknown is true then. The report gets the discovery.
func lockState(ctx context.Context, found tcg.Discovery, err error, record *Recorder) (unknown bool, _ error) {
	reason := found.LockedReason()
	switch {
	case reason != "":
		record.reported(discoverySource, found.String(), false)
		return false, fmt.Errorf("%w, %s: %s; unlock the drive with its owner's credentials, or revert it with the "+
			"PSID on its label (for example by sedutil-cli), which erases it; then repeat the step",
			ErrTCGLocked, found.ClassNames(), reason)
	case err != nil:
		record.reported(discoverySource, fmt.Sprintf("state not known: %v", err), false)
	case found.Locking != nil:
		record.reported(discoverySource, found.String(), false)
	}
	return err != nil, ctx.Err()
}
