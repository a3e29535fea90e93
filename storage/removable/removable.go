// Package removable reads files from virtual CDs and floppies that a BMC attached, without mounting them: ISO 9660
// (with Rock Ridge) and FAT file systems on whole optical drives, and on whole USB disks below 4 GiB that are
// removable or write-protected.
//
// Partitions and devices made of other devices are never read: a previous owner of a disk could have labelled it, and
// would then configure the machine. Absolute paths and paths with ".." are rejected, and links are not followed.
package removable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/fat"
	"ironroot/storage/iso9660"
)

// Volume is a medium with a readable file system. It must be closed, and is not safe for concurrent use.
type Volume struct {
	Device    block.Device
	Label     string // of the file system, "" if it has none
	Publisher string // publisher identifier of an ISO 9660 volume
	root      node
	foldCase  bool // FAT does not tell upper from lower case
	file      *os.File
}

// Problem describes a medium that cannot be read, or whose file system is damaged.
type Problem struct {
	Device string // path
	Err    error
}

func (p *Problem) Error() string { return "medium " + p.Device + ": " + p.Err.Error() }

func (p *Problem) Unwrap() error { return p.Err }

// Volumes opens all trusted media that contain a file system, in the order of their devices' names. Media that cannot
// be read, or whose file system causes a panic, are returned as problems.
func Volumes(ctx context.Context, sys block.System) ([]*Volume, []*Problem, error) {
	return volumes(ctx, sys, sys.VirtualMedia, (*Volume).probe)
}

func volumes(
	ctx context.Context, sys block.System, isTrusted func(name string) (bool, error), probe func(*Volume) error,
) ([]*Volume, []*Problem, error) {
	devices, err := sys.All(ctx)
	if err != nil {
		return nil, nil, err
	}
	var opened []*Volume
	var problems []*Problem
	for _, device := range devices {
		var volume *Volume
		err := goroutine.Catch(func() (err error) {
			if trusted, err := isTrusted(device.Name); err != nil || !trusted {
				return nil //nolint:nilerr // unplugged meanwhile
			}
			volume, err = open(sys, device, probe)
			return err
		})
		if err != nil {
			problems = append(problems, &Problem{device.Path, err})
		}
		if volume != nil {
			opened = append(opened, volume)
		}
	}
	return opened, problems, nil
}

// IgnoredDisk is a small USB disk that is not trusted, because it is neither removable nor write-protected.
type IgnoredDisk struct {
	Device block.Device
	Label  string // of its file system, "" if there is none or it cannot be read
}

// IgnoredDisks returns the disks that only lack these flags. Nothing but their labels is read.
func IgnoredDisks(ctx context.Context, sys block.System) ([]IgnoredDisk, error) {
	devices, err := sys.All(ctx)
	if err != nil {
		return nil, err
	}
	var ignored []IgnoredDisk
	for _, d := range devices {
		if !d.IsSmallUSBDisk() || d.Removable || d.ReadOnly {
			continue
		}
		found := IgnoredDisk{Device: d}
		_ = goroutine.Catch(func() error { // a panic was logged
			v, err := open(sys, d, (*Volume).probe)
			if err != nil || v == nil {
				return err
			}
			found.Label = v.Label
			return v.Close()
		})
		ignored = append(ignored, found)
	}
	return ignored, nil
}

// Close closes the volume's device.
func (v *Volume) Close() error { return v.file.Close() }

// open returns nil where there is no medium or nothing that can be read on it.
func open(sys block.System, device block.Device, probe func(*Volume) error) (opened *Volume, err error) {
	file, err := os.Open(sys.Dev(strings.TrimPrefix(device.Path, "/dev/")))
	if errors.Is(err, unix.ENOMEDIUM) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { // also after a panic
		if opened == nil {
			err = errors.Join(err, file.Close())
		}
	}()
	v := &Volume{Device: device, file: file}
	if err := probe(v); err != nil || v.root.list == nil {
		return nil, err
	}
	return v, nil
}

// probe recognises the file system.
func (v *Volume) probe() error {
	iso, err := iso9660.Open(v.file)
	if err == nil {
		v.Label, v.Publisher, v.root = iso.Label(), iso.Publisher(), isoNode(iso, iso.Root())
		return nil
	}
	if !errors.Is(err, iso9660.ErrNoISO) {
		return err
	}
	tree, err := fat.Open(v.file)
	if errors.Is(err, fat.ErrNoFAT) {
		return nil
	}
	if err != nil {
		return err
	}
	v.Label, err = tree.Label()
	v.root, v.foldCase = fatNode(tree, tree.Root()), true
	return err
}

// contain calls f, which reads the file system. A panic is returned as an error that names the path and the device.
func contain[T any](v *Volume, path string, f func() (T, error)) (result T, err error) {
	err = goroutine.Catch(func() (err error) {
		result, err = f()
		return err
	})
	var caught *goroutine.PanicError
	if errors.As(err, &caught) {
		err = fmt.Errorf("%s on %s: %w", path, v.Device.Path, err)
	}
	return result, err
}

// ReadFile returns a file's content. The path must be valid for [fs.ValidPath]. If the file does not exist, the error
// wraps fs.ErrNotExist. A file of more than limit bytes is an error.
func (v *Volume) ReadFile(path string, limit int64) ([]byte, error) {
	return contain(v, path, func() ([]byte, error) { return v.readFile(path, limit) })
}

func (v *Volume) readFile(path string, limit int64) ([]byte, error) {
	n, err := v.find(path)
	if err != nil {
		return nil, err
	}
	if n.read == nil {
		return nil, fmt.Errorf("%s on %s is no regular file", path, v.Device.Path)
	}
	if n.size > limit {
		return nil, fmt.Errorf("%s on %s has %d bytes, want at most %d", path, v.Device.Path, n.size, limit)
	}
	data, err := n.read(limit)
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", path, v.Device.Path, err)
	}
	return data, nil
}

// Files returns the sorted names of a directory's regular files. If the directory does not exist, the error wraps
// fs.ErrNotExist.
func (v *Volume) Files(path string) ([]string, error) {
	return contain(v, path, func() ([]string, error) { return v.files(path) })
}

func (v *Volume) files(path string) ([]string, error) {
	n, err := v.find(path)
	if err != nil {
		return nil, err
	}
	if n.list == nil {
		return nil, fmt.Errorf("%s on %s is no folder", path, v.Device.Path)
	}
	nodes, err := n.list()
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", path, v.Device.Path, err)
	}
	var names []string
	for _, file := range nodes {
		if file.read != nil {
			names = append(names, file.name)
		}
	}
	return names, nil
}

// find walks down a path.
func (v *Volume) find(path string) (node, error) {
	if !fs.ValidPath(path) {
		return node{}, fmt.Errorf("path %q on %s: %w", path, v.Device.Path, fs.ErrInvalid)
	}
	at := v.root
	for _, name := range strings.Split(path, "/") {
		if at.list == nil {
			return node{}, fmt.Errorf("%s on %s: %w", path, v.Device.Path, fs.ErrNotExist)
		}
		nodes, err := at.list()
		if err != nil {
			return node{}, fmt.Errorf("%s on %s: %w", path, v.Device.Path, err)
		}
		found := false
		for _, n := range nodes {
			if n.name == name || v.foldCase && strings.EqualFold(n.name, name) {
				at, found = n, true
				break
			}
		}
		if !found {
			return node{}, fmt.Errorf("%s on %s: %w", path, v.Device.Path, fs.ErrNotExist)
		}
	}
	return at, nil
}
