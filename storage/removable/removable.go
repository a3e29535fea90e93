package removable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"ironroot/internal/goroutine"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/fat"
	"ironroot/storage/iso9660"
	"ironroot/storage/sysfs"
)

// Volume is a medium with a readable file system. It must be closed, and is not safe for concurrent use.
type Volume struct {
	Device    block.Device
	Label     string // of the file system, "" if it has none
	Publisher string // publisher identifier of an ISO 9660 volume
	files     fs.FS
	file      *os.File
}

// Problem describes a medium that cannot be read, or whose file system is damaged.
type Problem struct {
	Device string // path
	Err    error
}

// Volumes opens all trusted media that contain a file system, sorted by device name. Media that cannot be read, or
// whose file system causes a panic, are returned as problems. It reports progress to [timelimit.Do] after each device.
func Volumes(ctx context.Context, sys sysfs.Root) ([]*Volume, []*Problem, error) {
	return volumes(ctx, sys, block.IsVirtualMedia, (*Volume).probe)
}

func volumes(
	ctx context.Context, sys sysfs.Root,
	isTrusted func(sys sysfs.Root, name string) (bool, error), probe func(*Volume) error,
) ([]*Volume, []*Problem, error) {
	devices, err := block.All(ctx, sys)
	if err != nil {
		return nil, nil, err
	}
	var opened []*Volume
	var problems []*Problem
	for _, device := range devices {
		var volume *Volume
		err := goroutine.Catch(func() (err error) {
			if trusted, err := isTrusted(sys, device.Name); err != nil || !trusted {
				return nil //nolint:nilerr // unplugged in the meantime
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
		timelimit.Progress(ctx)
	}
	return opened, problems, nil
}

// IgnoredDisk is a small USB disk that is not trusted, because it is neither removable nor write-protected.
type IgnoredDisk struct {
	Device block.Device
	Label  string // of its file system, "" if there is none or it cannot be read
}

// IgnoredDisks returns the disks that lack only these flags. It reads nothing but their labels.
func IgnoredDisks(ctx context.Context, sys sysfs.Root) ([]IgnoredDisk, error) {
	devices, err := block.All(ctx, sys)
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

// open returns nil if there is no medium or no supported file system.
func open(sys sysfs.Root, device block.Device, probe func(*Volume) error) (opened *Volume, err error) {
	file, err := os.Open(sys.Dev(strings.TrimPrefix(device.Path, "/dev/")))
	if errors.Is(err, errNoMedium) || errors.Is(err, fs.ErrNotExist) {
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
	if err := probe(v); err != nil || v.files == nil {
		return nil, err
	}
	return v, nil
}

// probe recognises the file system. ISO 9660 comes first: the first 32 KiB of such a medium can have any content.
func (v *Volume) probe() error {
	iso, err := iso9660.Open(v.file)
	if errors.Is(err, iso9660.ErrNoISO) {
		return v.probeFAT()
	}
	if err != nil {
		return err
	}
	// A drive can report too few bytes for a complete disc, but a RAM disk is exactly as large as what was loaded.
	if v.Device.Type == block.RAMDisk && iso.Size() > v.Device.Size {
		return fmt.Errorf("ISO 9660 volume of %d bytes is truncated: the RAM disk has %d", iso.Size(), v.Device.Size)
	}
	v.Label, v.Publisher, v.files = iso.Label(), iso.Publisher(), iso
	return nil
}

func (v *Volume) probeFAT() error {
	f, err := fat.Open(v.file)
	if errors.Is(err, fat.ErrNoFAT) {
		return nil
	}
	if err != nil {
		return err
	}
	if v.Label, err = f.Label(); err != nil {
		return err
	}
	v.files = f
	return nil
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
	info, err := v.stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s on %s is not a regular file", path, v.Device.Path)
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s on %s has %d bytes, want at most %d", path, v.Device.Path, info.Size(), limit)
	}
	data, err := fs.ReadFile(v.files, path)
	return data, v.named(path, err)
}

// Files returns the sorted names of a directory's regular files. If the directory does not exist, the error wraps
// fs.ErrNotExist.
func (v *Volume) Files(path string) ([]string, error) {
	return contain(v, path, func() ([]string, error) { return v.list(path) })
}

func (v *Volume) list(path string) ([]string, error) {
	info, err := v.stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s on %s is not a directory", path, v.Device.Path)
	}
	entries, err := fs.ReadDir(v.files, path)
	var names []string
	for _, entry := range entries {
		if entry.Type().IsRegular() {
			names = append(names, entry.Name())
		}
	}
	return names, v.named(path, err)
}

// stat describes the file or directory with a path.
func (v *Volume) stat(path string) (fs.FileInfo, error) {
	if !fs.ValidPath(path) {
		return nil, fmt.Errorf("path %q on %s: %w", path, v.Device.Path, fs.ErrInvalid)
	}
	info, err := fs.Stat(v.files, path)
	return info, v.named(path, err)
}

// named returns the cause of an error, nil for none, with the path and the device.
func (v *Volume) named(path string, err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		err = pathError.Err
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s on %s: %w", path, v.Device.Path, err)
}
