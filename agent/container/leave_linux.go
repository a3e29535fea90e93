package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
	"ironroot/internal/goroutine"
)

// claimTimeout limits the time to wait until disks are claimed. A disk that does not answer can take longer.
const claimTimeout = 5 * time.Second

// exitTimeout limits the wait for the end of a process that was killed. Before it ends, the kernel writes what is in
// its memory to the disks: with the kernel's defaults up to a fifth of the machine's memory.
const exitTimeout = 15 * time.Minute

func awaitEnd(ctx context.Context, wait, kill func() error) error {
	return confine.Await(ctx, exitTimeout, wait, kill)
}

// await waits for the end of a process of the container, as confine.Await does. A process that is left behind can still
// use the image and write to the disks of the container: the image is not removed then, and the disks are claimed.
func (r *runner) await(ctx context.Context, wait, kill func() error) error {
	err := awaitProcess(ctx, func() error {
		err := wait()
		if r.bundle.inUse.Load() { // it was left behind
			r.claim()
		}
		return err
	}, kill)
	if !errors.Is(err, confine.ErrStillRunning) {
		return err
	}
	r.bundle.inUse.Store(true)
	claimed := make(chan struct{})
	goroutine.Go(func() error {
		r.claim()
		return nil
	}, func(error) { close(claimed) }) // a panic was logged
	timer := time.NewTimer(claimTimeout)
	defer timer.Stop()
	select {
	case <-claimed:
	case <-timer.C:
		r.log.Warn("disks of a program that was left behind do not answer", "devices", r.disks())
	}
	return err
}

// disks lists the disks of the container, and the disk of its image.
func (r *runner) disks() []string {
	disks := slices.Clone(r.spec.Disks)
	if disk := r.bundle.scratch.disk; disk != "" && !slices.Contains(disks, disk) {
		disks = append(disks, disk)
	}
	return disks
}

// claim opens the disks of the container exclusively and never closes them: until the ramdisk ends, the kernel rejects
// every other exclusive open of them, so that they are not erased, partitioned or written to. A disk that is mounted in
// the container cannot be claimed, but is protected by the mount. The next call claims it.
func (r *runner) claim() {
	r.claiming.Lock()
	defer r.claiming.Unlock()
	var free []string
	for _, disk := range r.disks() {
		if !slices.Contains(r.claimed, disk) {
			free = append(free, disk)
		}
	}
	done := make([]bool, len(free))
	var tries []func()
	for i, disk := range free {
		tries = append(tries, func() {
			if err := r.openForever(disk); err != nil {
				r.log.Warn("disk of a program that was left behind not claimed", "device", disk, "err", err)
				return
			}
			r.log.Warn("disk of a program that was left behind claimed", "device", disk)
			done[i] = true
		})
	}
	goroutine.Do(tries...)
	for i, disk := range free {
		if done[i] {
			r.claimed = append(r.claimed, disk)
		}
	}
}

// openForever opens a disk exclusively. Nothing closes the descriptor.
func (r *runner) openForever(disk string) error {
	path, s := disk, r.bundle.scratch
	if disk == s.disk { // the path could lead to another disk by now
		path = fmt.Sprintf("/proc/self/fd/%d", s.device.Fd())
	}
	_, err := unix.Open(path, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	runtime.KeepAlive(s)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	return nil
}
