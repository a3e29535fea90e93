package block

import (
	"context"
	"errors"
	"fmt"

	"ironroot/internal/uevent"
	"ironroot/storage/sysfs"
)

// watcher waits for the kernel's uevents. Their content is ignored: after each event callers read the state from sysfs
// again, so that lost events and events of other subsystems do no harm.
type watcher struct{ socket *uevent.Socket }

func watch() (*watcher, error) {
	socket, err := uevent.Listen(0)
	if err != nil {
		return nil, err
	}
	return &watcher{socket}, nil
}

// next waits for an event and discards all others that have arrived, because the caller reads the state after them. If
// the context ends first, it returns its cause.
func (w *watcher) next(ctx context.Context) error {
	switch _, err := w.socket.Next(ctx); {
	case errors.Is(err, uevent.ErrLost):
		return nil
	case err != nil:
		return err
	}
	return w.socket.Drain()
}

func (w *watcher) close() { _ = w.socket.Close() }

// WaitDisks lists the disks, again after every change that the kernel reports, until enough accepts the list or the
// context ends. It returns the last list in both cases, together with the context's error in the second.
func WaitDisks(ctx context.Context, s sysfs.Root, enough func([]Device) bool) ([]Device, error) {
	w, err := watch() // before the first list, so that no event is missed
	if err != nil {
		return nil, err
	}
	defer w.close()
	var devices []Device
	for {
		list, err := Disks(ctx, s)
		if err != nil && !errors.Is(err, ErrUnreadable) { // an unreadable disk does not end the wait for others
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

// WaitPartition waits until the kernel knows partition n of disk and its device node exists, and returns the path of
// the node. Devtmpfs creates the node before the kernel sends the event. If ctx ends first, the error wraps its cause.
func WaitPartition(ctx context.Context, s sysfs.Root, disk string, n int) (string, error) {
	w, err := watch()
	if err != nil {
		return "", err
	}
	defer w.close()
	for {
		if path := partitionNode(s, disk, n); path != "" {
			return path, nil
		}
		if err := w.next(ctx); err != nil {
			return "", fmt.Errorf("wait for partition %d of %s: %w", n, disk, err)
		}
	}
}

// Await calls done, again after every change that the kernel reports, until it returns true or an error. If the
// context ends first, Await returns its cause.
func Await(ctx context.Context, done func() (bool, error)) error {
	w, err := watch() // before the first call, so that no event is missed
	if err != nil {
		return err
	}
	defer w.close()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if err := w.next(ctx); err != nil {
			return err
		}
	}
}
