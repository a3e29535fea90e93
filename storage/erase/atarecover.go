package erase

import (
	"context"
	"errors"
	"fmt"

	"ironroot/internal/timelimit"
	"ironroot/storage/ata"
	"ironroot/storage/block"
)

func recoverATA(
	ctx context.Context, device block.Device, record *Recorder, open sgOpener,
) error {
	transport, file, _, err := open(device.Path)
	if err != nil {
		return err
	}
	d := ataDisk{drive: ata.New(transport), file: file, path: device.Path, size: device.Size, record: record}
	defer d.file.Close() //nolint:errcheck // nothing was written
	before, err := d.identify(ctx)
	if err != nil {
		return ctx.Err()
	}
	after, unreadable, err := d.recover(ctx, before)
	if err != nil {
		return err
	}
	if s := after.Security; s.Enabled && !s.Frozen {
		// The password of an erase that was interrupted before the drive was switched off, or the one of the unlock.
		// Another password stays: the drive can be used with it.
		if err := d.disable(ctx); err != nil && before.Security.Locked {
			return err
		}
	}
	if unreadable {
		return block.Rescan(ctx, device.Path) // the kernel could not read the partition table
	}
	return nil
}

// recover waits for a sanitize in progress, clears the failure of the last one, and unlocks a locked drive. It returns
// the identity afterwards, and whether the drive could not be read before.
func (d *ataDisk) recover(ctx context.Context, id ata.Identity) (_ ata.Identity, unreadable bool, err error) {
	if id.Sanitize.Supported {
		if unreadable, err = d.settle(ctx); err != nil {
			return id, unreadable, err
		}
	}
	if !id.Security.Locked {
		return id, unreadable, nil
	}
	id, err = d.unlock(ctx, id)
	return id, true, err
}

// settle waits for a sanitize in progress, and clears the failure of the last one. It reports whether there was one. A
// drive that does not report its state, as it may while it is locked, is not waited for.
func (d *ataDisk) settle(ctx context.Context) (found bool, err error) {
	status, err := d.sanitizeStatus(ctx)
	if err != nil {
		return false, ctx.Err()
	}
	if status.InProgress {
		found = true
		if status, err = d.awaitSanitize(ctx); err != nil {
			return found, fmt.Errorf("sanitize that was in progress: %w", err)
		}
	}
	if status.Failed {
		found = true
		if err := d.drive.ClearSanitizeFailure(); err != nil {
			// A drive leaves this state only by a sanitize without FAILURE MODE, which hdparm sends.
			return found, fmt.Errorf("drive rejects reads and writes after a failed sanitize: sanitize it again, for "+
				"example with hdparm --yes-i-know-what-i-am-doing --sanitize-block-erase %s: %w", d.path, err)
		}
	}
	return found, nil
}

// unlock unlocks a drive that an interrupted erase has left locked. It tries to disable security, too.
func (d *ataDisk) unlock(ctx context.Context, id ata.Identity) (ata.Identity, error) {
	switch {
	case id.Security.Expired:
		return id, fmt.Errorf("%w, and rejects passwords after too many wrong ones: switch the drive off and on",
			ErrLocked)
	case id.Security.Frozen:
		return id, fmt.Errorf("%w, and security is frozen: switch the drive off and on", ErrLocked)
	}
	var problems []error
	for _, password := range unlockPasswords {
		err := d.drive.Unlock(password)
		if err == nil {
			err = d.drive.DisablePassword(password)
		}
		problems = append(problems, err)
		if id, err = d.identify(ctx); err != nil { // the password may still be set
			return id, fmt.Errorf("%w: state after the unlock: %w", ErrLocked, errors.Join(append(problems, err)...))
		}
		if !id.Security.Locked {
			return id, nil
		}
	}
	advice := fmt.Sprintf("--user-master m --security-disable MASTERPASSWORD %s", d.path)
	if id.Security.Maximum { // the master password can only erase
		advice = fmt.Sprintf("--user-master m --security-erase MASTERPASSWORD %s", d.path)
	}
	return id, fmt.Errorf("%w that is not known, and locked: use hdparm --security-disable PASSWORD %s "+
		"or hdparm %s: %w", ErrLocked, d.path, advice, errors.Join(problems...))
}

// disable disables the security of an unlocked drive with one of the passwords that an erase sets. Only the attempts of
// SECURITY UNLOCK are limited.
func (d *ataDisk) disable(ctx context.Context) error {
	var problems []error
	for _, password := range unlockPasswords {
		err := d.drive.DisablePassword(password)
		timelimit.Progress(ctx)
		if err == nil {
			return nil
		}
		problems = append(problems, err)
	}
	return fmt.Errorf("%w, which could not be removed: use hdparm --security-disable PASSWORD %s: %w",
		ErrLocked, d.path, errors.Join(problems...))
}
