//go:build !linux

package iscsitarget

import (
	"errors"
	"net/netip"
)

func (systemKernel) restrict(netip.AddrPort, netip.Addr) (restriction, error) {
	return nil, errors.ErrUnsupported
}

func (systemKernel) mount(string) error { return errors.ErrUnsupported }

func openExclusively(string) error { return errors.ErrUnsupported }
