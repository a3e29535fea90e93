//go:build !linux

package clock

import (
	"errors"
	"fmt"
	"os"
	"time"
)

func readRTC(*os.File) (time.Time, error) {
	return time.Time{}, fmt.Errorf("hardware clock: %w", errors.ErrUnsupported)
}

func setRTC(*os.File, time.Time) error {
	return fmt.Errorf("hardware clock: %w", errors.ErrUnsupported)
}
