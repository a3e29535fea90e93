// Command guest is a ramdisk with mdadm. It creates arrays with mdadm, and assembles and erases them. It compares the
// superblocks of mdadm with those of package md, creates arrays with package raid, and prints what mdadm shows of them.
// It checks the cases of package raidtest. Then mdadm creates arrays with the metadata of firmware RAID on the disks of
// the machine.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
	"ironroot/uinit/boot"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		<-m.Settled
		if err := run(ctx, m); err != nil {
			fmt.Printf("\nFAILED %v\n", err)
			return err
		}
		fmt.Printf("\nDONE\n")
		return nil
	})
}

func run(ctx context.Context, m *boot.Machine) error {
	for _, module := range []string{"loop", "md_mod"} { // the speed of a resync is limited before the first array
		if err := m.Probe(ctx, module); err != nil {
			return err
		}
	}
	if err := errors.Join(os.MkdirAll("/run", 0o755), os.MkdirAll("/work", 0o755)); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/work", "tmpfs", 0, "size=600m"); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{assemble, create, compare, cases, external} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// members attaches sparse files to loop devices with partition scanning.
func members(sizes []int64) (devices []string, release func(), err error) {
	var closers []func()
	release = func() {
		for _, close := range slices.Backward(closers) {
			close()
		}
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, release, err
	}
	defer control.Close()
	for i, size := range sizes {
		path := fmt.Sprintf("/work/%d", i)
		file, err := os.Create(path)
		if err != nil {
			return nil, release, err
		}
		if err := file.Truncate(size); err != nil {
			return nil, release, err
		}
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, release, err
		}
		device := fmt.Sprintf("/dev/loop%d", number)
		loop, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			return nil, release, err
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &unix.LoopConfig{
			Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_PARTSCAN},
		})
		if err := errors.Join(err, loop.Close()); err != nil {
			return nil, release, err
		}
		closers = append(closers, func() {
			if loop, err := os.OpenFile(device, os.O_RDWR, 0); err == nil {
				_ = errors.Join(unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0), loop.Close())
			}
			_ = errors.Join(file.Close(), os.Remove(path))
		})
		devices = append(devices, device)
	}
	return devices, release, nil
}

func mdadm(args ...string) (string, error) {
	out, err := exec.Command("/bin/mdadm", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("mdadm %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// read returns a device's data, which it does not take from the kernel's cache.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := unix.IoctlRetInt(int(f.Fd()), unix.BLKFLSBUF); err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	_, err = f.ReadAt(data, 0)
	return data, err
}

// await waits until a file of sysfs has a content.
func await(ctx context.Context, path, want string) error {
	for {
		got, err := os.ReadFile(path)
		if err != nil || string(bytes.TrimSpace(got)) == want {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond): // the kernel reports no event
		case <-ctx.Done():
			return fmt.Errorf("%s: got %q, want %q: %w", path, bytes.TrimSpace(got), want, ctx.Err())
		}
	}
}

// fill writes pseudo-random data to a device: the parity of constant data can be right by chance.
func fill(path string, seed uint64, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	data := make([]byte, mib)
	state := seed
	for offset := int64(0); offset < size; offset += mib {
		for i := 0; i < len(data); i += 8 {
			state ^= state << 13
			state ^= state >> 7
			state ^= state << 17
			binary.LittleEndian.PutUint64(data[i:], state)
		}
		if _, err := f.WriteAt(data[:min(mib, size-offset)], offset); err != nil {
			return err
		}
	}
	return errors.Join(f.Sync(), f.Close())
}

// wait waits until the kernel is idle.
func wait(ctx context.Context) error {
	for {
		action, err := os.ReadFile("/sys/block/md3/md/sync_action")
		if errors.Is(err, os.ErrNotExist) || bytes.Equal(bytes.TrimSpace(action), []byte("idle")) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond) // the kernel reports no event
	}
}

// check compares all copies and parities, and returns the number of sectors that differ.
func check(ctx context.Context) (string, error) {
	if err := os.WriteFile("/sys/block/md3/md/sync_action", []byte("check"), 0o600); err != nil {
		return "", err
	}
	if err := wait(ctx); err != nil {
		return "", err
	}
	count, err := os.ReadFile("/sys/block/md3/md/mismatch_cnt")
	return strings.TrimSpace(string(count)), err
}

// refused prints the errors of arrays that cannot be created. No member is written to.
func refused(ctx context.Context) error {
	devices, release, err := members([]int64{40 * mib, 40 * mib, 64 << 10})
	defer release()
	if err != nil {
		return err
	}
	for _, o := range []raid.Options{
		{Version: "1.2", Level: "raid1", Name: "small", Members: []string{devices[0], devices[2]}},
		{Version: "1.2", Level: "raid5", Name: "few", Members: devices[:2]},
		{Version: "1.2", Level: "raid1", Name: "twice", Members: []string{devices[0], devices[0]}},
		{Version: "1.2", Level: "raid1", Name: "missing", Members: []string{devices[0], "/dev/missing"}},
	} {
		_, err := raid.Create(ctx, sysfs.Root{}, o)
		fmt.Printf("\nREFUSED %s: %v\n", o.Name, err)
	}
	for i, device := range devices {
		data, err := os.ReadFile(fmt.Sprintf("/work/%d", i))
		if err != nil {
			return err
		}
		fmt.Printf("\nEMPTY %s %v\n", device, len(bytes.Trim(data, "\x00")) == 0)
	}
	arrays, err := raid.List(ctx, sysfs.Root{})
	fmt.Printf("\nARRAYS %d %v\n", len(arrays), err)
	return err
}
