//go:build !linux

package nvme

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func control(*os.File, *passthru) (status uintptr, errno unix.Errno) { return 0, unix.EOPNOTSUPP }

func namespaceID(*os.File) (uint32, error) { return 0, fmt.Errorf("NVMe: %w", errors.ErrUnsupported) }
