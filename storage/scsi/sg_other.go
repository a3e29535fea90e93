//go:build !linux

package scsi

import (
	"errors"
	"fmt"
	"os"
)

func control(*os.File, *sgHeader) error { return fmt.Errorf("SG_IO: %w", errors.ErrUnsupported) }
