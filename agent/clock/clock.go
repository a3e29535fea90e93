package clock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The current time is between these two. Another time means that a clock's battery is empty, or that a server is broken
// or tries to make expired certificates valid.
func earliest() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
func latest() time.Time   { return time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC) }

// Check returns an error if t cannot be the current time: before this program was written, or far in the future.
func Check(t time.Time) error {
	if t.Before(earliest()) || !t.Before(latest()) {
		return fmt.Errorf("implausible time %s, want one between %s and %s",
			t.UTC().Format(time.RFC3339), earliest().Format(time.DateOnly), latest().Format(time.DateOnly))
	}
	return nil
}

// SetSystem sets the system clock.
func SetSystem(now time.Time) error {
	tv := unix.NsecToTimeval(now.UnixNano())
	if err := unix.Settimeofday(&tv); err != nil {
		return fmt.Errorf("set system clock to %v: %w", now, err)
	}
	return nil
}

// device is the hardware clock that the kernel reads at boot.
const device = "/dev/rtc0"

// Hardware returns the time of the hardware clock, interpreted as UTC. The error wraps fs.ErrNotExist if the machine
// has none.
func Hardware() (time.Time, error) {
	file, err := os.Open(device)
	if err != nil {
		return time.Time{}, fmt.Errorf("open hardware clock: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	now, err := readRTC(file)
	if err != nil {
		return time.Time{}, fmt.Errorf("read hardware clock %s: %w", device, err)
	}
	return now, nil
}

// SetHardware sets the hardware clock to UTC. It does nothing if the machine has none.
func SetHardware(now time.Time) error {
	file, err := os.Open(device)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open hardware clock: %w", err)
	}
	defer file.Close() //nolint:errcheck // nothing was written through it
	utc := now.UTC()
	if err := setRTC(file, utc); err != nil {
		return fmt.Errorf("set hardware clock %s to %v: %w", device, utc, err)
	}
	return nil
}

// Machine gives access to the clocks of this machine.
type Machine struct{}

// Now returns the time of the system clock.
func (Machine) Now() time.Time { return time.Now() }

// SetSystem calls [SetSystem].
func (Machine) SetSystem(now time.Time) error { return SetSystem(now) }

// Hardware calls [Hardware].
func (Machine) Hardware() (time.Time, error) { return Hardware() }

// SetHardware calls [SetHardware].
func (Machine) SetHardware(now time.Time) error { return SetHardware(now) }
