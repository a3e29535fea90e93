//go:build linux

package boot

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Actions of syslog(2).
const (
	actionReadAll    = 3
	actionClear      = 5
	actionConsoleOff = 6
	actionConsoleOn  = 7
	actionSize       = 10
)

// cleanKernelLog replaces the kernel's log by what clean returns of it, if it contains anything that clean changes. The
// kernel cannot erase its log, but new lines overwrite the oldest ones.
func cleanKernelLog(clean func(string) string) error {
	size, err := unix.Klogctl(actionSize, nil)
	if err != nil {
		return fmt.Errorf("get size of kernel log: %w", err)
	}
	buffer := make([]byte, size)
	n, err := unix.Klogctl(actionReadAll, buffer)
	if err != nil {
		return fmt.Errorf("read kernel log: %w", err)
	}
	before := string(buffer[:n])
	after := clean(before)
	if after == before {
		return nil
	}
	if _, err := unix.Klogctl(actionConsoleOff, nil); err != nil {
		return fmt.Errorf("keep kernel log off the consoles: %w", err)
	}
	err = errors.Join(overwriteKernelLog(size), writeKernelLog(after))
	_, restoreErr := unix.Klogctl(actionConsoleOn, nil)
	return errors.Join(err, restoreErr)
}

// overwriteKernelLog fills the kernel's log with other lines.
func overwriteKernelLog(size int) error {
	// Otherwise the kernel drops most lines. A kernel parameter can forbid the change.
	if err := os.WriteFile("/proc/sys/kernel/printk_devkmsg", []byte("on\n"), 0); err != nil {
		return err
	}
	const length = 900 // of a line; the kernel's limit is 1024 with its prefix
	line := "<7>ironroot: the kernel log is overwritten " + strings.Repeat(".", length)
	err := withKernelLog(func(f *os.File) error {
		for written := 0; written < 2*size; written += length { // each line also needs a descriptor
			if _, err := f.WriteString(line[:length]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("overwrite kernel log: %w", err)
	}
	_, err = unix.Klogctl(actionClear, nil) // dmesg(1) does not show those lines
	return err
}

// writeKernelLog adds lines as syslog(2) returns them.
func writeKernelLog(text string) error {
	const longest = 900
	return withKernelLog(func(f *os.File) error {
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if _, err := f.WriteString(line[:min(len(line), longest)]); err != nil {
				return err
			}
		}
		return nil
	})
}

func withKernelLog(write func(f *os.File) error) error {
	f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
