//go:build !linux

package nettest

import (
	"errors"
	"fmt"
	"syscall"
)

const flagNoDAD = 0

// newNamespace returns nil: Rerun ends the test before it needs it.
func newNamespace() *syscall.SysProcAttr { return nil }

func enterNewNamespace() error { return fmt.Errorf("network namespaces: %w", errors.ErrUnsupported) }
