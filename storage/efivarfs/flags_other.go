//go:build !linux

package efivarfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// flagsOf and setFlags return the error of a file system without flags.
func flagsOf(*os.File) (int, error) { return 0, unix.EOPNOTSUPP }

func setFlags(*os.File, int) error { return unix.EOPNOTSUPP }

func onSysfs(string) (bool, error) { return false, nil }
