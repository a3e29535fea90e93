package nettest

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// flagNoDAD is the flag of addresses that the kernel does not check for uniqueness.
const flagNoDAD = unix.IFA_F_NODAD

// newNamespace returns the attributes of a process in a new network namespace, which ends with the calling thread.
func newNamespace() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
}

// enterNewNamespace moves the calling thread into a new network namespace.
func enterNewNamespace() error { return unix.Unshare(unix.CLONE_NEWNET) }
