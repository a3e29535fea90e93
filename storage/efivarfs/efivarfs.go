// Package efivarfs changes the attributes of the files by which Linux's efivarfs shows UEFI variables
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
