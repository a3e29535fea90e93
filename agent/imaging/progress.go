package imaging

import (
	"context"
	"fmt"
	"time"

	"ironroot/storage/image"
)

const (
	progressInterval = 5 * time.Second
	durationStep     = 100 * time.Millisecond
)

// showProgress logs from time to time how far the write is, until stop is called.
func (i *Imager) showProgress(ctx context.Context, id, disk string, progress *image.Progress) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		last := progress.Snapshot()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				now := progress.Snapshot()
				i.o.Log.Info("writing image", progressOf(id, disk, last, now)...)
				last = now
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func progressOf(id, disk string, last, now image.Snapshot) []any {
	attrs := []any{"image", id, "device", disk, "phase", string(now.Phase)}
	if percent, known := now.Percent(); known {
		attrs = append(attrs, "percent", percent)
	}
	attrs = append(attrs, "MiB", now.Read>>20)
	if now.Attempt == last.Attempt {
		attrs = append(attrs, "rate", rate(now.Read-last.Read, now.Elapsed-last.Elapsed))
	}
	if now.Attempt > 1 {
		attrs = append(attrs, "attempt", now.Attempt)
	}
	return attrs
}

// rate puts bytes a time into MiB/s.
func rate(bytes int64, d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f MiB/s", float64(bytes)/(1<<20)/d.Seconds())
}
