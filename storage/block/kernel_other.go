//go:build !linux

package block

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

var errUnsupported = fmt.Errorf("block devices: %w", errors.ErrUnsupported)

func flushBuffers(*os.File) error { return errUnsupported }

func readTable(*os.File) error { return errUnsupported }

func addPartition(*os.File, int, int64, int64) error { return errUnsupported }

func removePartition(*os.File, int) error { return errUnsupported }

func deviceSize(*os.File) (int64, error) { return 0, errUnsupported }

func sectorSize(*os.File) (int64, error) { return 0, errUnsupported }

func zeroDevice(*os.File, int64, int64) error { return errUnsupported }

// zeroRange and punchHole return the error of a file system that cannot do it: zeros are written instead.
func zeroRange(*os.File, int64, int64) error { return unix.EOPNOTSUPP }

func punchHole(*os.File, int64, int64) error { return unix.EOPNOTSUPP }

func memoryFile(name string) (*os.File, error) {
	f, err := os.CreateTemp("", name)
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}
