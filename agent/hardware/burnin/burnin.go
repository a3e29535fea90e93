// Package burnin tests the processors, the memory, the disks and the network of a machine under load, and verifies
// every result.
//
// It takes the settings of ironic-python-agent's burn-in steps, which run stress-ng and fio, from driver_info of the
// node. Unlike those programs' defaults, it verifies what processors compute and what memory returns, and ends a test
// early, with an error, if the hardware has failed.
//
// Reports contain what was tested in exact figures. Counters of the kernel (thermal throttling, machine checks, errors
// of memory controllers) are read before and after a test. A report contains those that have changed and names those
// that this machine does not have.
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
