package erase

import (
	"context"
	"errors"
	"fmt"

	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// Errors of this package.
var (
	ErrReadOnly    = errors.New("device is read-only")
	ErrProtected   = errors.New("device holds a shared file system")
	ErrUnsupported = errors.New("method not supported by the device")
	ErrRemains     = errors.New("data remain out of reach")
	ErrZoned       = errors.New("host-managed zoned disk must be written sequentially and cannot be overwritten")
)

// Options are the options of Run.
type Options struct {
	Iterations        int            // number of random passes of an overwrite
	Zeroize           bool           // end an overwrite with a pass of zeros
	NVMe              bool           // use NVMe Format if the device supports it
	NVMeSanitize      bool           // with NVMe, sanitize a device that cannot be formatted
	Siblings          []block.Device // namespaces that a sanitize may erase, too
	ATA               bool           // use ATA secure erase or sanitize if the device supports one
	SCSI              bool           // use SCSI sanitize if the device supports it
	Discard           bool           // discard the device if a secure erase failed; not for NVMe
	ContinueOnFailure bool           // overwrite the device if a secure erase failed
	Wait              Wait           // time limit for the device's holders
	Recorder          *Recorder      // receives the report, of one erase; may be nil

	// prove means that the drive may ignore writes and return zeros, because it may be locked: the last pass of an
	// overwrite is random data, and samples are compared before the drive erases itself.
	prove bool
	// decideOnly ends the erase when its technique is known. Nothing is changed on the device, see [Decide].
	decideOnly bool
	// discarder discards the device; nil for the kernel.
	discarder discarder
}

// sampling returns how samples of a device are taken.
func (o Options) sampling(device block.Device) sampling {
	return sampling{device.Zoned == "host-managed", o.prove, o.Recorder}
}

// Run erases all data of a disk or partition, and reads it back (see [evidence.Plan]). The Recorder of the options
// receives the parts that were not erased, with the reasons: namespaces of a shared NVMe subsystem that this host
// cannot see, and sectors that an ATA drive hides. If the device does not support a secure erase, it is overwritten; if
// a secure erase failed, only with ContinueOnFailure, and never while the drive rejects data because of a sanitize.
// With Discard, a device whose secure erase failed is discarded first, and every byte is read back: zeros replace the
// overwrite.
//
// Errors wrap ErrReadOnly for a read-only device, ErrBusy for a device in use, and ErrZoned for a disk that cannot be
// overwritten. They wrap ErrRemains if the device's private NVMe subsystem has namespaces that are not attached or
// cannot be listed, whether or not the device itself was erased. They wrap ErrLocked for an ATA drive that is or may be
// left with a password, ErrTCGLocked for a locked self-encrypting drive, which is not written, and ErrNotErased for a
// device that reported success and still holds data, or other data than was written.
func Run(ctx context.Context, sys sysfs.Root, device block.Device, o Options) error {
	if err := run(ctx, sys, device, o, openers{exclusive{}, readOnly{}}); err != nil {
		return fmt.Errorf("erase %s: %w", device.Path, err)
	}
	return nil
}

// overwritesAfter reports whether a device is overwritten whose own erase returned an error.
func (o Options) overwritesAfter(err error) bool {
	return !errors.Is(err, ErrTCGLocked) && (errors.Is(err, ErrUnsupported) ||
		o.ContinueOnFailure && !errors.Is(err, ErrLocked) && !errors.Is(err, errRejects))
}

// openers open devices for commands of their own.
type openers struct {
	erase opener
	query opener // for commands that change nothing
}

func run(ctx context.Context, sys sysfs.Root, device block.Device, o Options, open openers) error {
	err := o.Recorder.start(device.Path)
	if err == nil {
		err = checkWritable(ctx, sys, device)
	}
	if err == nil && !o.decideOnly {
		err = o.Wait.free(ctx, sys, device.Path)
	}
	if err != nil {
		return err
	}
	if !block.IsNVMeNamespace(device.Name) { // eraseNVMe asks it
		if o.prove, err = checkLockedDevice(ctx, sys, device, open.query, o.Recorder); err != nil {
			return err
		}
	}
	technique, scope, secureErr := secure(ctx, sys, device, o, open.erase)
	o.prove = o.prove || scope.lockUnknown
	if secureErr == nil && !o.decideOnly {
		secureErr = readBackDrive(ctx, sys, device, o, technique)
	}
	var reason error
	if ctx.Err() == nil && o.discardsAfter(device, secureErr) {
		reason = secureErr
		if err := discard(ctx, sys, device, o); err != nil {
			secureErr = errors.Join(secureErr, fmt.Errorf("discard: %w", err))
		} else {
			technique, secureErr = Discard, nil
		}
	}
	if secureErr != nil {
		if !o.overwritesAfter(secureErr) {
			return errors.Join(secureErr, scope.remains("not erased"))
		}
		if err := overwriteReleased(ctx, sys, device, o); err != nil {
			if secureErr == ErrUnsupported { //nolint:errorlint // the bare error has no reason to report
				return err
			}
			return errors.Join(secureErr, err, scope.remains("not erased"))
		}
		technique, reason = Overwrite, fallback(device, secureErr)
	}
	if !o.decideOnly {
		if err := forget(ctx, sys, device, o.Wait); err != nil {
			return err
		}
	}
	return o.finish(scope, Report{Technique: technique, Fallback: reason})
}

// finish records the technique of a device that was erased, and why it was overwritten. Namespaces that remain are an
// error, see [nvmeScope.remains].
func (o Options) finish(scope nvmeScope, done Report) error {
	if err := scope.remains(done.String()); err != nil {
		return err
	}
	o.Recorder.change(func(r *Report) { r.Technique, r.Fallback = done.Technique, done.Fallback })
	return nil
}

// Express formats an NVMe namespace, which takes seconds on most drives. Of the options, it uses Wait and Recorder. If
// the device cannot be formatted, Express calls notFormatted with the reason and erases the metadata.
// Express asks NVMe drives whether they are locked. Only [Recover] and Run ask other drives.
// Errors wrap ErrReadOnly, ErrBusy, ErrRemains, ErrTCGLocked and ErrNotErased like the errors of Run. With ErrRemains
// the device was formatted or its metadata were erased, unless the error also contains a failure to erase them.
func Express(
	ctx context.Context, sys sysfs.Root, device block.Device, o Options, notFormatted func(error),
) error {
	o = Options{NVMe: true, Wait: o.Wait, Recorder: o.Recorder}
	if err := express(ctx, sys, device, o, notFormatted, exclusive{}); err != nil {
		return fmt.Errorf("erase %s: %w", device.Path, err)
	}
	return nil
}

func express(
	ctx context.Context, sys sysfs.Root, device block.Device, o Options, notFormatted func(error), open opener,
) error {
	if err := o.Recorder.start(device.Path); err != nil {
		return err
	}
	if err := awaitWritable(ctx, sys, device, o.Wait); err != nil {
		return err
	}
	technique, scope, err := secure(ctx, sys, device, o, open)
	if err == nil {
		if err := forget(ctx, sys, device, o.Wait); err != nil {
			return err
		}
		return o.finish(scope, Report{Technique: technique})
	}
	if errors.Is(err, ErrTCGLocked) {
		return errors.Join(err, scope.remains("not erased"))
	}
	notFormatted(err)
	if err := metadata(ctx, sys, device.Path, o.Wait); err != nil {
		return errors.Join(fmt.Errorf("metadata: %w", err), scope.remains("not erased"))
	}
	if errors.Is(err, ErrNotErased) { // the caller requested an erase, and the drive only claims it
		return errors.Join(err, scope.remains(string(MetadataOnly)))
	}
	return o.finish(scope, Report{Technique: MetadataOnly})
}

// awaitWritable waits until the device has no holder. It returns ErrReadOnly for a read-only device.
func awaitWritable(ctx context.Context, sys sysfs.Root, device block.Device, wait Wait) error {
	if err := checkWritable(ctx, sys, device); err != nil {
		return err
	}
	return wait.free(ctx, sys, device.Path)
}

// checkWritable returns ErrReadOnly for a read-only device.
func checkWritable(ctx context.Context, sys sysfs.Root, device block.Device) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	readOnly, err := ReadOnly(sys, device.Name)
	if err == nil && readOnly {
		return ErrReadOnly
	}
	return err
}

// overwriteReleased overwrites a device after the kernel has dropped its partitions.
func overwriteReleased(ctx context.Context, sys sysfs.Root, device block.Device, o Options) error {
	switch {
	case device.Zoned == "host-managed":
		return ErrZoned
	case o.decideOnly:
		return nil
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
// scope describes an NVMe namespace and is valid even with an error.
func secure(
	ctx context.Context, sys sysfs.Root, device block.Device, o Options, open opener,
) (Technique, nvmeScope, error) {
	switch {
	case block.IsNVMeNamespace(device.Name): // a Format sent through a partition erases the whole namespace
		return eraseNVMe(ctx, device, o, open.nvme)
	case o.ATA && isATA(device):
		technique, err := eraseATA(ctx, sys, device, o, open.sg)
		return technique, nvmeScope{}, err
	case o.SCSI && isSCSI(device):
		technique, err := eraseSCSI(ctx, sys, device, o, open.sg)
		return technique, nvmeScope{}, err
	}
	return "", nvmeScope{}, ErrUnsupported
}
