package burnin

import (
	"log/slog"
	"sync"
	"time"

	"ironroot/storage/sysfs"
)

// Machine is the machine under test.
type Machine struct {
	System sysfs.Root
	Log    *slog.Logger
}

// logInterval is the time between two lines in the log about a running test.
const logInterval = 5 * time.Minute

// ticker calls a function at most once in each interval.
type ticker struct {
	mu   sync.Mutex
	last time.Time
}

// tick calls f if the last call was longer than logInterval ago.
func (t *ticker) tick(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.last) >= logInterval {
		t.last = time.Now()
		f()
	}
}

// seconds returns a duration in seconds, as reports contain it.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
