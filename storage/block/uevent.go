package block

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

// watcher receives the kernel's uevents (NETLINK_KOBJECT_UEVENT, group 1). What an event says is not looked at: the
// state is read again from sysfs, so that lost events and events of other subsystems do no harm.
type watcher struct {
	file   *os.File
	buffer [4096]byte
}

func watch() (*watcher, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("uevent socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind uevent socket: %w", err)
	}
	return &watcher{file: os.NewFile(uintptr(fd), "uevent")}, nil
}

// next waits for an event and discards all others that have arrived, because the caller reads the state after them. If
// the context ends first, it returns its cause.
func (w *watcher) next(ctx context.Context) error {
	stop := goroutine.AfterContext(ctx, func() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := w.file.Read(w.buffer[:])
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, unix.ENOBUFS): // events were lost: the caller looks anew, as after any other
		return nil
	case err != nil:
		return fmt.Errorf("read uevent: %w", err)
	}
	return w.drain()
}

// drain takes the events that have come meanwhile off the queue: one look covers them all.
func (w *watcher) drain() error {
	conn, err := w.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("read uevent: %w", err)
	}
	return conn.Read(func(fd uintptr) bool {
		for {
			if _, _, err := unix.Recvfrom(int(fd), w.buffer[:], unix.MSG_DONTWAIT); err != nil {
				return true // nothing is left; a real fault shows at the next wait
			}
		}
	})
}

func (w *watcher) close() { _ = w.file.Close() }

// WaitDisks lists the disks, and lists them again after every change the kernel reports, until enough accepts the
// list or the context ends. It returns the last list in either case, with the context's error in the second.
func (s System) WaitDisks(ctx context.Context, enough func([]Device) bool) ([]Device, error) {
	w, err := watch() // before the first look, so that nothing is missed between
	if err != nil {
		return nil, err
	}
	defer w.close()
	var devices []Device
	for {
		list, err := s.Disks(ctx)
		if err != nil && !errors.Is(err, ErrUnreadable) { // one broken disk must not keep the others waiting
			return devices, err
		}
		devices = list
		if enough(devices) {
			return devices, nil
		}
		if err := w.next(ctx); err != nil {
			return devices, err
		}
	}
}

// WaitPartition waits until the kernel knows partition n of disk and its device node exists, and returns the node's
// path. Devtmpfs makes the node before the event is sent. If ctx ends first, the error wraps its cause.
func (s System) WaitPartition(ctx context.Context, disk string, n int) (string, error) {
	w, err := watch()
	if err != nil {
		return "", err
	}
	defer w.close()
	for {
		if path := s.partitionNode(disk, n); path != "" {
			return path, nil
		}
		if err := w.next(ctx); err != nil {
			return "", fmt.Errorf("wait for partition %d of %s: %w", n, disk, err)
		}
	}
}

// Await calls look, and calls it again after every change the kernel reports, until it returns true or an error, or
// the context ends, whose cause it then returns.
func (s System) Await(ctx context.Context, look func() (bool, error)) error {
	w, err := watch() // before the first look, so that nothing is missed between
	if err != nil {
		return err
	}
	defer w.close()
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		if err := w.next(ctx); err != nil {
			return err
		}
	}
}
