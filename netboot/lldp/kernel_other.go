//go:build !linux

package lldp

import "errors"

const flagCarrier = 0

func mountDebugFS(string) error { return errors.ErrUnsupported }
