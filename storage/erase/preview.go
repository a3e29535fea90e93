package erase

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ironroot/storage/ata"
	"ironroot/storage/block"
	"ironroot/storage/scsi"
	"ironroot/storage/sysfs"
)

// Preview returns the report that [Full] would make for a device with the same options: the technique, what would not
// be erased, and why no other technique is used. It changes nothing on the device, and does not check whether
// the device is in use: commands of the drive can still fail when Full sends them.
//
// The errors are those with which Full would fail before it erases: they wrap ErrReadOnly, ErrZoned, ErrRemains,
// ErrTCGLocked, and ErrLocked for an ATA drive with a password, which Full removes if an interrupted erase has set it.
func Preview(ctx context.Context, sys sysfs.Root, device block.Device, o Options) (Report, error) {
	open := openers{openIdentify, openSGReadOnly, openSGReadOnly, openSGReadOnly, openIdentify}
	o.Recorder = &Recorder{}
	if err := preview(ctx, sys, device, o, open); err != nil {
		return Report{}, fmt.Errorf("erase %s: %w", device.Path, err)
	}
	return o.Recorder.Report(), nil
}

// preview records what [full] would do.
func preview(ctx context.Context, sys sysfs.Root, device block.Device, o Options, open openers) error {
	if readOnly, err := ReadOnly(sys, device.Name); err != nil {
		return err
	} else if readOnly {
		return ErrReadOnly
	}
	if !block.IsNVMeNamespace(device.Name) { // previewNVMe asks it
		if _, err := checkLockedDevice(ctx, sys, device, open, o.Recorder); err != nil {
			return err
		}
	}
	technique, scope, err := previewSecure(ctx, sys, device, o, open)
	o.Recorder.change(func(r *Report) { r.Namespaces = scope.namespaces() })
	var reason error
	switch {
	case errors.Is(err, ErrTCGLocked) || err != nil && !o.overwritesAfter(err):
		return errors.Join(err, scope.remains("not erased"))
	case err != nil && device.Zoned == "host-managed":
		return errors.Join(err, ErrZoned, scope.remains("not erased"))
	case err != nil:
		technique, reason = Overwrite, fallback(device, err)
	}
	return o.finish(scope, Report{Technique: technique, Fallback: reason})
}

// previewSecure returns the technique of [secure].
func previewSecure(
	ctx context.Context, sys sysfs.Root, device block.Device, o Options, open openers,
) (Technique, nvmeScope, error) {
	switch {
	case block.IsNVMeNamespace(device.Name):
		return previewNVMe(ctx, device, o, open.identify)
	case o.ATA && isATA(device):
		technique, err := previewATA(ctx, device, o, open.query)
		return technique, nvmeScope{}, err
	case o.SCSI && isSCSI(device):
		technique, err := previewSCSI(ctx, sys, device, open.query)
		return technique, nvmeScope{}, err
	}
	return "", nvmeScope{}, ErrUnsupported
}

// previewNVMe returns the technique of [eraseNVMe].
func previewNVMe(
	ctx context.Context, device block.Device, o Options, open func(string) (adminDevice, error),
) (_ Technique, scope nvmeScope, err error) {
	d, err := open(device.Path)
	if err != nil {
		return "", nvmeScope{unknown: err}, err
	}
	defer d.close() //nolint:errcheck // nothing was written
	controller, _, scope := identifyAll(ctx, d)
	if controller != nil {
		if _, err := checkLockedNVMe(ctx, controller, d, o.Recorder); err != nil {
			return "", scope, err
		}
	}
	switch {
	case scope.unknown != nil:
		return "", scope, scope.unknown
	case !o.NVMe:
		return "", scope, fmt.Errorf("%w: NVMe Format is disabled", ErrUnsupported)
	}
	if sanitizeCapabilities(controller) != 0 {
		if log, err := readSanitizeLog(ctx, d); err == nil {
			if err := unsettled(log.state() == stateInProgress, log.state() == stateFailed); err != nil {
				return "", scope, fmt.Errorf("%w: %w", errSanitize, err)
			}
		}
	}
	technique, _, err := formatSetting(controller, scope)
	if err == nil || !o.NVMeSanitize {
		return technique, scope, err
	}
	whole := scope
	held, closeAll, holdErr := holdSiblings(ctx, o.Siblings, open)
	defer closeAll() //nolint:errcheck // nothing was written
	if holdErr == nil {
		whole.others = slices.DeleteFunc(slices.Clone(scope.others), func(id uint32) bool {
			return slices.Contains(held, id)
		})
	}
	action, sanitizeErr := chooseSanitize(controller, whole)
	if sanitizeErr != nil {
		return "", scope, sanitizeRefused(err, sanitizeErr, holdErr)
	}
	return action.technique, scope, nil
}

// previewATA returns the technique of [eraseATA].
func previewATA(ctx context.Context, device block.Device, o Options, open sgOpener) (Technique, error) {
	transport, file, _, err := open(device.Path)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	d := ataDisk{
		drive: ata.New(transport), file: file, path: device.Path, size: device.Size, record: o.Recorder,
	}
	id, err := d.identifyErasable(ctx)
	if err != nil {
		return "", err
	}
	if id.Security.Locked {
		return "", fmt.Errorf("%w: an erase tries to remove the one of an interrupted erase", ErrLocked)
	}
	if id.Sanitize.Supported {
		if status, err := d.sanitizeStatus(ctx); err == nil {
			if err := unsettled(status.InProgress, status.Failed); err != nil {
				return "", err
			}
		}
	}
	d.noteHidden(ctx, id.Capacity, nil)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	technique, _, err := d.choose(ctx, id)
	return technique, err
}

// previewSCSI returns the technique of [eraseSCSI].
func previewSCSI(ctx context.Context, sys sysfs.Root, device block.Device, open sgOpener) (Technique, error) {
	transport, file, _, err := open(device.Path)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	d := scsiDevice{disk: scsi.New(transport), file: file, path: device.Path, size: device.Size}
	if state, err := d.state(ctx); err == nil {
		if err := unsettled(state.InProgress, state.Failed); err != nil {
			return "", err
		}
	}
	technique, _, err := d.choose(ctx, sys, device)
	return technique, err
}

// unsettled returns the error of a drive that sanitizes itself now or whose last sanitize failed. Full waits for the
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
