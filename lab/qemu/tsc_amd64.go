package qemu

import (
	"math"
	"sync"
	"time"
)

// rdtsc returns the processor's time-stamp counter.
func rdtsc() uint64

// tscKHz returns the frequency of the host's time-stamp counter in kHz, which emulated x86_64 guests have too. It takes
// a tenth of a second once.
var tscKHz = sync.OnceValue(func() int64 {
	began, first := readTSC()
	time.Sleep(100 * time.Millisecond)
	ended, last := readTSC()
	return int64(math.Round(float64(last-first) / ended.Sub(began).Seconds() / 1000))
})

// readTSC returns the counter and the time at which it was read. An attempt can be interrupted, so the shortest of
// several counts.
func readTSC() (at time.Time, ticks uint64) {
	shortest := time.Duration(math.MaxInt64)
	for range 100 {
		before := time.Now()
		read := rdtsc()
		if took := time.Since(before); took < shortest {
			shortest, at, ticks = took, before.Add(took/2), read
		}
	}
	return at, ticks
}
