package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/image/device"
	"ironroot/storage/mkfs"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// scratch is a mounted file system for an image.
type scratch struct {
	dir      string
	size     int64
	reserved int64 // bytes at the end of the disk, 0 in memory
	disk     string
	device   *os.File // the disk
	start    int64    // offset on the disk
	loop     *os.File
	system   sysfs.Root
	mounted  bool
	ran      bool // a program has run, which may have made the partitions of the disk
}

func (s *scratch) kind() string {
	if s.disk == "" {
		return "memory"
	}
	return "end of " + s.disk
}

// memoryScratch mounts memory for need bytes. The error wraps ErrNoSpace if there is not enough.
func memoryScratch(system sysfs.Root, need int64) (*scratch, error) {
	available, err := availableMemory(system)
	if err != nil {
		return nil, err
	}
	size, files := splitMemory(available)
	if need > size {
		return nil, fmt.Errorf("%w in memory: it has %d bytes for images, want %d", ErrNoSpace, size, need)
	}
	s := &scratch{size: size}
	return s, s.mount("tmpfs", "tmpfs", fmt.Sprintf("mode=700,size=%d,nr_inodes=%d", size, files))
}

// diskScratch makes and mounts a file system for the files that d demands at the end of a disk.
func diskScratch(ctx context.Context, system sysfs.Root, disk string, d demand) (s *scratch, err error) {
	f, size, err := openUnused(disk)
	if err != nil {
		return nil, err
	}
	start, length, err := tail(disk, size, d)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s = &scratch{disk: disk, device: f, start: start, size: length, system: system}
	defer func() {
		if err != nil {
			err = fmt.Errorf("scratch space on %s: %w", disk, errors.Join(err, s.free(context.WithoutCancel(ctx))))
			s = nil
		}
	}()
	if s.loop, err = attachLoop(f, start, length); err != nil {
		return s, err
	}
	s.reserved = size - start // from now on it is written to
	if err := mkfs.Make(ctx, s.loop.Name(), "ext4", mkfs.Options{}); err != nil {
		return s, err
	}
	return s, s.mount(s.loop.Name(), "ext4", "noinit_itable")
}

// openUnused opens a disk that nothing uses, and returns its size in bytes.
func openUnused(disk string) (*os.File, int64, error) {
	exclusive, err := os.OpenFile(disk, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return nil, 0, err
	}
	// It is closed: otherwise the program in the container could not open the disk exclusively.
	if err := exclusive.Close(); err != nil {
		return nil, 0, err
	}
	f, err := os.OpenFile(disk, os.O_RDWR, 0)
	if err != nil {
		return nil, 0, err
	}
	size, _, err := block.Geometry(f)
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

// openLoopControl opens the device that creates loop devices. The kernel loads its module when the node is opened.
func openLoopControl() (*os.File, error) {
	const path, major, minor = "/dev/loop-control", 10, 237 // Documentation/admin-guide/devices.txt of the kernel
	err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor)))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make device node %s: %w", path, err)
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// attachLoop makes a range of a device a loop device. It is detached when the last user has closed it.
func attachLoop(f *os.File, start, length int64) (*os.File, error) {
	control, err := openLoopControl()
	if err != nil {
		return nil, err
	}
	defer control.Close() //nolint:errcheck // only controls
	const attempts = 64
	for range attempts {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		loop, err := os.OpenFile("/dev/loop"+strconv.Itoa(number), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(f.Fd())}
		config.Info.Offset, config.Info.Sizelimit = uint64(start), uint64(length)
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop, nil
		}
		if err = errors.Join(err, loop.Close()); !errors.Is(err, unix.EBUSY) { // another user was faster
			return nil, fmt.Errorf("attach %s: %w", loop.Name(), err)
		}
	}
	return nil, fmt.Errorf("no free loop device after %d attempts", attempts)
}

// mount mounts the file system in a new directory.
func (s *scratch) mount(source, kind, data string) (err error) {
	if s.dir, err = os.MkdirTemp("", "ironroot-container-"); err != nil {
		return err
	}
	if err := unix.Mount(source, s.dir, kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, data); err != nil {
		err = fmt.Errorf("mount %s: %w", kind, err)
		if s.disk == "" { // otherwise free is called
			err = errors.Join(err, os.Remove(s.dir))
		}
		return err
	}
	s.mounted = true
	return nil
}

// used returns the number of bytes that are in use in the file system.
func (s *scratch) used() (int64, error) {
	var info unix.Statfs_t
	if err := unix.Statfs(s.dir, &info); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", s.dir, err)
	}
	return int64(info.Blocks-info.Bfree) * info.Bsize, nil
}

// free unmounts the file system. A range of a disk is overwritten. A partition that contains a part of it is an error
// if a program has run; before, it is one of the disk's former content.
func (s *scratch) free(ctx context.Context) error {
	var errs []error
	if s.mounted {
		if err := unix.Unmount(s.dir, 0); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", s.dir, err))
			_ = unix.Unmount(s.dir, unix.MNT_DETACH)
		}
		s.mounted = false
	}
	if s.dir != "" {
		errs = append(errs, os.Remove(s.dir))
		s.dir = ""
	}
	if s.disk == "" {
		return errors.Join(errs...)
	}
	if s.loop != nil {
		// The kernel detaches it now, or when its last user closes it.
		errs = append(errs, unix.IoctlSetInt(int(s.loop.Fd()), unix.LOOP_CLR_FD, 0), s.loop.Close())
		s.loop = nil
	}
	if s.reserved > 0 {
		if s.ran {
			errs = append(errs, s.overlap(ctx))
		}
		errs = append(errs, s.zero(ctx))
	}
	if s.device != nil {
		errs = append(errs, s.device.Close())
		s.device, s.reserved = nil, 0
	}
	return errors.Join(errs...)
}

// overlap returns an error if a partition of the disk contains a part of the range, whose content is lost. It checks
// the table on the disk, which the kernel may not have read yet, and the partitions that the kernel knows.
func (s *scratch) overlap(ctx context.Context) error {
	table, err := partition.ReadAll(ctx, fmt.Sprintf("/proc/self/fd/%d", s.device.Fd()))
	if errors.Is(err, partition.ErrNoTable) {
		table = &partition.Table{}
	} else if err != nil {
		return fmt.Errorf("scratch space on %s: %w", s.disk, err)
	}
	for _, p := range table.Partitions {
		if err := s.check(strconv.Itoa(p.Number), p.Start, p.Start+p.Size); err != nil {
			return err
		}
	}
	return s.overlapKnown()
}

// check returns an error if a partition contains a part of the range.
func (s *scratch) check(name string, start, end int64) error {
	if end > s.start && start < s.start+s.size {
		return fmt.Errorf("partition %s of %s ends at byte %d, in the scratch space from byte %d", name, s.disk, end,
			s.start)
	}
	return nil
}

func (s *scratch) overlapKnown() error {
	var info unix.Stat_t
	if err := unix.Fstat(int(s.device.Fd()), &info); err != nil {
		return fmt.Errorf("partitions of %s: %w", s.disk, err)
	}
	number := fmt.Sprintf("%d:%d", unix.Major(info.Rdev), unix.Minor(info.Rdev))
	files, err := filepath.Glob(s.system.Sys("dev/block", number, "*", "start"))
	if err != nil {
		return err
	}
	const sector = 512 // of sysfs
	for _, file := range files {
		first, err := readNumber(file)
		if err != nil {
			return err
		}
		count, err := readNumber(filepath.Join(filepath.Dir(file), "size"))
		if err != nil {
			return err
		}
		if err := s.check(filepath.Base(filepath.Dir(file)), first*sector, (first+count)*sector); err != nil {
			return err
		}
	}
	return nil
}

// readNumber reads a number of sysfs.
func readNumber(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// zero overwrites the range with zeros, and reads it back from the medium. It uses the descriptor by which the scratch
// space was made: the path of the disk could lead to another one by now.
func (s *scratch) zero(ctx context.Context) error {
	f := s.device
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags|unix.O_DIRECT)
	}
	if err != nil {
		return fmt.Errorf("bypass the page cache of %s: %w", s.disk, err)
	}
	const step = 64 << 20
	for at := s.start; at < s.start+s.size; at += step {
		if ctx.Err() != nil {
			return fmt.Errorf("%s is not zeroed from byte %d on: %w", s.disk, at, context.Cause(ctx))
		}
		if err := block.Zero(f, at, min(step, s.start+s.size-at)); err != nil {
			return fmt.Errorf("zero %s at byte %d: %w", s.disk, at, err)
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("zero %s: %w", s.disk, err)
	}
	const chunk = 4 << 20
	buffer, zeros := device.NewBuffer(chunk), make([]byte, chunk)
	for at := s.start; at < s.start+s.size; at += int64(len(buffer)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		piece := buffer[:min(int64(len(buffer)), s.start+s.size-at)]
		if _, err := f.ReadAt(piece, at); err != nil {
			return fmt.Errorf("read back %s at byte %d: %w", s.disk, at, err)
		}
		if !bytes.Equal(piece, zeros[:len(piece)]) {
			return fmt.Errorf("%s is not zero from byte %d to %d after it was zeroed", s.disk, at,
				at+int64(len(piece)))
		}
	}
	return nil
}
