//go:build !linux

package erase

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const directIO = 0

func isDirect(*os.File) bool { return false }

func deviceNumber(node *unix.Stat_t) uint64 { return uint64(node.Rdev) }

func namespaceID(*os.File) (int, error) { return 0, fmt.Errorf("NVMe: %w", errors.ErrUnsupported) }

func sendAdmin(*os.File, *adminCommand) (status uintptr, errno unix.Errno) { return 0, unix.EOPNOTSUPP }
