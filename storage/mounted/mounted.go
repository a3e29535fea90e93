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
	return New(device, root), nil
}

// New returns the file system whose root is the directory of a file descriptor. Close closes the descriptor. device
// appears in errors.
func New(device string, root int) *FS { return &FS{device: device, root: root} }

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
	return errors.Join(syncFS(root), root.Close())
}

// Open opens a file or directory for reading. On a named pipe it does not block.
func (f *FS) Open(name string) (*os.File, error) { return f.OpenFile(name, os.O_RDONLY, 0) }

// OpenFile is like os.OpenFile, but inside the file system.
func (f *FS) OpenFile(name string, flag int, perm os.FileMode) (*os.File, error) {
	for {
		fd, err := openBelow(f.root, strings.TrimPrefix(name, "/"), flag, perm)
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
	_, err := f.mkdir(name, perm)
	return err
}

// MkdirAll creates a directory and its parents, if they do not exist. It reports whether it has created the directory
// itself.
func (f *FS) MkdirAll(name string, perm os.FileMode) (created bool, err error) {
	dir := ""
	for part := range strings.SplitSeq(strings.TrimPrefix(path.Clean("/"+name), "/"), "/") {
		if dir = path.Join(dir, part); dir == "" {
			return false, nil // the root
		}
		if created, err = f.mkdir(dir, perm); err != nil {
			return false, err
		}
	}
	return created, nil
}

func (f *FS) mkdir(name string, perm os.FileMode) (created bool, err error) {
	parent, base, err := f.parent(name)
	if err != nil {
		return false, err
	}
	defer parent.Close() //nolint:errcheck // nothing is written through it
	err = unix.Mkdirat(int(parent.Fd()), base, uint32(perm.Perm()))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return false, &os.PathError{Op: "mkdir", Path: path.Join(f.device, name), Err: err}
	}
	return err == nil, nil
}

// Remove removes a file or a symbolic link, but no directory.
func (f *FS) Remove(name string) error {
	parent, base, err := f.parent(name)
	if err != nil {
		return err
	}
	defer parent.Close() //nolint:errcheck // nothing is written through it
	if err := unix.Unlinkat(int(parent.Fd()), base, 0); err != nil {
		return &os.PathError{Op: "remove", Path: path.Join(f.device, name), Err: err}
	}
	return nil
}

// parent opens the directory of a name, and returns the last element of the name.
func (f *FS) parent(name string) (dir *os.File, base string, err error) {
	dir, err = f.Open(path.Dir(strings.TrimPrefix(name, "/")))
	return dir, path.Base(name), err
}

// Regular opens a regular file for reading. If the file does not exist or is not regular, the error wraps
// os.ErrNotExist.
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
