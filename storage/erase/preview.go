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

// Preview returns the method that [Full] selects for a device with the same options, followed by what would not be
// erased and why no other method is used, as Full does. It changes nothing on the device, and does not check whether
// the device is in use: commands of the drive can still fail when Full sends them.
//
// The errors are those with which Full would fail before it erases: they wrap ErrReadOnly, ErrZoned, ErrRemains,
// ErrTCGLocked, and ErrLocked for an ATA drive with a password, which Full removes if an interrupted erase has set it.
func Preview(ctx context.Context, sys sysfs.Root, device block.Device, o Options) (Method, error) {
	open := openers{openIdentify, openSGReadOnly, openSGReadOnly, openSGReadOnly, openIdentify}
	method, err := preview(ctx, sys, device, o, open)
	if err != nil {
		return "", fmt.Errorf("erase %s: %w", device.Path, err)
	}
	return method, nil
}

func preview(ctx context.Context, sys sysfs.Root, device block.Device, o Options, open openers) (Method, error) {
	if readOnly, err := ReadOnly(sys, device.Name); err != nil {
		return "", err
	} else if readOnly {
		return "", ErrReadOnly
	}
	ctx, trace := WithTrace(ctx)
	if !block.IsNVMeNamespace(device.Name) { // previewNVMe asks it
		if _, err := checkLockedDevice(ctx, sys, device, open); err != nil {
			return "", err
		}
	}
	method, scope, err := previewSecure(ctx, sys, device, o, open)
	switch {
	case errors.Is(err, ErrTCGLocked) || err != nil && !o.overwritesAfter(err):
		return "", errors.Join(err, scope.remains("not erased"))
	case err != nil && device.Zoned == "host-managed":
		return "", errors.Join(err, ErrZoned, scope.remains("not erased"))
	case err != nil:
		method = overwritten(device, err)
	}
	return scope.finish(method + hiddenText(method, trace.Observed().Hidden))
}

// previewSecure returns the method of [secure].
func previewSecure(
	ctx context.Context, sys sysfs.Root, device block.Device, o Options, open openers,
) (Method, nvmeScope, error) {
	switch {
	case block.IsNVMeNamespace(device.Name):
		return previewNVMe(ctx, device, o, open.identify)
	case o.ATA && isATA(device):
		method, err := previewATA(ctx, device, open.query)
		return method, nvmeScope{}, err
	case o.SCSI && isSCSI(device):
		method, err := previewSCSI(ctx, sys, device, open.query)
		return method, nvmeScope{}, err
	}
	return "", nvmeScope{}, ErrUnsupported
}

// previewNVMe returns the method of [eraseNVMe].
func previewNVMe(
	ctx context.Context, device block.Device, o Options, open func(string) (adminDevice, error),
) (_ Method, scope nvmeScope, err error) {
	d, err := open(device.Path)
	if err != nil {
		return "", nvmeScope{unknown: err}, err
	}
	defer d.close() //nolint:errcheck // nothing was written
	controller, _, scope := identifyAll(ctx, d)
	if controller != nil {
		if _, err := checkLockedNVMe(ctx, controller, d); err != nil {
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
	method, _, err := formatSetting(controller, scope)
	if err == nil || !o.NVMeSanitize {
		return method, scope, err
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
	return action.method, scope, nil
}

// previewATA returns the method of [eraseATA].
func previewATA(ctx context.Context, device block.Device, open sgOpener) (Method, error) {
	transport, file, _, err := open(device.Path)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	d := ataDisk{drive: ata.New(transport), file: file, path: device.Path, size: device.Size}
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
	method, _, err := d.choose(ctx, id)
	return method, err
}

// previewSCSI returns the method of [eraseSCSI].
func previewSCSI(ctx context.Context, sys sysfs.Root, device block.Device, open sgOpener) (Method, error) {
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
	method, _, err := d.choose(ctx, sys, device)
	return method, err
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
