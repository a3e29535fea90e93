package erase

import (
	"os"

	"golang.org/x/sys/unix"
)

// directIO is the flag of open(2) for direct I/O.
const directIO = unix.O_DIRECT

// deviceNumber returns the number of a device node.
func deviceNumber(node *unix.Stat_t) uint64 { return node.Rdev }

// isDirect reports whether a file is open for direct I/O.
func isDirect(f *os.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&directIO != 0
}
