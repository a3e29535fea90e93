package erase

import (
	"context"
	"errors"
	"fmt"
	"os"

	"ironroot/internal/timelimit"
	"ironroot/storage/ata"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// ErrLocked is returned if a drive is locked, or is locked after its next power cycle, and the password could not be
// removed. No erase succeeds then.
var ErrLocked = errors.New("drive is protected by an ATA password")

// ataDisk is an open ATA drive.
type ataDisk struct {
	drive    ata.Drive
	file     *os.File
	path     string
	size     int64
	sampling sampling
	record   *Recorder

	decideOnly bool // see [Options]
}

// isATA reports whether a device is a disk of a driver of libata. Commands to SATA drives behind SAS and RAID adapters
// and USB bridges pass through firmware, which can lose one that takes hours and leave the drive locked, or return
// results that are not the drive's.
func isATA(d block.Device) bool {
	return d.Type != "part" && (d.Transport == "sata" || d.Transport == "ata")
}

// eraseATA erases a drive by an erase of the Security feature set. If security is not supported or frozen, it
// sanitizes the drive. The error wraps ErrUnsupported if the drive supports neither, and ErrLocked if it is left with
// a password.
func eraseATA(
	ctx context.Context, sys sysfs.Root, device block.Device, o Options, open sgOpener,
) (_ Technique, err error) {
	d := ataDisk{
		path: device.Path, sampling: o.sampling(device), record: o.Recorder, decideOnly: o.decideOnly,
	}
	if err := o.Wait.until(ctx, sys, device.Path, func() error {
		transport, file, size, err := open(device.Path)
		d.drive, d.file, d.size = ata.New(transport), file, size
		return err
	}); err != nil {
		return "", err
	}
	defer func() {
		if closeErr := d.file.Close(); closeErr != nil {
			err = errors.Join(err, closeErr)
		}
	}()
	technique, err := d.erase(ctx)
	if err != nil {
		return "", err
	}
	if o.decideOnly {
		return technique, nil
	}
	return technique, block.Flush(ctx, device.Path)
}

// erase selects a technique and erases the drive.
func (d *ataDisk) erase(ctx context.Context) (Technique, error) {
	id, err := d.identifyErasable(ctx)
	if err != nil {
		return "", err
	}
	if id, err = d.makeReady(ctx, id); err != nil {
		return "", err
	}
	d.noteHidden(ctx, id.Capacity, nil) // drives that are locked or sanitize themselves reject the queries
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	technique, command, err := d.choose(ctx, id)
	if err != nil {
		return "", err
	}
	if d.decideOnly {
		return technique, nil
	}
	if command == nil {
		return d.securityErase(ctx, id.Security)
	}
	if err := d.sanitize(ctx, *command); err != nil {
		return "", err
	}
	if id.Security.Enabled {
		return "", fmt.Errorf("%w, which cannot be removed now (drive erased: %s): "+
			"switch the drive off and on and erase it again, or remove the password in the firmware's settings",
			ErrLocked, technique)
	}
	return technique, nil
}

// makeReady recovers a drive, and returns its identity afterwards. With decideOnly, a drive that must be recovered is
// an error.
func (d *ataDisk) makeReady(ctx context.Context, id ata.Identity) (ata.Identity, error) {
	if !d.decideOnly {
		ready, _, err := d.recover(ctx, id)
		if err != nil {
			d.noteHidden(ctx, id.Capacity, err)
		}
		return ready, err
	}
	if id.Security.Locked {
		return id, fmt.Errorf("%w: an erase tries to remove the one of an interrupted erase", ErrLocked)
	}
	if id.Sanitize.Supported {
		if status, err := d.sanitizeStatus(ctx); err == nil {
			return id, unsettled(status.InProgress, status.Failed)
		}
	}
	return id, nil
}

// identifyErasable identifies a drive. The error wraps ErrUnsupported if it cannot be identified or cannot erase
// itself.
func (d *ataDisk) identifyErasable(ctx context.Context) (ata.Identity, error) {
	id, err := d.identify(ctx)
	if ctx.Err() != nil {
		return id, ctx.Err()
	} else if err != nil {
		d.noteHidden(ctx, ata.Capacity{HPA: true, DCO: true}, err) // it may have both
		return id, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if !id.Security.Supported && !id.Sanitize.Supported {
		d.noteHidden(ctx, id.Capacity, nil)
		return id, ErrUnsupported
	}
	return id, nil
}

// choose selects the technique for a drive that is not locked, and its sanitize command, nil for SECURITY ERASE UNIT.
func (d *ataDisk) choose(ctx context.Context, id ata.Identity) (Technique, *ata.SanitizeMethod, error) {
	if id.Security.Supported && !id.Security.Frozen && !id.Security.Expired {
		return securityTechnique(id.Security), nil, nil
	}
	command, technique := sanitizeCommand(id.Sanitize)
	reason := d.sanitizeUnavailable(ctx, technique)
	switch {
	case ctx.Err() != nil:
		return "", nil, ctx.Err()
	case reason != nil && id.Security.Supported:
		return "", nil, unusable(id.Security, reason)
	case technique == "":
		return "", nil, ErrUnsupported
	case reason != nil: // ironic-python-agent overwrites drives without the Security feature set
		return "", nil, fmt.Errorf("%w: %w", ErrUnsupported, reason)
	}
	return technique, &command, nil
}

// unusable returns the error of a drive whose security is frozen or expired and that cannot be sanitized for a reason.
func unusable(s ata.SecurityState, sanitize error) error {
	err := fmt.Errorf("ATA security is frozen by the firmware (%w): switch the drive off and on, "+
		"or disable the freeze lock in the firmware's settings", sanitize)
	if s.Expired {
		err = fmt.Errorf("ATA security rejects passwords after too many wrong ones (%w): "+
			"switch the drive off and on", sanitize)
	}
	if s.Enabled {
		return fmt.Errorf("%w: %w; or remove the password in the firmware's settings", ErrLocked, err)
	}
	return err
}

func (d *ataDisk) identify(ctx context.Context) (ata.Identity, error) {
	if err := ctx.Err(); err != nil {
		return ata.Identity{}, err
	}
	id, err := d.drive.Identify()
	timelimit.Progress(ctx)
	if err == nil {
		d.record.change(func(r *Report) { r.Firmware, r.NoRotationRate = id.Firmware, !id.ReportsRate })
	}
	return id, err
}
