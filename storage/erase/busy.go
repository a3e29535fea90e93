package erase

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/pause"
	"ironroot/internal/timelimit"
	"ironroot/storage/sysfs"
)

// ErrBusy is returned if a device is still in use after the time limit for its holders. Errors that wrap it name the
// holders.
var ErrBusy = errors.New("device is in use")

// Wait limits the time to wait for the holders of a device: processes that have it or one of its partitions open,
// arrays and maps made of it, and mounts. The zero value does not wait.
type Wait struct {
	Interval time.Duration // between two checks
	Retries  int           // number of checks after the first
}

// AwaitFree waits until a device and its partitions have no holder. The error wraps ErrBusy.
func AwaitFree(ctx context.Context, sys sysfs.Root, device string, wait Wait) error {
	if err := wait.free(ctx, sys, device); err != nil {
		return fmt.Errorf("%s: %w", device, err)
	}
	return nil
}

// free waits until the device has no holder.
func (w Wait) free(ctx context.Context, sys sysfs.Root, device string) error {
	return w.until(ctx, sys, device, func() error {
		holders, err := holders(ctx, sys, device)
		if err != nil {
			return err
		}
		if len(holders) > 0 {
			return fmt.Errorf("%w: held by %s", ErrBusy, strings.Join(holders, ", "))
		}
		return nil
	})
}

// until calls do until it succeeds or fails for another reason than a busy device, with at most w.Retries retries. If
// the device stays busy, the error names its holders.
func (w Wait) until(ctx context.Context, sys sysfs.Root, device string, do func() error) error {
	for retry := 0; ; retry++ {
		err := do()
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, ErrBusy) {
			return err
		}
		if retry >= w.Retries {
			if errors.Is(err, ErrBusy) {
				return err
			}
			names, holdersErr := holders(ctx, sys, device)
			if len(names) == 0 {
				names = []string{"an unknown holder"}
			}
			return errors.Join(fmt.Errorf("%w: held by %s: %w", ErrBusy, strings.Join(names, ", "), err), holdersErr)
		}
		timelimit.Extend(ctx, w.Interval)
		// The kernel does not report the end of every kind of holder.
		if err := pause.For(ctx, w.Interval); err != nil {
			return err
		}
	}
}

// holders lists what uses a device or one of its partitions.
func holders(ctx context.Context, sys sysfs.Root, device string) ([]string, error) {
	paths, err := withPartitions(ctx, sys, device)
	if errors.Is(err, fs.ErrNotExist) {
		paths = []string{device} // not a device that the kernel lists
	} else if err != nil {
		return nil, err
	}
	numbers := map[uint64]string{} // device paths by device numbers
	var found []string
	for _, path := range paths {
		var stat unix.Stat_t
		if err := unix.Stat(path, &stat); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("holders of %s: %w", path, err)
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
			continue // a regular file, which tests use in place of a disk
		}
		numbers[deviceNumber(&stat)] = path
		name := strings.ReplaceAll(strings.TrimPrefix(path, "/dev/"), "/", "!")
		upper, err := os.ReadDir(sys.Sys("class/block", name, "holders"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("holders of %s: %w", path, err)
		}
		for _, entry := range upper {
			if !slices.Contains(paths, "/dev/"+entry.Name()) { // the partitions of a multipath map are maps on it
				found = append(found, fmt.Sprintf("%s on %s", entry.Name(), path))
			}
		}
	}
	if len(numbers) == 0 {
		return found, nil
	}
	mounts, err := mountsOf(sys, numbers)
	if err != nil {
		return nil, err
	}
	openers, err := openersOf(ctx, sys, numbers)
	return slices.Concat(found, mounts, openers), err
}

// mountsOf lists where devices are mounted.
func mountsOf(sys sysfs.Root, numbers map[uint64]string) ([]string, error) {
	data, err := os.ReadFile(sys.Proc("self/mountinfo"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("mounts: %w", err)
	}
	var found []string
	for line := range strings.SplitSeq(string(data), "\n") {
		fields := strings.Fields(line) // proc(5): id, parent, major:minor, root, mount point …
		if len(fields) < 5 {
			continue
		}
		major, minor, _ := strings.Cut(fields[2], ":")
		a, errA := strconv.ParseUint(major, 10, 32)
		b, errB := strconv.ParseUint(minor, 10, 32)
		if path, ok := numbers[unix.Mkdev(uint32(a), uint32(b))]; ok && errA == nil && errB == nil {
			found = append(found, fmt.Sprintf("a mount of %s at %s", path, fields[4]))
		}
	}
	return found, nil
}

// openersOf lists the processes that have devices open. Processes that end in the meantime are omitted.
func openersOf(ctx context.Context, sys sysfs.Root, numbers map[uint64]string) ([]string, error) {
	processes, err := os.ReadDir(sys.Proc())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("processes: %w", err)
	}
	var found []string
	for _, process := range processes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		pid := process.Name()
		if strings.Trim(pid, "0123456789") != "" {
			continue
		}
		dir := sys.Proc(pid, "fd")
		files, err := os.ReadDir(dir)
		if err != nil {
			continue // the process has ended
		}
		for _, file := range files {
			link := filepath.Join(dir, file.Name())
			// Only device nodes are examined: stat(2) of another file can hang.
			if target, err := os.Readlink(link); err != nil || !strings.Contains(target, "/dev/") {
				continue
			}
			var stat unix.Stat_t
			if err := unix.Stat(link, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFBLK {
				continue
			}
			if path, ok := numbers[deviceNumber(&stat)]; ok {
				name, _ := os.ReadFile(sys.Proc(pid, "comm"))
				found = append(found, fmt.Sprintf("process %s (%s) on %s", pid, strings.TrimSpace(string(name)), path))
				break
			}
		}
	}
	return found, nil
}
