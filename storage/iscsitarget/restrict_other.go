//go:build !linux

package iscsitarget

import (
	"errors"
	"net/netip"
)

func restrict(netip.AddrPort, netip.Addr) (restriction, error) { return nil, errors.ErrUnsupported }

func mountConfigfs(string) error { return errors.ErrUnsupported }

func openExclusively(string) error { return errors.ErrUnsupported }
