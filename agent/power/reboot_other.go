//go:build !linux

package power

import (
	"errors"
	"fmt"
)

const commandRestart, commandPowerOff = 0, 1

func reboot(int) error { return fmt.Errorf("stop the machine: %w", errors.ErrUnsupported) }

func remountReadOnly(string) error { return fmt.Errorf("remount: %w", errors.ErrUnsupported) }
