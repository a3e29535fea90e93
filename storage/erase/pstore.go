package erase

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ironroot/storage/efivarfs"
	"ironroot/storage/sysfs"
)

// Prefix and suffix of the names of the UEFI variables in which Linux stores the log of a crash (LINUX_EFI_CRASH_GUID
// in Linux's efi.h).
const (
	crashVariable = "dump-"
	crashGUID     = "-cfc8fc79-be2e-4ddc-97f0-9f98bfe298a0"
)

// Pstore removes the crash logs of earlier kernels from the firmware: the entries of mounted pstore file systems, and
// the UEFI variables, which needs no pstore back end. It returns an error if crash logs remain, or if pstore or UEFI
// variables exist and cannot be read.
//
// searched reports whether the kernel has UEFI variables. On a machine booted by BIOS it has none, and crash logs of
// an earlier boot by UEFI can remain.
func Pstore(ctx context.Context, sys sysfs.Root) (searched bool, err error) {
	if searched, err = pstore(ctx, sys); err != nil {
		return false, fmt.Errorf("erase pstore: %w", err)
	}
	return searched, nil
}

func pstore(ctx context.Context, sys sysfs.Root) (searched bool, err error) {
	mounts, err := mountPoints(sys, "pstore")
	if err != nil {
		return false, err
	}
	var problems []error
	if len(mounts) == 0 {
		// The kernel creates the directory if it supports pstore.
		if _, err := os.Stat(sys.Sys("fs/pstore")); err == nil {
			problems = append(problems, errors.New("crash logs cannot be read: pstore is not mounted"))
		} else if !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		}
	}
	for _, directory := range mounts {
		problems = append(problems, emptyDirectory(ctx, directory, func(string) bool { return true }))
	}
	searched, err = crashVariables(ctx, sys)
	return searched, errors.Join(append(problems, err)...)
}

// crashVariables removes the crash logs among the UEFI variables, and reports whether the kernel has them.
func crashVariables(ctx context.Context, sys sysfs.Root) (searched bool, err error) {
	if _, err := os.Stat(sys.Sys("firmware/efi")); errors.Is(err, fs.ErrNotExist) {
		return false, nil // booted by BIOS
	} else if err != nil {
		return false, err
	}
	mounts, err := mountPoints(sys, "efivarfs")
	if err != nil {
		return false, err
	}
	if len(mounts) == 0 {
		return false, errors.New("UEFI variables cannot be read: efivarfs is not mounted")
	}
	return true, emptyDirectory(ctx, mounts[0], func(name string) bool {
		return strings.HasPrefix(name, crashVariable) && strings.HasSuffix(strings.ToLower(name), crashGUID)
	})
}

// mountPoints returns the mount points of file systems of a type, below the system's root.
func mountPoints(sys sysfs.Root, kind string) ([]string, error) {
	mounts, err := os.ReadFile(sys.Proc("mounts"))
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if fields := strings.Fields(line); len(fields) >= 3 && fields[2] == kind {
			found = append(found, filepath.Join("/", sys.Path, fields[1]))
		}
	}
	return found, nil
}

// emptyDirectory removes the entries that match. It returns an error that names those that remain.
func emptyDirectory(ctx context.Context, directory string, match func(name string) bool) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	var problems []error
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if match(entry.Name()) {
			path := filepath.Join(directory, entry.Name())
			if err := errors.Join(efivarfs.MakeMutable(path), os.RemoveAll(path)); err != nil {
				problems = append(problems, err)
			}
		}
	}
	left, err := os.ReadDir(directory)
	if err != nil {
		return errors.Join(append(problems, err)...)
	}
	for _, entry := range left {
		if match(entry.Name()) {
			problems = append(problems, fmt.Errorf("%s is left", filepath.Join(directory, entry.Name())))
		}
	}
	return errors.Join(problems...)
}
