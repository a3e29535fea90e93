package erase

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"ironroot/internal/pause"
	"ironroot/internal/sysfs"
	"ironroot/storage/ata"
	"ironroot/storage/block"
)

// ErrLocked is returned if a drive is locked, or is locked after its next power cycle, and the password could not be
// removed. No erase succeeds then.
var ErrLocked = errors.New("drive is protected by an ATA password")

const (
	commandMargin = 30 * time.Minute // added to twice the time that a drive says an erase takes
	unknownErase  = 72 * time.Hour   // time limit of drives that do not say how long an erase takes
	minEraseSpeed = 30 << 20         // bytes per second that any drive erases, as hdparm assumes

	sanitizeInterval = 5 * time.Second  // between two queries of a sanitize in progress
	sanitizeSilence  = 10 * time.Minute // without a reply
	sanitizeStall    = 2 * time.Hour    // without progress
)

// erasePassword is the user password that is set for an erase, and removed by it. hdparm(8) calls it NULL, and
// ironic-python-agent uses it, so that each of them can unlock a drive after an interrupted erase of the other.
var erasePassword ata.Password

// unlockPasswords are the passwords to unlock a drive with after an interrupted erase. They are those that
// ironic-python-agent tries: hdparm before 9.51 takes NULL literally for --security-unlock.
var unlockPasswords = []ata.Password{erasePassword, {'N', 'U', 'L', 'L'}}

// ataDisk is an open ATA drive.
type ataDisk struct {
	drive      ata.Drive
	file       *os.File
	path       string
	size       int64
	sequential bool // a zoned disk that must be written sequentially
	progress   func(done, total int64)
}

// openATA opens a drive exclusively: the kernel does not check whether it is mounted before it sends a command.
func openATA(path string) (ata.Transport, *os.File, int64, error) {
	f, size, err := openExclusive(path)
	if err != nil {
		return nil, nil, 0, err
	}
	return ata.SG{File: f}, f, size, nil
}

type ataOpener func(path string) (ata.Transport, *os.File, int64, error)

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
	ctx context.Context, sys sysfs.Root, device block.Device, o Options, open ataOpener,
) (_ Method, err error) {
	d := ataDisk{path: device.Path, sequential: device.Zoned == "host-managed", progress: o.Progress}
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
	method, err := d.erase(ctx)
	if err != nil {
		return "", err
	}
	return method, block.Flush(ctx, device.Path)
}

// erase selects a method and erases the drive.
func (d *ataDisk) erase(ctx context.Context) (Method, error) {
	id, err := d.identify(ctx)
	if ctx.Err() != nil {
		return "", ctx.Err()
	} else if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if !id.Security.Supported && !id.Sanitize.Supported {
		return "", ErrUnsupported
	}
	if id, _, err = d.recover(ctx, id); err != nil {
		return "", err
	}
	if id.Security.Supported && !id.Security.Frozen && !id.Security.Expired {
		return d.securityErase(ctx, id.Security)
	}
	command, method := sanitizeMethod(id.Sanitize)
	reason := d.sanitizeUnavailable(ctx, method)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case reason != nil && id.Security.Supported:
		return "", unusable(id.Security, reason)
	case method == "":
		return "", ErrUnsupported
	case reason != nil: // ironic-python-agent overwrites drives without the Security feature set
		return "", fmt.Errorf("%w: %w", ErrUnsupported, reason)
	}
	if err := d.sanitize(ctx, command); err != nil {
		return "", err
	}
	if id.Security.Enabled {
		return "", fmt.Errorf("%w, which cannot be removed now (drive erased: %s): "+
			"switch the drive off and on and erase it again, or remove the password in the firmware's settings",
			ErrLocked, method)
	}
	return method, nil
}

// sanitizeUnavailable returns the reason why a drive cannot be sanitized now by the method of [sanitizeMethod], or nil.
func (d *ataDisk) sanitizeUnavailable(ctx context.Context, method Method) error {
	if method == "" {
		return errors.New("the drive has no sanitize command")
	}
	status, err := d.drive.SanitizeStatus()
	progressed(ctx)
	if err != nil {
		return fmt.Errorf("sanitize does not answer: %w", err)
	}
	if status.Frozen {
		return errors.New("sanitize is frozen until the drive is switched off and on")
	}
	return nil
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

// sanitizeMethod selects the sanitize command of a drive, "" if it has none.
func sanitizeMethod(s ata.SanitizeSupport) (ata.SanitizeMethod, Method) {
	switch {
	case s.BlockErase:
		return ata.BlockErase, ATASanitizeBlock
	case s.CryptoScramble:
		return ata.CryptoScramble, ATASanitizeCrypto
	case s.Overwrite:
		return ata.Overwrite, ATASanitizeOverwrite
	}
	return ata.SanitizeMethod{}, ""
}

func (d *ataDisk) identify(ctx context.Context) (ata.Identity, error) {
	if err := ctx.Err(); err != nil {
		return ata.Identity{}, err
	}
	id, err := d.drive.Identify()
	progressed(ctx)
	return id, err
}

// Recover makes a disk usable that an interrupted erase has left with a password or sanitizing. It waits for the
// sanitize and reports its progress to progress, which can be nil. It clears the failure of the last sanitize, and
// removes a password that an erase has set. The error wraps ErrLocked if the drive is locked by another password.
// Recover does nothing on other devices, and on drives that accept no ATA commands.
func Recover(ctx context.Context, device block.Device, progress func(done, total int64)) error {
	if !isATA(device) {
		return nil
	}
	if err := recoverATA(ctx, device, progress, openReading); err != nil {
		return fmt.Errorf("recover %s: %w", device.Path, err)
	}
	return nil
}

// openReading opens a drive that others can use.
func openReading(path string) (ata.Transport, *os.File, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, 0, err
	}
	return ata.SG{File: f}, f, 0, nil
}

func recoverATA(
	ctx context.Context, device block.Device, progress func(done, total int64), open ataOpener,
) error {
	transport, file, _, err := open(device.Path)
	if err != nil {
		return err
	}
	d := ataDisk{drive: ata.New(transport), file: file, path: device.Path, size: device.Size, progress: progress}
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
	status, err := d.drive.SanitizeStatus()
	progressed(ctx)
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
		progressed(ctx)
		if err == nil {
			return nil
		}
		problems = append(problems, err)
	}
	return fmt.Errorf("%w, which could not be removed: use hdparm --security-disable PASSWORD %s: %w",
		ErrLocked, d.path, errors.Join(problems...))
}

// securityErase erases a drive that is neither locked nor frozen by SECURITY ERASE UNIT. It sets a user password first,
// which replaces one that is set. If the erase fails, it removes the password.
func (d *ataDisk) securityErase(ctx context.Context, s ata.SecurityState) (_ Method, err error) {
	planted, err := plantSamples(ctx, d.file, d.size, d.sequential)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, planted.free()) }()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	method, estimate := ATAErase, s.EraseTime
	if s.Enhanced {
		method, estimate = ATAEnhanced, s.EnhancedTime
	}
	if err := d.drive.SetPassword(erasePassword); err != nil {
		if s.Enabled {
			return "", fmt.Errorf("%w, which could not be replaced: %w", ErrLocked, err)
		}
		return "", errors.Join(err, d.removePassword())
	}
	progressed(ctx)
	if err := ctx.Err(); err != nil { // the command can take a minute
		return "", errors.Join(err, d.removePassword())
	}
	timeout := eraseTimeout(estimate, d.size)
	willTake(ctx, timeout)
	err = d.drive.SecurityErase(erasePassword, s.Enhanced, timeout)
	progressed(ctx)
	if err != nil {
		return "", errors.Join(err, d.removePassword())
	}
	id, err := d.drive.Identify()
	if err != nil {
		return "", fmt.Errorf("state after the erase: %w: %w", err, d.leftLocked())
	}
	if id.Security.Enabled || id.Security.Locked {
		err := errors.New("SECURITY ERASE UNIT: drive reported success but security is still enabled")
		return "", errors.Join(err, d.removePassword())
	}
	return method, planted.verify(ctx, d.file)
}

// eraseTimeout returns the time limit of an erase that the drive says to take so long, 0 if it does not say. At its end
// the kernel resets the drive, which aborts the erase and leaves the drive locked. So the limit is at least that of
// get_erase_timeout_secs in hdparm.c for a drive of the size that understates the time.
func eraseTimeout(estimate time.Duration, size int64) time.Duration {
	limit := unknownErase
	if estimate > 0 {
		limit = 2*estimate + commandMargin
	}
	seconds := min(size/minEraseSpeed, int64(ata.MaxTimeout/time.Second)) // a larger number could overflow
	return min(max(limit, time.Duration(seconds)*time.Second+commandMargin), ata.MaxTimeout)
}

// removePassword unlocks a drive and disables its security after a failure, also if the context has ended. The error
// wraps ErrLocked and says how to unlock the drive, unless security is disabled afterwards.
func (d *ataDisk) removePassword() error {
	id, err := d.drive.Identify()
	if err != nil {
		return fmt.Errorf("%w: %w", d.leftLocked(), err)
	}
	var problems []error
	if id.Security.Locked {
		problems = append(problems, d.drive.Unlock(erasePassword))
	}
	if id.Security.Enabled {
		problems = append(problems, d.drive.DisablePassword(erasePassword))
		if id, err = d.drive.Identify(); err != nil {
			return fmt.Errorf("%w: %w", d.leftLocked(), errors.Join(append(problems, err)...))
		}
	}
	if id.Security.Enabled || id.Security.Locked {
		return fmt.Errorf("%w: %w", d.leftLocked(), errors.Join(problems...))
	}
	return nil
}

// leftLocked returns the error of a drive whose password was set by an erase and may not have been removed.
func (d *ataDisk) leftLocked() error {
	return fmt.Errorf("%w of 32 zero bytes, set by the erase: start an erase step again, which removes it, "+
		"or switch the drive off and on and use hdparm --security-disable NULL %s", ErrLocked, d.path)
}

// sanitize sanitizes a drive.
func (d *ataDisk) sanitize(ctx context.Context, m ata.SanitizeMethod) (err error) {
	planted, err := plantSamples(ctx, d.file, d.size, d.sequential)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, planted.free()) }()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.drive.Sanitize(m); err != nil {
		return err
	}
	progressed(ctx)
	status, err := d.awaitSanitize(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%v: %w", m, err)
	case status.Failed:
		err := fmt.Errorf("%v: the drive reports that the sanitize failed", m)
		return errors.Join(err, d.drive.ClearSanitizeFailure())
	case !status.Completed:
		return fmt.Errorf("%v: the drive does not report that the sanitize was completed", m)
	}
	return planted.verify(ctx, d.file)
}

// awaitSanitize waits until no sanitize is in progress. A drive or its adapter can be reset meanwhile, which does not
// end the sanitize, so that queries may fail for some minutes.
func (d *ataDisk) awaitSanitize(ctx context.Context) (ata.SanitizeStatus, error) {
	replied, changed, last := time.Now(), time.Now(), uint16(0)
	if d.progress != nil {
		d.progress(0, d.size)
	}
	for {
		status, err := d.drive.SanitizeStatus()
		progressed(ctx)
		now := time.Now()
		switch {
		case err != nil && now.Sub(replied) >= sanitizeSilence:
			return status, fmt.Errorf("no state for %v: %w", sanitizeSilence, err)
		case err == nil && !status.InProgress:
			return status, nil
		case err == nil:
			replied = now
			if status.Progress != last {
				last, changed = status.Progress, now
				if d.progress != nil {
					d.progress(d.size/(1<<16)*int64(last), d.size)
				}
			}
			if now.Sub(changed) >= sanitizeStall {
				return status, fmt.Errorf("no progress for %v, at %d %%", sanitizeStall, int(last)*100>>16)
			}
		}
		if err := pause.For(ctx, sanitizeInterval); err != nil {
			return status, fmt.Errorf("the drive continues: %w", err)
		}
	}
}
