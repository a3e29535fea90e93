package erase

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ironroot/internal/timelimit"
	"ironroot/storage/ata"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/scsi"
)

const (
	eraseTimeMargin     = 30 * time.Minute // added to the expected time of an erase
	defaultEraseTimeout = 72 * time.Hour   // of drives that do not say how long an erase takes
	minEraseSpeed       = 30 << 20         // bytes per second that any drive erases, as hdparm assumes
)

// erasePassword is the user password that is set for an erase, and removed by it. hdparm(8) calls it NULL, and
// ironic-python-agent uses it, so that each of them can unlock a drive after an interrupted erase of the other.
var erasePassword ata.Password

// unlockPasswords are the passwords to unlock a drive with after an interrupted erase. They are those that
// ironic-python-agent tries: hdparm before 9.51 takes NULL literally for --security-unlock.
var unlockPasswords = []ata.Password{erasePassword, {'N', 'U', 'L', 'L'}}

// securityTechnique returns the technique of SECURITY ERASE UNIT that a drive supports.
func securityTechnique(s ata.SecurityState) Technique {
	if s.Enhanced {
		return ATAEnhanced
	}
	return ATAErase
}

// securityErase erases a drive that is neither locked nor frozen by SECURITY ERASE UNIT. It sets a user password first,
// which replaces one that is set. If the erase fails, it removes the password, even if ctx has ended meanwhile.
func (d *ataDisk) securityErase(ctx context.Context, s ata.SecurityState) (Technique, error) {
	taken, err := takeSamples(ctx, d.file, d.size, d.sampling)
	if err != nil {
		return "", err
	}
	defer taken.free()
	technique, estimate := securityTechnique(s), s.EraseTime
	if s.Enhanced {
		estimate = s.EnhancedTime
	}
	if err := d.drive.SetPassword(erasePassword); err != nil {
		if s.Enabled {
			return "", fmt.Errorf("%w, which could not be replaced: %w", ErrLocked, err)
		}
		return "", errors.Join(err, d.removePassword())
	}
	if err := ctx.Err(); err != nil { // the command can take a minute
		return "", errors.Join(err, d.removePassword())
	}
	timeout := eraseTimeout(estimate, d.size)
	timelimit.Extend(ctx, timeout)
	err = d.record.during(ctx, technique, estimate, func() error {
		return d.drive.SecurityErase(erasePassword, s.Enhanced, timeout)
	})
	timelimit.Progress(ctx)
	if err != nil {
		return "", errors.Join(err, d.removePassword())
	}
	id, err := d.drive.Identify()
	if err != nil {
		return "", fmt.Errorf("state after the erase: %w: %w", err, d.leftLocked())
	}
	if id.Security.Enabled || id.Security.Locked {
		err := errors.New("SECURITY ERASE UNIT: drive reported success but security is still enabled")
		return "", errors.Join(err, d.removePasswordFrom(id.Security))
	}
	d.record.reported(evidence.SourceATASecurity,
		"command completed without an error; security disabled afterwards", true)
	return technique, taken.verify(ctx, d.file)
}

// eraseTimeout returns the time limit of an erase that the drive says to take so long, 0 if it does not say. At its end
// the kernel resets the drive, which aborts the erase and leaves the drive locked. So the limit is at least
// the one that get_erase_timeout_secs in hdparm.c has for a drive of the size that understates the time.
func eraseTimeout(estimate time.Duration, size int64) time.Duration {
	limit := defaultEraseTimeout
	if estimate > 0 {
		limit = 2*estimate + eraseTimeMargin
	}
	seconds := min(size/minEraseSpeed, int64(scsi.MaxTimeout/time.Second)) // a larger number could overflow
	return min(max(limit, time.Duration(seconds)*time.Second+eraseTimeMargin), scsi.MaxTimeout)
}

// removePassword unlocks a drive and disables its security after a failure, also if the context has ended. The error
// wraps ErrLocked and says how to unlock the drive, unless security is disabled afterwards.
func (d *ataDisk) removePassword() error {
	id, err := d.drive.Identify()
	if err != nil {
		return fmt.Errorf("%w: %w", d.leftLocked(), err)
	}
	return d.removePasswordFrom(id.Security)
}

// removePasswordFrom is removePassword for a drive whose state is known.
func (d *ataDisk) removePasswordFrom(s ata.SecurityState) error {
	var problems []error
	if s.Locked {
		problems = append(problems, d.drive.Unlock(erasePassword))
	}
	if s.Enabled {
		problems = append(problems, d.drive.DisablePassword(erasePassword))
		id, err := d.drive.Identify()
		if err != nil {
			return fmt.Errorf("%w: %w", d.leftLocked(), errors.Join(append(problems, err)...))
		}
		s = id.Security
	}
	if s.Enabled || s.Locked {
		return fmt.Errorf("%w: %w", d.leftLocked(), errors.Join(problems...))
	}
	return nil
}

// leftLocked returns the error of a drive whose password was set by an erase and may not have been removed.
func (d *ataDisk) leftLocked() error {
	return fmt.Errorf("%w of 32 zero bytes, set by the erase: start an erase step again, which removes it, "+
		"or switch the drive off and on and use hdparm --security-disable NULL %s", ErrLocked, d.path)
}
