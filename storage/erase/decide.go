package erase

import (
	"context"
	"fmt"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// Decide returns the report that [Run] would make for a device with the same options: the technique, what would not
// be erased, and why no other technique is used. It changes nothing on the device, and does not check whether the
// device is in use. Run decides again, by the same rules: the device can have changed, and commands of the drive can
// fail when Run sends them.
//
// The errors are those with which Run would fail before it erases: they wrap ErrReadOnly, ErrZoned, ErrRemains,
// ErrTCGLocked, and ErrLocked for an ATA drive with a password, which Run removes if an interrupted erase has set it.
func Decide(ctx context.Context, sys sysfs.Root, device block.Device, o Options) (Report, error) {
	o.decideOnly, o.Recorder = true, &Recorder{}
	if err := run(ctx, sys, device, o, openers{readOnly{}, readOnly{}}); err != nil {
		return Report{}, fmt.Errorf("erase %s: %w", device.Path, err)
	}
	return o.Recorder.Report(), nil
}

// unsettled returns the error of a drive that sanitizes itself now or whose last sanitize failed. Run waits for the
// end of the one, and tries to clear the other.
func unsettled(inProgress, failed bool) error {
	switch {
	case inProgress:
		return fmt.Errorf("%w: a sanitize is in progress, which an erase waits for", errRejects)
	case failed:
		return fmt.Errorf("%w: the last sanitize failed, which an erase tries to clear", errRejects)
	}
	return nil
}
