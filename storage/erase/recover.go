package erase

import (
	"context"
	"fmt"

	"ironroot/storage/block"
)

// Recover makes a disk usable that an interrupted erase has left with a password or sanitizing. It waits for the
// sanitize and sends its progress to the observer of record, which can be nil. It clears the failure of the last
// sanitize, and removes a password that an erase has set. The error wraps ErrLocked if the drive is locked by another
// password, and ErrTCGLocked if it is a locked self-encrypting drive. Recover does nothing on devices other than ATA
// drives, SCSI disks and NVMe namespaces, and on drives that accept no commands.
func Recover(ctx context.Context, device block.Device, record *Recorder) error {
	err := record.start(device.Path)
	switch {
	case err != nil:
	case isATA(device):
		err = recoverATA(ctx, device, record, readOnly{}.sg)
	case isSCSI(device):
		err = recoverSCSI(ctx, device, record, readOnly{}.sg)
	case block.IsNVMeNamespace(device.Name):
		err = recoverNVMe(ctx, device, record, readOnly{}.nvme)
	}
	if err == nil {
		_, err = checkLocked(ctx, device, readOnly{}.sg, record)
	}
	if err != nil {
		return fmt.Errorf("recover %s: %w", device.Path, err)
	}
	return nil
}
