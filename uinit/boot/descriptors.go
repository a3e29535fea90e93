package boot

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// maxDescriptors is the number of files that the process may open. The kernel's limit of 4096 for process 1 is close
// to what a machine with many disks and an API at its connection limit needs.
const maxDescriptors = 16384

// raiseDescriptors raises the limit of open files to maxDescriptors.
func raiseDescriptors() error {
	limit := unix.Rlimit{Cur: maxDescriptors, Max: maxDescriptors}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("set limit of open files to %d: %w", maxDescriptors, err)
	}
	return nil
}
