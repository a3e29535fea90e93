package device

import (
	"os"

	"golang.org/x/sys/unix"
)

// preferHugePages asks for huge pages. Small ones work too.
func preferHugePages(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

// openDirect opens a device to write past the page cache.
func openDirect(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|unix.O_DIRECT, 0)
}

// dropBuffers drops the kernel's cache of a block device.
func dropBuffers(f *os.File) error { return unix.IoctlSetInt(int(f.Fd()), unix.BLKFLSBUF, 0) }
