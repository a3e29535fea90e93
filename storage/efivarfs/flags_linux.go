package efivarfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// flagsOf returns the flags of a file (ioctl_iflags(2)).
func flagsOf(f *os.File) (int, error) { return unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS) }

// setFlags sets the flags of a file.
func setFlags(f *os.File, flags int) error {
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
}

// onSysfs reports whether a directory is one of sysfs, with nothing mounted on it.
func onSysfs(dir string) (bool, error) {
	var info unix.Statfs_t
	if err := unix.Statfs(dir, &info); err != nil {
		return false, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return info.Type == unix.SYSFS_MAGIC, nil
}
