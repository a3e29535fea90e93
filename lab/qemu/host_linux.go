package qemu

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func enterNetNS(path string) error {
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close() //nolint:errcheck // only read
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return nil
}

// closeOnExec is the flag for sockets that child processes do not inherit.
const closeOnExec = unix.SOCK_CLOEXEC

// createVM creates a virtual machine with KVM and returns its file descriptor.
func createVM(kvm *os.File) (int, error) {
	const kvmCreateVM = 0xae01 // KVM_CREATE_VM, _IO(KVMIO, 0x01)
	return unix.IoctlRetInt(int(kvm.Fd()), kvmCreateVM)
}

// endWithThread returns the attributes of a process that is killed when the calling thread ends.
func endWithThread() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// forceSendBuffer sets the size of a send buffer in bytes, regardless of the system's limit.
func forceSendBuffer(fd, size int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size)
}
