//go:build !linux

package inventory

import (
	"errors"
	"fmt"
)

func openIPMI(string) (BMC, error) {
	return nil, fmt.Errorf("open IPMI device: %w", errors.ErrUnsupported)
}
