package inspection

import (
	"context"
	"log/slog"
	"time"

	"ironroot/internal/pause"
)

// The interval of a daemon is multiplied by a random factor between minJitter and maxJitter, so that the machines of a
// rack do not post at the same time. After a failure it grows by backoff, up to maxBackoff times the interval.
const (
	minJitter, maxJitter = 0.7, 1.2
	backoff              = 2.7
	maxBackoff           = 4
)

// Repeat runs an inspection at once and then about every interval until ctx ends. Failures are logged. The function
// random returns numbers from 0 to 1.
func Repeat(ctx context.Context, interval time.Duration, random func() float64, log *slog.Logger,
	run func(context.Context) error,
) {
	average := interval
	for {
		if err := run(ctx); err == nil {
			average = interval
		} else if ctx.Err() == nil {
			average = min(time.Duration(backoff*float64(average)), maxBackoff*interval)
			log.Warn("inspection failed, will be repeated", "err", err)
		}
		wait := time.Duration(float64(average) * (minJitter + (maxJitter-minJitter)*random()))
		log.Info("next inspection", "in", wait.Round(time.Millisecond))
		if pause.For(ctx, wait) != nil {
			return
		}
	}
}
