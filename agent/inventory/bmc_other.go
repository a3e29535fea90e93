//go:build !linux

package inventory

import (
	"errors"
	"fmt"
)

// ipmiDriver connects to no BMC.
type ipmiDriver struct{}

// OpenBMC implements [BMCOpener].
func (ipmiDriver) OpenBMC(string) (BMC, error) {
	return nil, fmt.Errorf("open IPMI device: %w", errors.ErrUnsupported)
}
