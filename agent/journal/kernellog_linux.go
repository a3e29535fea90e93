package journal

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// maxKernelLog limits the copy of the kernel's ring buffer, in bytes.
const maxKernelLog = 16 << 20

// Actions of syslog(2) that x/sys does not define.
const (
	syslogReadAll    = 3
	syslogSizeBuffer = 10
)

// kernelLog returns the kernel's ring buffer.
func kernelLog() ([]byte, error) {
	size, err := unix.Klogctl(syslogSizeBuffer, nil)
	if err != nil {
		return nil, fmt.Errorf("get size of kernel log: %w", err)
	}
	buffer := make([]byte, min(size, maxKernelLog))
	n, err := unix.Klogctl(syslogReadAll, buffer)
	if err != nil {
		return nil, fmt.Errorf("read kernel log: %w", err)
	}
	return buffer[:n], nil
}
