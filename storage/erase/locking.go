package erase

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"ironroot/internal/timelimit"
	"ironroot/storage/ata"
	"ironroot/storage/block"
	"ironroot/storage/scsi"
	"ironroot/storage/sysfs"
	"ironroot/storage/tcg"
)

// ErrTCGLocked is the cause of an error about a self-encrypting drive that is locked by its owner. Locked ranges can
// return zeros or errors, and reject or ignore writes.
var ErrTCGLocked = errors.New("drive is locked (TCG)")

// Values of Security Receive (NVM Express base specification 2.0, sections "Security Receive command" and "Identify
// Controller data structure": OACS bit 0).
const (
	opSecurityReceive = 0x82
	oacsSecurity      = 1 << 0
)

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
	ctx context.Context, sys sysfs.Root, device block.Device, open openers, record *Recorder,
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
		return checkLocked(ctx, device, open.query, record)
	}
	d, err := open.identify(device.Path)
	if err != nil {
		return lockNotRead(ctx, err, record)
	}
	defer d.close() //nolint:errcheck // nothing was written
	controller, err := identify(ctx, d, identifyController, 0)
	if err != nil {
		return lockNotRead(ctx, err, record)
	}
	return checkLockedNVMe(ctx, controller, d, record)
}

// checkLockedNVMe is checkLocked for the controller of a namespace.
func checkLockedNVMe(
	ctx context.Context, controller []byte, d adminDevice, record *Recorder,
) (unknown bool, err error) {
	if binary.LittleEndian.Uint16(controller[256:])&oacsSecurity == 0 {
		return false, nil
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	found, err := tcg.Discover(func(protocol byte, specific uint16, buffer []byte) ([]byte, error) {
		return buffer, securityReceive(d, protocol, specific, buffer)
	})
	timelimit.Progress(ctx)
	return lockState(ctx, found, err, record)
}

// securityReceive receives data of a security protocol: SECP in bits 31:24 and SPSP in bits 23:8 of dword 10, the
// length in dword 11. The command has no namespace.
func securityReceive(d adminDevice, protocol byte, specific uint16, buffer []byte) error {
	return d.admin(&adminCommand{
		opcode: opSecurityReceive, cdw10: uint32(protocol)<<24 | uint32(specific)<<8, cdw11: uint32(len(buffer)),
		timeout: uint32(identifyTimeout.Milliseconds()),
	}, buffer)
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
