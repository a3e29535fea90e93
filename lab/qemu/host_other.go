//go:build !linux

package qemu

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

const closeOnExec = 0

func createVM(*os.File) (int, error) { return -1, fmt.Errorf("KVM: %w", errors.ErrUnsupported) }

func endWithThread() *syscall.SysProcAttr { return nil }

func enterNetNS(path string) error {
	return fmt.Errorf("enter network namespace %s: %w", path, errors.ErrUnsupported)
}

func forceSendBuffer(int, int) error { return errors.ErrUnsupported }
