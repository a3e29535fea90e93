package block

import (
	"os"
	"unsafe"

	blockdev "github.com/siderolabs/go-blockdevice/v2/block"
	"golang.org/x/sys/unix"
)

// flushBuffers drops the kernel's buffers of a device.
func flushBuffers(f *os.File) error { return unix.IoctlSetInt(int(f.Fd()), unix.BLKFLSBUF, 0) }

// readTable makes the kernel reread the partition table of a disk.
func readTable(f *os.File) error { return unix.IoctlSetInt(int(f.Fd()), unix.BLKRRPART, 0) }

// addPartition adds a partition to the kernel's list. start and size are in bytes.
func addPartition(disk *os.File, n int, start, size int64) error {
	return blockdev.NewFromFile(disk).KernelPartitionAdd(n, uint64(start), uint64(size))
}

// removePartition removes a partition from the kernel's list.
func removePartition(disk *os.File, n int) error {
	return blockdev.NewFromFile(disk).KernelPartitionDelete(n)
}

// deviceSize returns the size of a device in bytes.
func deviceSize(f *os.File) (int64, error) {
	var bytes uint64
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKGETSIZE64, uintptr(unsafe.Pointer(&bytes)))
	if errno != 0 {
		return 0, errno
	}
	return int64(bytes), nil
}

// sectorSize returns the logical sector size of a device in bytes.
func sectorSize(f *os.File) (int64, error) {
	n, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKSSZGET)
	return int64(n), err
}

// zeroDevice zeroes a range of a device.
func zeroDevice(f *os.File, off, length int64) error {
	args := [2]uint64{uint64(off), uint64(length)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKZEROOUT, uintptr(unsafe.Pointer(&args)))
	if errno != 0 {
		return errno
	}
	return nil
}

// zeroRange zeroes a range of a file or device, and keeps its blocks.
func zeroRange(f *os.File, off, length int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, off, length)
}

// punchHole zeroes a range of a file or device, and frees its blocks.
func punchHole(f *os.File, off, length int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, length)
}

// memoryFile returns an empty file without a name.
func memoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
