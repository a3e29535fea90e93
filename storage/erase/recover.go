package erase

import (
	"context"
	"fmt"

	"ironroot/storage/block"
)

// Recover makes a disk usable that an interrupted erase has left with a password or sanitizing. It waits for the
// sanitize and reports its progress to progress, which can be nil. It clears the failure of the last sanitize, and
// removes a password that an erase has set. The error wraps ErrLocked if the drive is locked by another password, and
// ErrTCGLocked if it is a locked self-encrypting drive. Recover does nothing on devices other than ATA drives, SCSI
// disks and NVMe namespaces, and on drives that accept no commands.
func Recover(ctx context.Context, device block.Device, progress func(done, total int64)) error {
	var err error
	switch {
	case isATA(device):
		err = recoverATA(ctx, device, progress, openSGReadOnly)
	case isSCSI(device):
		err = recoverSCSI(ctx, device, progress, openSGReadOnly)
	case block.IsNVMeNamespace(device.Name):
		err = recoverNVMe(ctx, device, progress, openIdentify)
	}
	if err == nil {
		_, err = checkLocked(ctx, device, openSGReadOnly)
	}
	if err != nil {
		return fmt.Errorf("recover %s: %w", device.Path, err)
	}
	return nil
}
