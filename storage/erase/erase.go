package erase

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// Method names how a device was erased.
type Method string

// The methods, from the strongest to the weakest.
const (
	NVMeCrypto Method = "nvme-format-crypto" // the drive deleted the key of the data
	NVMeUser   Method = "nvme-format-user"   // the drive erased its data

	NVMeSanitizeBlock     Method = "nvme-sanitize-block"
	NVMeSanitizeCrypto    Method = "nvme-sanitize-crypto"
	NVMeSanitizeOverwrite Method = "nvme-sanitize-overwrite"

	ATAEnhanced Method = "ata-secure-erase-enhanced"
	ATAErase    Method = "ata-secure-erase"

	ATASanitizeBlock     Method = "ata-sanitize-block"
	ATASanitizeCrypto    Method = "ata-sanitize-crypto"
	ATASanitizeOverwrite Method = "ata-sanitize-overwrite"

	SCSISanitizeBlock     Method = "scsi-sanitize-block"
	SCSISanitizeCrypto    Method = "scsi-sanitize-crypto"
	SCSISanitizeOverwrite Method = "scsi-sanitize-overwrite"

	Overwrite    Method = "overwrite" // every byte of the size that the kernel reports was written
	MetadataOnly Method = "metadata"
)

// Errors of this package.
var (
	ErrReadOnly    = errors.New("device is read-only")
	ErrProtected   = errors.New("device holds a shared file system")
	ErrUnsupported = errors.New("method not supported by the device")
	ErrRemains     = errors.New("data remain out of reach")
	ErrZoned       = errors.New("host-managed zoned disk must be written sequentially and cannot be overwritten")
)

// Options are the options of Full.
type Options struct {
	Iterations        int                     // number of random passes of an overwrite
	Zeroize           bool                    // end an overwrite with a pass of zeros
	NVMe              bool                    // use NVMe Format if the device supports it
	NVMeSanitize      bool                    // with NVMe, sanitize a device that cannot be formatted
	Siblings          []block.Device          // namespaces that a sanitize may erase, too
	ATA               bool                    // use ATA secure erase or sanitize if the device supports one
	SCSI              bool                    // use SCSI sanitize if the device supports it
	ContinueOnFailure bool                    // overwrite the device if a secure erase failed
	Wait              Wait                    // time limit for the device's holders
	Progress          func(done, total int64) // bytes written over all passes, or sanitized; may be nil
	ReadingBack       func(done, total int64) // bytes read back; may be nil

	// Sanitizing is called when the sanitize of an NVMe drive or a SCSI disk has started, with the time that the drive
	// says it takes, 0 if it does not say. It may be nil.
	Sanitizing func(method Method, estimate time.Duration)

	Erasing Erasing // may be nil

	// prove means that the drive may ignore writes and return zeros, because it may be locked: the last pass of an
	// overwrite is random data, and samples are compared before the drive erases itself.
	prove bool
}

// sampling returns how samples of a device are taken.
func (o Options) sampling(device block.Device) sampling {
	return sampling{device.Zoned == "host-managed", o.prove}
}

// Full erases all data of a disk or partition, reads it back (see [evidence.Plan]), and returns the method. The
// method is followed by what was not erased and why: namespaces of a shared NVMe subsystem that this host cannot see,
// and sectors that an ATA drive hides.
// If the device does not support a secure erase, it is overwritten; if a secure erase failed, only with
// ContinueOnFailure, and never while the drive rejects data because of a sanitize. The method is then followed by the
// reason why an ATA drive or a SCSI disk, or an NVMe drive whose sanitize failed or that kept data, was overwritten.
//
// Errors wrap ErrReadOnly for a read-only device, ErrBusy for a device in use, and ErrZoned for a disk that cannot be
// overwritten. They wrap ErrRemains if the device's private NVMe subsystem has namespaces that are not attached or
// cannot be listed, whether or not the device itself was erased. They wrap ErrLocked for an ATA drive that is or may be
// left with a password, ErrTCGLocked for a locked self-encrypting drive, which is not written, and ErrNotErased for a
// device that reported success and still holds data, or other data than was written.
func Full(ctx context.Context, sys sysfs.Root, device block.Device, o Options) (Method, error) {
	method, err := full(ctx, sys, device, o, openers{openNVMe, openSG, openSG, openSGReadOnly, openIdentify})
	if err != nil {
		return "", fmt.Errorf("erase %s: %w", device.Path, err)
	}
	return method, nil
}

// overwritesAfter reports whether a device is overwritten whose own erase returned an error.
func (o Options) overwritesAfter(err error) bool {
	return errors.Is(err, ErrUnsupported) ||
		o.ContinueOnFailure && !errors.Is(err, ErrLocked) && !errors.Is(err, errRejects)
}

// openers open devices for commands of their own.
type openers struct {
	nvme func(path string) (adminDevice, error)
	ata  sgOpener
	scsi sgOpener
	// For commands that change nothing.
	query    sgOpener
	identify func(path string) (adminDevice, error)
}

func full(
	ctx context.Context, sys sysfs.Root, device block.Device, o Options, open openers,
) (Method, error) {
	if err := awaitWritable(ctx, sys, device, o.Wait); err != nil {
		return "", err
	}
	ctx, trace := ensureTrace(ctx)
	if !block.IsNVMeNamespace(device.Name) { // eraseNVMe asks it
		var err error
		if o.prove, err = checkLockedDevice(ctx, sys, device, open); err != nil {
			return "", err
		}
	}
	method, scope, secureErr := secure(ctx, sys, device, o, open)
	o.prove = o.prove || scope.lockUnknown
	if errors.Is(secureErr, ErrTCGLocked) {
		return "", errors.Join(secureErr, scope.remains("not erased"))
	}
	if secureErr == nil {
		secureErr = readBackDrive(ctx, sys, device, o, method)
	}
	if secureErr != nil {
		if !o.overwritesAfter(secureErr) {
			return "", errors.Join(secureErr, scope.remains("not erased"))
		}
		if err := overwriteReleased(ctx, sys, device, o); err != nil {
			if secureErr == ErrUnsupported { //nolint:errorlint // the bare error has no reason to report
				return "", err
			}
			return "", errors.Join(secureErr, err, scope.remains("not erased"))
		}
		method = overwritten(device, secureErr)
	}
	if err := forget(ctx, sys, device, o.Wait); err != nil {
		return "", err
	}
	return scope.finish(method + hiddenText(method, trace.Observed().Hidden))
}

// Express formats an NVMe namespace, which takes seconds on most drives. erasing may be nil. If the device cannot be
// formatted, Express calls notFormatted with the reason and erases the metadata. The method is followed by what was not
// erased, as with [Full].
// Express asks NVMe drives whether they are locked; of other drives, only [Recover] and Full do.
// Errors wrap ErrReadOnly, ErrBusy, ErrRemains, ErrTCGLocked and ErrNotErased as those of Full do. With ErrRemains the
// device was formatted or its metadata were erased, unless the error also contains a failure to erase them.
func Express(
	ctx context.Context, sys sysfs.Root, device block.Device, wait Wait,
	erasing Erasing, notFormatted func(error),
) (Method, error) {
	o := Options{NVMe: true, Wait: wait, Erasing: erasing}
	method, err := express(ctx, sys, device, o, notFormatted, openNVMe)
	if err != nil {
		return "", fmt.Errorf("erase %s: %w", device.Path, err)
	}
	return method, nil
}

func express(
	ctx context.Context, sys sysfs.Root, device block.Device, o Options, notFormatted func(error),
	open func(string) (adminDevice, error),
) (Method, error) {
	if err := awaitWritable(ctx, sys, device, o.Wait); err != nil {
		return "", err
	}
	method, scope, err := secure(ctx, sys, device, o, openers{nvme: open})
	if err == nil {
		if err := forget(ctx, sys, device, o.Wait); err != nil {
			return "", err
		}
		return scope.finish(method)
	}
	if errors.Is(err, ErrTCGLocked) {
		return "", errors.Join(err, scope.remains("not erased"))
	}
	notFormatted(err)
	if err := metadata(ctx, sys, device.Path, o.Wait); err != nil {
		return "", errors.Join(fmt.Errorf("metadata: %w", err), scope.remains("not erased"))
	}
	if errors.Is(err, ErrNotErased) { // the caller requested an erase, and the drive only claims it
		return "", errors.Join(err, scope.remains(MetadataOnly))
	}
	return scope.finish(MetadataOnly)
}

// awaitWritable waits until the device has no holder. It returns ErrReadOnly for a read-only device.
func awaitWritable(ctx context.Context, sys sysfs.Root, device block.Device, wait Wait) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if readOnly, err := ReadOnly(sys, device.Name); err != nil {
		return err
	} else if readOnly {
		return ErrReadOnly
	}
	return wait.free(ctx, sys, device.Path)
}

// overwriteReleased overwrites a device after the kernel has dropped its partitions.
func overwriteReleased(ctx context.Context, sys sysfs.Root, device block.Device, o Options) error {
	if device.Zoned == "host-managed" {
		return ErrZoned
	}
	if err := partition.Release(ctx, sys, device.Path); err != nil {
		return err
	}
	return o.Wait.until(ctx, sys, device.Path, func() error { return overwrite(ctx, device.Path, o) })
}

// forget makes the kernel drop the partitions of a disk that has no table any more.
func forget(ctx context.Context, sys sysfs.Root, device block.Device, wait Wait) error {
	if device.Type == "part" {
		return nil
	}
	return wait.until(ctx, sys, device.Path, func() error { return partition.Sync(ctx, sys, device.Path) })
}

// secure erases a device by a command of its own. The error wraps ErrUnsupported if the device has none. The returned
// scope is that of an NVMe namespace and is valid even with an error.
func secure(
	ctx context.Context, sys sysfs.Root, device block.Device, o Options, open openers,
) (Method, nvmeScope, error) {
	switch {
	case block.IsNVMeNamespace(device.Name): // a Format sent through a partition erases the whole namespace
		return eraseNVMe(ctx, device, o, open.nvme)
	case o.ATA && isATA(device):
		method, err := eraseATA(ctx, sys, device, o, open.ata)
		return method, nvmeScope{}, err
	case o.SCSI && isSCSI(device):
		method, err := eraseSCSI(ctx, sys, device, o, open.scsi)
		return method, nvmeScope{}, err
	}
	return "", nvmeScope{}, ErrUnsupported
}

// overwritten returns the method of a device that was overwritten because of an error: for an ATA drive or a SCSI disk
// that has an erase of its own, and for an NVMe drive whose sanitize failed or that kept data, with the reason why that
// was not used.
func overwritten(device block.Device, reason error) Method {
	//nolint:errorlint // the bare error has no reason to report
	if reason == ErrUnsupported ||
		!isATA(device) && !isSCSI(device) && !errors.Is(reason, errSanitize) && !errors.Is(reason, ErrNotErased) {
		return Overwrite
	}
	return Overwrite + Method("; secure erase failed: "+strings.ReplaceAll(reason.Error(), "\n", "; "))
}
