package imaging

import (
	"context"
	"fmt"
	"time"

	"ironroot/agent/status"
	"ironroot/internal/goroutine"
	"ironroot/storage/image"
)

const (
	// progressInterval is the time between two snapshots of the write's progress. The tracker limits how often it is
	// logged and displayed.
	progressInterval = time.Second / 4
	durationStep     = 100 * time.Millisecond
)

// showProgress shows the progress of the write until stop is called with the result, "" for a write that failed.
func (i *Imager) showProgress(ctx context.Context, disk string, progress *image.Progress) (stop func(result string)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	tracker := i.o.Board.Track(i.o.Log, "writing image", disk)
	goroutine.Go(func() error {
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				s := progress.Snapshot()
				tracker.SetUnwritten(s.Unwritten)
				tracker.SetPhase(string(s.Phase), s.Attempt, s.Read, s.Total)
			}
		}
	}, func(error) { close(done) }) // the write does not depend on its display
	return func(result string) {
		cancel()
		<-done
		tracker.EndWith(result)
	}
}

// resultText describes an image that was written to a device.
func resultText(report image.Report, device string) string {
	return fmt.Sprintf("image of %s written to %s in %v (%s)", status.Size(report.Size), device,
		report.Duration.Round(durationStep), status.Rate(report.Size, report.Duration))
}
