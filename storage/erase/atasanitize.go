package erase

import (
	"context"
	"errors"
	"fmt"

	"ironroot/internal/timelimit"
	"ironroot/storage/ata"
	"ironroot/storage/erase/evidence"
)

// sanitizeCommand selects the sanitize command of a drive, "" if it has none.
func sanitizeCommand(s ata.SanitizeSupport) (ata.SanitizeMethod, Technique) {
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

// sanitizeUnavailable returns the reason why a drive cannot be sanitized now by the technique of [sanitizeCommand], or
// nil.
func (d *ataDisk) sanitizeUnavailable(ctx context.Context, technique Technique) error {
	if technique == "" {
		return errors.New("the drive has no sanitize command")
	}
	status, err := d.sanitizeStatus(ctx)
	if err != nil {
		return fmt.Errorf("sanitize does not answer: %w", err)
	}
	if status.Frozen {
		return errors.New("sanitize is frozen until the drive is switched off and on")
	}
	return nil
}

func (d *ataDisk) sanitizeStatus(ctx context.Context) (ata.SanitizeStatus, error) {
	status, err := d.drive.SanitizeStatus()
	timelimit.Progress(ctx)
	return status, err
}

// sanitize sanitizes a drive.
func (d *ataDisk) sanitize(ctx context.Context, m ata.SanitizeMethod) error {
	taken, err := takeSamples(ctx, d.file, d.size, d.sampling)
	if err != nil {
		return err
	}
	defer taken.free()
	if err := d.drive.Sanitize(m); err != nil {
		return err
	}
	timelimit.Progress(ctx)
	status, err := d.awaitSanitize(ctx)
	if err == nil {
		d.record.reported(evidence.SourceATASanitize, fmt.Sprintf("after %v: completed %t, failed %t, frozen %t",
			m, status.Completed, status.Failed, status.Frozen), status.Completed && !status.Failed)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%v: %w", m, err)
	case status.Failed:
		err := fmt.Errorf("%v: the drive reports that the sanitize failed", m)
		return errors.Join(err, d.drive.ClearSanitizeFailure())
	case !status.Completed:
		return fmt.Errorf("%v: the drive does not report that the sanitize was completed", m)
	}
	return taken.verify(ctx, d.file)
}

// awaitSanitize waits until no sanitize is in progress, and returns the state. Errors wrap errRejects.
func (d *ataDisk) awaitSanitize(ctx context.Context) (status ata.SanitizeStatus, err error) {
	w := sanitizeWait{size: d.size, stall: sanitizeStall, record: d.record}
	err = w.await(ctx, func() (progress uint16, ended bool, err error) {
		status, err = d.sanitizeStatus(ctx)
		return status.Progress, !status.InProgress, err
	})
	return status, err
}
