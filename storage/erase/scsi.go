package erase

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/scsi"
	"ironroot/storage/sysfs"
)

// scsiDevice is an open SCSI disk.
type scsiDevice struct {
	disk     scsi.Disk
	file     *os.File
	path     string
	size     int64
	sampling sampling
	record   *Recorder
}

// isSCSI reports whether a device is a SCSI disk that is sent commands of its own: a SAS disk, or one of an adapter
// that does not tell how its disks are connected. ATA and NVMe drives behind SAS adapters are not: their commands would
// pass through the adapter's translation, which has these vendors. Disks of other transports belong to a server
// or are behind a USB bridge.
func isSCSI(d block.Device) bool {
	return d.Type == "disk" && d.HCTL != "" && (d.Transport == "sas" || d.Transport == "") &&
		d.Vendor != "ATA" && d.Vendor != "NVMe"
}

// scsiSanitizes are the sanitize techniques, the preferred one first.
var scsiSanitizes = []struct {
	technique Technique
	command   scsi.SanitizeMethod
}{
	{SCSISanitizeBlock, scsi.BlockErase},
	{SCSISanitizeCrypto, scsi.CryptographicErase},
	{SCSISanitizeOverwrite, scsi.Overwrite},
}

// eraseSCSI sanitizes a disk. The error wraps ErrUnsupported if the disk does not support that, or if it could erase
// other disks.
func eraseSCSI(
	ctx context.Context, sys sysfs.Root, device block.Device, o Options, open sgOpener,
) (_ Technique, err error) {
	d := scsiDevice{path: device.Path, sampling: o.sampling(device), record: o.Recorder}
	if err := o.Wait.until(ctx, sys, device.Path, func() error {
		transport, file, size, err := open(device.Path)
		d.disk, d.file, d.size = scsi.New(transport), file, size
		return err
	}); err != nil {
		return "", err
	}
	defer func() {
		if closeErr := d.file.Close(); closeErr != nil { // callers compare with the bare ErrUnsupported
			err = errors.Join(err, closeErr)
		}
	}()
	if err := d.makeReady(ctx, o.decideOnly); err != nil {
		return "", err
	}
	technique, command, err := d.choose(ctx, sys, device)
	if err != nil {
		return "", err
	}
	if o.decideOnly {
		return technique, nil
	}
	if err := d.sanitize(ctx, technique, command); err != nil {
		return "", err
	}
	return technique, block.Flush(ctx, device.Path)
}

// choose selects a technique that the disk supports. The error wraps ErrUnsupported; it is the bare one if the disk has
// none.
func (d *scsiDevice) choose(
	ctx context.Context, sys sysfs.Root, device block.Device,
) (Technique, scsi.SanitizeMethod, error) {
	var reasons []string
	for _, s := range scsiSanitizes {
		if err := ctx.Err(); err != nil {
			return "", scsi.SanitizeMethod{}, err
		}
		support, err := d.disk.Supports(s.command)
		timelimit.Progress(ctx)
		var rejected *scsi.CommandError
		switch {
		case errors.As(err, &rejected): // disks that cannot say what they support
			return "", scsi.SanitizeMethod{}, ErrUnsupported
		case err != nil:
			return "", scsi.SanitizeMethod{}, fmt.Errorf("%w: %w", ErrUnsupported, err)
		case !support.Supported:
			continue
		}
		reason := d.unusable(s.command, support)
		if reason == "" && support.OtherUnits {
			reason = otherUnits(sys, device)
		}
		if reason == "" {
			return s.technique, s.command, nil
		}
		reasons = append(reasons, fmt.Sprintf("%v: %s", s.command, reason))
	}
	if len(reasons) == 0 {
		return "", scsi.SanitizeMethod{}, ErrUnsupported
	}
	return "", scsi.SanitizeMethod{}, fmt.Errorf("%w: %s", ErrUnsupported, strings.Join(reasons, ", "))
}

// unusable returns why a method that the disk supports is not used, "" if it can be.
func (d *scsiDevice) unusable(m scsi.SanitizeMethod, support scsi.Support) string {
	if !support.Exit {
		return "the disk does not support the bits IMMED and AUSE"
	}
	blockErase, cryptographicErase, err := d.disk.ReadableAfter()
	if err != nil { // pages of vital product data are optional
		return ""
	}
	after := map[string]scsi.Readable{
		scsi.BlockErase.String(): blockErase, scsi.CryptographicErase.String(): cryptographicErase,
	}[m.String()]
	if after.Fails() {
		return "blocks cannot be read afterwards before they are written"
	}
	return ""
}

// otherUnits returns why a command that may affect other logical units of the target of a disk is not used, "" if there
// are no others. The numbers of an adapter that does not tell how its disks are connected name no target: units of it
// can be somewhere else, also in another machine.
func otherUnits(sys sysfs.Root, device block.Device) string {
	entries, err := os.ReadDir(sys.Sys("class/scsi_device"))
	if err != nil {
		return fmt.Sprintf("it could erase other logical units, which cannot be listed: %v", err)
	}
	if device.Transport != "sas" {
		return "it could erase other logical units, which this machine cannot see"
	}
	target := device.HCTL[:strings.LastIndexByte(device.HCTL, ':')+1]
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), target) && e.Name() != device.HCTL {
			return "it could erase logical unit " + e.Name() + ", too"
		}
	}
	return ""
}

// sanitize sanitizes a disk and reads samples of it.
func (d *scsiDevice) sanitize(ctx context.Context, technique Technique, m scsi.SanitizeMethod) error {
	taken, err := takeSamples(ctx, d.file, d.size, d.sampling)
	if err != nil {
		return err
	}
	defer taken.free()
	seen, err := d.run(ctx, technique, m)
	if err != nil {
		return err
	}
	err = taken.verify(ctx, d.file)
	// A disk that is ready has completed its last sanitize, or never started one. It has no state that tells these
	// apart if none was seen in progress. The samples do: they changed.
	proven := seen || err == nil && taken.comparable() > 0
	d.reportSanitize(m, seen, false, proven)
	if err == nil && !proven {
		return fmt.Errorf("%v: %w, and no sample could have changed", m, errNotStarted)
	}
	if err != nil && !errors.Is(err, ErrNotErased) && ctx.Err() == nil {
		// Disks need not be readable after a sanitize, and need not say that they are not.
		return fmt.Errorf("%w: %v was completed, but cannot be verified: %w", ErrUnsupported, m, err)
	}
	return err
}

// reportSanitize records what the disk reported after a sanitize. completed means that one has ended without an error.
func (d *scsiDevice) reportSanitize(m scsi.SanitizeMethod, seen, failed, completed bool) {
	text := fmt.Sprintf("after %v: sanitize in progress seen %t, failed %t", m, seen, failed)
	d.record.reported(evidence.SourceSCSISanitize, text, completed)
}

// run starts a sanitize and waits for its end. It returns whether one was seen in progress.
func (d *scsiDevice) run(ctx context.Context, technique Technique, m scsi.SanitizeMethod) (seen bool, err error) {
	startErr := d.disk.Sanitize(m)
	timelimit.Progress(ctx)
	var rejected *scsi.CommandError
	if errors.As(startErr, &rejected) {
		return false, startErr
	}
	// If the kernel returned an error, for example because the adapter was reset, the sanitize may have started.
	if startErr == nil {
		d.record.observe(Progress{Phase: SanitizeStarted, Technique: technique})
	}
	state, seen, err := d.await(ctx)
	switch {
	case err != nil:
		return seen, fmt.Errorf("%v: %w", m, err)
	case startErr != nil && !seen && !state.Failed:
		return false, startErr
	case state.Failed:
		d.reportSanitize(m, seen, state.Failed, false)
		return seen, errors.Join(fmt.Errorf("%v: the disk reports that the sanitize failed", m), d.exitFailure())
	}
	return seen, nil
}

func (d *scsiDevice) state(ctx context.Context) (scsi.SanitizeState, error) {
	state, err := d.disk.SanitizeState()
	timelimit.Progress(ctx)
	return state, err
}

// await waits until no sanitize is in progress, and returns the state and whether there was one. Errors wrap
// errRejects.
func (d *scsiDevice) await(ctx context.Context) (state scsi.SanitizeState, seen bool, err error) {
	w := sanitizeWait{size: d.size, stall: sanitizeStall, record: d.record}
	err = w.await(ctx, func() (progress uint16, ended bool, err error) {
		state, err = d.state(ctx)
		seen = seen || state.InProgress
		return state.Progress, !state.InProgress, err
	})
	return state, seen, err
}

// settle waits for a sanitize in progress, and ends the failure mode of the last one. It reports whether there was one.
// A disk that does not report its state is not waited for.
func (d *scsiDevice) settle(ctx context.Context) (found bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	state, err := d.state(ctx)
	if err != nil {
		return false, ctx.Err()
	}
	if state.InProgress {
		found = true
		if state, _, err = d.await(ctx); err != nil {
			return found, fmt.Errorf("sanitize that was in progress: %w", err)
		}
	}
	if state.Failed {
		return true, d.exitFailure()
	}
	return found, nil
}

// makeReady settles a disk. With decideOnly, a disk that is not settled is an error.
func (d *scsiDevice) makeReady(ctx context.Context, decideOnly bool) error {
	if !decideOnly {
		_, err := d.settle(ctx)
		return err
	}
	state, err := d.state(ctx)
	if err != nil {
		return ctx.Err()
	}
	return unsettled(state.InProgress, state.Failed)
}

// exitFailure makes a disk usable whose last sanitize failed. The error wraps errRejects.
func (d *scsiDevice) exitFailure() error {
	err := d.disk.ExitFailureMode()
	if err == nil {
		return nil
	}
	// A disk leaves this state only by a sanitize without AUSE, which sg_sanitize sends.
	return fmt.Errorf("%w after a failed sanitize: sanitize it again, for example with sg_sanitize --block %s: %w",
		errRejects, d.path, err)
}

// recoverSCSI makes a disk usable that is being sanitized, or whose last sanitize failed.
func recoverSCSI(
	ctx context.Context, device block.Device, record *Recorder, open sgOpener,
) error {
	transport, file, _, err := open(device.Path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	d := scsiDevice{disk: scsi.New(transport), file: file, path: device.Path, size: device.Size, record: record}
	found, err := d.settle(ctx)
	if err != nil || !found {
		return err
	}
	return block.Rescan(ctx, device.Path) // the kernel could not read the partition table
}
