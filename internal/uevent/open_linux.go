package uevent

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// openSocket opens a socket: see Listen.
func openSocket(queue int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return -1, fmt.Errorf("open uevent socket: %w", err)
	}
	if queue > 0 {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, queue)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		return -1, fmt.Errorf("bind uevent socket: %w", errors.Join(err, unix.Close(fd)))
	}
	return fd, nil
}
