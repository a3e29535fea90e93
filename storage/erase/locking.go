package erase

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"ironroot/storage/ata"
	"ironroot/storage/block"
	"ironroot/storage/scsi"
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

// checkLocked returns an error that wraps ErrTCGLocked if a SATA or SCSI disk is locked. A disk whose state cannot be
// read is not an error: the trace says why, and the erase verifies more, see [lockUnknown].
func checkLocked(ctx context.Context, device block.Device, open sgOpener) error {
	if !isLockable(device) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	transport, file, _, err := open(device.Path)
	if err != nil {
		noteLockUnknown(ctx, err)
		return nil
	}
	defer file.Close() //nolint:errcheck // nothing was written
	found, err := tcg.Discover(scsi.New(transport).SecurityReceive)
	ReportProgress(ctx)
	var rejected *scsi.CommandError
	if errors.As(err, &rejected) { // most disks: they have no such feature
		if !isATA(device) {
			return nil
		}
		drive := ata.New(transport)
		id, identifyErr := drive.Identify()
		ReportProgress(ctx)
		if identifyErr != nil || !id.Trusted {
			return nil
		}
		found, err = tcg.Discover(drive.TrustedReceive)
		ReportProgress(ctx)
	}
	return lockedError(ctx, found, err)
}

// checkLockedNVMe is checkLocked for the controller of a namespace.
func checkLockedNVMe(ctx context.Context, controller []byte, d adminDevice) error {
	if binary.LittleEndian.Uint16(controller[256:])&oacsSecurity == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	found, err := tcg.Discover(func(protocol byte, specific uint16, buffer []byte) ([]byte, error) {
		return buffer, securityReceive(d, protocol, specific, buffer)
	})
	ReportProgress(ctx)
	return lockedError(ctx, found, err)
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

// lockedError returns the error of a drive with a discovery, nil if it is not locked. err is why the discovery is not
// complete. The trace gets the discovery.
func lockedError(ctx context.Context, found tcg.Discovery, err error) error {
	reason := found.LockedReason()
	switch {
	case reason != "":
		reported(ctx, discoverySource, found.String(), false)
		return fmt.Errorf("%w, %s: %s; unlock the drive with its owner's credentials, or revert it with the PSID on "+
			"its label (for example by sedutil-cli), which erases it; then repeat the step",
			ErrTCGLocked, found.ClassNames(), reason)
	case err != nil:
		noteLockUnknown(ctx, err)
	case found.Locking != nil:
		reported(ctx, discoverySource, found.String(), false)
	}
	return ctx.Err()
}
