// Package efivarfs reads and changes the files by which Linux's efivarfs shows UEFI variables
// (Documentation/filesystems/efivarfs.rst of Linux).
package efivarfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

const immutable = 0x10 // FS_IMMUTABLE_FL

// ErrNotMounted is returned if the kernel shows no UEFI variables.
var ErrNotMounted = errors.New("efivarfs is not mounted: kernel has none, or firmware has no variables at run time")

// CheckMounted returns an error that wraps ErrNotMounted if dir, the directory of efivarfs, does not exist or is the
// empty directory that the kernel creates for it.
func CheckMounted(dir string) error {
	empty, err := onSysfs(dir)
	switch {
	case empty || errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", dir, ErrNotMounted)
	case err != nil:
		return err
	}
	return nil
}

// MakeMutable clears the immutable flag of a file, which efivarfs sets to prevent accidental deletion. A missing file
// and a file system without flags are not errors.
func MakeMutable(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written through it
	flags, err := flagsOf(f)
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read flags of %s: %w", path, err)
	}
	if flags&immutable == 0 {
		return nil
	}
	if err := setFlags(f, flags&^immutable); err != nil {
		return fmt.Errorf("clear immutable flag of %s: %w", path, err)
	}
	return nil
}
