//go:build linux

package boot

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// maxDescriptors limits the open files of the process. The kernel's limit of 4096 for process 1 is close to the need
// of a machine with many disks whose API is at its connection limit.
const maxDescriptors = 16384

// raiseDescriptors raises the limit of open files to maxDescriptors.
func raiseDescriptors() error {
	limit := unix.Rlimit{Cur: maxDescriptors, Max: maxDescriptors}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("set limit of open files to %d: %w", maxDescriptors, err)
	}
	return nil
}
