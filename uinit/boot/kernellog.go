//go:build linux

package boot

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
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

// maxKernelLog limits the part of the kernel's log that is written again, in bytes. It is the latest part.
const maxKernelLog = 16 << 20

// cleanKernelLog removes what clean changes from the kernel's log. The kernel cannot erase its log, but new lines
// overwrite the oldest ones. If clean changes any record, all are overwritten. Those that syslog(2) has shown, which
// are the ones since the log was cleared (dmesg --clear), are written again as clean returns them.
func cleanKernelLog(clean func(string) string) error {
	size, err := unix.Klogctl(actionSize, nil)
	if err != nil {
		return fmt.Errorf("get size of kernel log: %w", err)
	}
	// Not by syslog(2): it does not show what was written before the log was cleared.
	isClean := func() (bool, error) { return kernelLogIsClean(size, clean) }
	if done, err := isClean(); done || err != nil {
		return err
	}
	buffer := make([]byte, min(size, maxKernelLog))
	n, err := unix.Klogctl(actionReadAll, buffer)
	if err != nil {
		return fmt.Errorf("read kernel log: %w", err)
	}
	after := clean(string(buffer[:n]))
	if _, err := unix.Klogctl(actionConsoleOff, nil); err != nil {
		return fmt.Errorf("keep kernel log off the consoles: %w", err)
	}
	err = errors.Join(overwriteKernelLog(size), writeKernelLog(after))
	_, restoreErr := unix.Klogctl(actionConsoleOn, nil)
	if err := errors.Join(err, restoreErr); err != nil {
		return err
	}
	if done, err := isClean(); done || err != nil {
		return err
	}
	return errors.New("kernel log contains secrets after it was overwritten")
}

// kernelLogIsClean reports whether clean changes none of the records in the kernel's log, whose size is in bytes.
func kernelLogIsClean(size int, clean func(string) string) (bool, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("open /dev/kmsg: %w", err)
	}
	defer unix.Close(fd)      //nolint:errcheck // only read
	const minRecordBytes = 16 // in the kernel's memory, with its header
	isClean := true
	err = readRecords(func(buffer []byte) (int, error) { return unix.Read(fd, buffer) }, size/minRecordBytes,
		func(record []byte) {
			text := recordText(record)
			isClean = isClean && clean(text) == text
		})
	if err != nil {
		return false, fmt.Errorf("read /dev/kmsg: %w", err)
	}
	return isClean, nil
}

// readRecords calls f for each record that /dev/kmsg contains now. read reads the next one, and fails with EAGAIN after
// the last one. The kernel can add records as fast as they are read: after most records, there are only new ones.
// Records that the kernel overwrites before they are read are omitted.
func readRecords(read func(buffer []byte) (int, error), most int, f func(record []byte)) error {
	buffer := make([]byte, maxRecord)
	for done := 0; done < most; {
		n, err := read(buffer)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EPIPE): // the next one was overwritten, and others perhaps
		case err != nil:
			return err
		case n == 0:
			return errors.New("end of file")
		default:
			f(buffer[:n])
		}
		done++
	}
	return nil
}

// recordText returns the text and the properties of a record of /dev/kmsg without the kernel's escapes, which are \xNN
// for control characters, for bytes that are not ASCII, and for the backslash (Documentation/ABI/testing/dev-kmsg in
// Linux).
func recordText(record []byte) string {
	const escapeBytes = len(`\xNN`)
	_, escaped, _ := bytes.Cut(record, []byte(";"))
	text := make([]byte, 0, len(escaped))
	for len(escaped) > 0 {
		if len(escaped) >= escapeBytes && escaped[0] == '\\' && escaped[1] == 'x' {
			if value, err := strconv.ParseUint(string(escaped[2:escapeBytes]), 16, 8); err == nil {
				text = append(text, byte(value))
				escaped = escaped[escapeBytes:]
				continue
			}
		}
		text = append(text, escaped[0])
		escaped = escaped[1:]
	}
	return string(text)
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
			// Without a line feed, the kernel shows the last line only after the next one.
			if _, err := f.WriteString(line[:min(len(line), longest)] + "\n"); err != nil {
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
