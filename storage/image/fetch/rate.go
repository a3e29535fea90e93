package fetch

import (
	"fmt"
	"sync"
	"time"
)

// minRateWindow is the shortest time over which the rate is measured. It is longer than two reads may take, so that a
// single pause of a server is not a low rate.
const minRateWindow = 2 * time.Minute

// SlowError means that a server sent at less than the minimum rate. Another request to the same server would not help.
type SlowError struct {
	URL    string        // without credentials and query
	Rate   float64       // bytes per second
	Min    int64         // bytes per second
	Window time.Duration // over which the rate was measured
}

func (e *SlowError) Error() string {
	return fmt.Sprintf("download %s: got %.2f bytes per second over %v, want at least %d",
		e.URL, e.Rate, e.Window.Round(time.Millisecond), e.Min)
}

// Timeout reports true: callers treat the error as a timeout, like one of package net.
func (e *SlowError) Timeout() bool { return true }

// rateMeter measures the rate of reads. Time between reads, while the disk is busy, does not count. All connections
// of a fetcher share a meter, so that a reconnect does not start a new window.
type rateMeter struct {
	minimum int64 // bytes per second, 0 accepts any rate
	window  time.Duration

	mu     sync.Mutex
	waited time.Duration // in this window
	bytes  int64         // in this window
}

// add records a read of n bytes. At the end of a window it returns an error if the rate was too low.
func (m *rateMeter) add(n int, took time.Duration, url string) error {
	if m == nil || m.minimum <= 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waited += took
	m.bytes += int64(n)
	if m.waited < m.window {
		return nil
	}
	rate, window := float64(m.bytes)/m.waited.Seconds(), m.waited
	m.waited, m.bytes = 0, 0
	if rate >= float64(m.minimum) {
		return nil
	}
	return &SlowError{URL: url, Rate: rate, Min: m.minimum, Window: window}
}
