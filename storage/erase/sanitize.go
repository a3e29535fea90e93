package erase

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ironroot/internal/pause"
)

const (
	sanitizeInterval = 5 * time.Second  // between two queries of a sanitize in progress
	sanitizeSilence  = 10 * time.Minute // without a reply
	sanitizeStall    = 2 * time.Hour    // without progress
	sanitizeLimit    = 72 * time.Hour   // in all, of a disk that erases minEraseSpeed in less time
)

// errRejects is part of the errors of a drive that accepts no data now, so that it cannot be overwritten either.
var errRejects = errors.New("drive rejects reads and writes")

// sanitizeWait waits for the end of a sanitize.
type sanitizeWait struct {
	size   int64         // of the device, as the total of the progress
	stall  time.Duration // the longest time without progress
	record *Recorder
}

// await waits until query reports that the sanitize has ended. The progress is in 1/65536. A drive or its adapter can
// be reset meanwhile, which does not end the sanitize, so that queries may fail for some minutes. Errors wrap
// errRejects.
func (w sanitizeWait) await(ctx context.Context, query func() (progress uint16, ended bool, err error)) error {
	began := time.Now()
	replied, changed, last := began, began, uint16(0)
	w.report(0)
	for {
		progress, ended, err := query()
		now := time.Now()
		switch {
		case err != nil && now.Sub(replied) >= sanitizeSilence:
			return fmt.Errorf("%w, no state for %v: %w", errRejects, sanitizeSilence, err)
		case err == nil && ended:
			return nil
		case now.Sub(began) >= w.limit():
			return fmt.Errorf("%w, sanitize has not ended after %v, at %d %%", errRejects, w.limit(), int(last)*100>>16)
		case err == nil:
			replied = now
			if progress != last {
				last, changed = progress, now
				w.report(last)
			}
			if now.Sub(changed) >= w.stall {
				return fmt.Errorf("%w, no progress for %v, at %d %%", errRejects, w.stall, int(last)*100>>16)
			}
		}
		if err := pause.For(ctx, sanitizeInterval); err != nil {
			return fmt.Errorf("the sanitize continues in the drive (%w), erase the drive again to wait for its end: %w",
				errRejects, err)
		}
	}
}

// limit returns the time limit of the wait: the progress of a drive can change forever. It is twice the time of the
// slowest drive that erases one byte after the other.
func (w sanitizeWait) limit() time.Duration {
	seconds := min(w.size/minEraseSpeed, 1<<30) // a larger number could overflow
	return max(sanitizeLimit, w.stall, 2*time.Duration(seconds)*time.Second)
}

func (w sanitizeWait) report(progress uint16) {
	w.record.observe(Progress{Phase: Sanitizing, Done: w.size / (1 << 16) * int64(progress), Total: w.size})
}
