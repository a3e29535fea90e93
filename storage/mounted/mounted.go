// Package mounted provides access to the files of a file system through the kernel's driver, by the mount interface of
// file descriptors (fsopen(2), fsmount(2), Linux 5.2).
//
// Such a mount is not attached to a directory: no other process sees it, nothing must be unmounted after an error, and
// the kernel removes it with its last descriptor, even if the process dies. Names are resolved as inside a chroot
// (openat2(2) with RESOLVE_IN_ROOT, Linux 5.6): symbolic links of the disk cannot lead out of the file system. Device
// nodes, set-user-id bits and programs of the disk have no effect.
package mounted

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
)

// ErrNoFilesystem is returned if the device has no known file system.
var ErrNoFilesystem = errors.New("no known file system")

// FS is the root of a file system.
type FS struct {
	device string
	root   int
}

// Open mounts the file system of a device, whose type it recognises by its content. Even if writable is false, the
// kernel writes to the device if it must replay a journal.
func Open(ctx context.Context, device string, writable bool) (*FS, error) {
	found, err := block.Probe(ctx, device)
	if err != nil {
		return nil, err
	}
	if found.Type == "" {
		return nil, fmt.Errorf("mount %s: %w", device, ErrNoFilesystem)
	}
	root, err := mount(device, found.Type, writable)
	if err != nil {
		return nil, fmt.Errorf("mount %s, %s: %w", device, found.Type, err)
	}
	return &FS{device: device, root: root}, nil
}

// Folder takes a folder of this machine for the root of a file system.
func Folder(name string) (*FS, error) {
	root, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return &FS{device: name, root: root}, nil
}

func mount(device, kind string, writable bool) (root int, err error) {
	context, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(context) //nolint:errcheck // the mount has its own reference
	attributes := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	if err := unix.FsconfigSetString(context, "source", device); err != nil {
		return -1, err
	}
	if !writable {
		if err := unix.FsconfigSetFlag(context, "ro"); err != nil {
			return -1, err
		}
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.FsconfigCreate(context); err != nil {
		return -1, err
	}
	return unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, attributes)
}

// Close writes all data and removes the mount. The kernel keeps the mount until open files are closed.
func (f *FS) Close() error {
	err := f.sync()
	if err := errors.Join(err, unix.Close(f.root)); err != nil {
		return fmt.Errorf("unmount %s: %w", f.device, err)
	}
	return nil
}

// sync writes all data. It opens the root, because the descriptor of the mount can only be used to resolve names.
func (f *FS) sync() error {
	root, err := f.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(root.Fd())), root.Close())
}

// Open opens a file or directory for reading. On a named pipe it does not block.
func (f *FS) Open(name string) (*os.File, error) { return f.OpenFile(name, os.O_RDONLY, 0) }

// OpenFile is like os.OpenFile, but inside the file system.
func (f *FS) OpenFile(name string, flag int, perm os.FileMode) (*os.File, error) {
	how := unix.OpenHow{
		Flags: uint64(flag) | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY, Mode: uint64(perm.Perm()),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	if flag&os.O_CREATE == 0 {
		how.Mode = 0
	}
	for {
		fd, err := unix.Openat2(f.root, strings.TrimPrefix(name, "/"), &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path.Join(f.device, name)), nil
		case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN): // EAGAIN: concurrent rename
			return nil, &os.PathError{Op: "open", Path: path.Join(f.device, name), Err: err}
		}
	}
}

// Mkdir creates a directory, whose parent must exist. If the directory already exists, it does nothing.
func (f *FS) Mkdir(name string, perm os.FileMode) error {
	parent, err := f.Open(path.Dir(strings.TrimPrefix(name, "/")))
	if err != nil {
		return err
	}
	defer parent.Close() //nolint:errcheck // nothing is written through it
	if err := unix.Mkdirat(int(parent.Fd()), path.Base(name), uint32(perm.Perm())); err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.PathError{Op: "mkdir", Path: path.Join(f.device, name), Err: err}
	}
	return nil
}

// Regular opens a file for reading; the error wraps os.ErrNotExist where there is nothing, or something else than a file.
func (f *FS) Regular(name string) (*os.File, error) {
	file, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: file.Name(), Err: os.ErrNotExist}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
