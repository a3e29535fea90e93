package imaging

import (
	"context"
	"fmt"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/storage/image"
)

const (
	// progressInterval is the time between two snapshots of the write's progress. The tracker limits how often it is
	// logged.
	progressInterval = time.Second
	durationStep     = 100 * time.Millisecond
)

// Tracker shows the progress of one operation.
type Tracker interface {
	SetPhase(phase string, attempt int, done, total int64) // bytes; a total of 0 is unknown
	End()
}

type noTracker struct{}

func (noTracker) SetPhase(string, int, int64, int64) {}
func (noTracker) End()                               {}

// showProgress shows the progress of the write until stop is called.
func (i *Imager) showProgress(ctx context.Context, disk string, progress *image.Progress) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	tracker := i.o.Track("writing image", disk)
	goroutine.Go(func() error {
		defer tracker.End()
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				s := progress.Snapshot()
				tracker.SetPhase(string(s.Phase), s.Attempt, s.Read, s.Total)
			}
		}
	}, func(error) { close(done) }) // the write does not depend on its display
	return func() {
		cancel()
		<-done
	}
}

// rate formats bytes per d in MiB/s.
func rate(bytes int64, d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f MiB/s", float64(bytes)/(1<<20)/d.Seconds())
}
