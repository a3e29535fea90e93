//go:build !linux

package erase

import (
	"os"

	"golang.org/x/sys/unix"
)

type kernelDiscard struct{}

func (kernelDiscard) discard(*os.File, int64, int64, bool) error { return unix.EOPNOTSUPP }
