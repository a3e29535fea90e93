package clock

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// The uptime lies between two readings of /proc/uptime, which has two decimals.
func TestUptime(t *testing.T) {
	read := func() time.Duration {
		text, err := os.ReadFile("/proc/uptime")
		if err != nil {
			t.Fatal(err)
		}
		var seconds, idle float64
		if _, err := fmt.Sscan(string(text), &seconds, &idle); err != nil {
			t.Fatalf("parse /proc/uptime %q: %v", text, err)
		}
		return time.Duration(seconds * float64(time.Second))
	}
	before := read()
	got := Uptime()
	after := read()
	const precision = 10 * time.Millisecond
	if got < before-precision || got > after+precision {
		t.Errorf("got an uptime of %v, want %v to %v", got, before, after)
	}
}
