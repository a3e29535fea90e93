//go:build !linux

package erase

import (
	"os"

	"golang.org/x/sys/unix"
)

const directIO = 0

func isDirect(*os.File) bool { return false }

func deviceNumber(node *unix.Stat_t) uint64 { return uint64(node.Rdev) }
