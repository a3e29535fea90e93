package inject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/agent/fault"
	"ironroot/agent/node"
	"ironroot/agent/softraid"
	"ironroot/storage/block"
	"ironroot/storage/mounted"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// Argument names of the step.
const (
	FilesArgument    = "files"
	VerifyCAArgument = "verify_ca"
)

// Injector writes files to file systems of a machine, or removes files.
type Injector struct {
	Node   *node.Node       // may be nil
	Ports  []map[string]any // of the node
	System sysfs.Root
	Disks  block.Lister // of all hardware managers together
	Arrays Assembler
	Imager Imager
	Log    *slog.Logger
}

// Assembler runs the arrays of a machine.
type Assembler interface {
	// Assemble waits for the members of the arrays of the node's raid_config, and assembles all of them.
	Assemble(ctx context.Context, n *node.Node) (softraid.Assembled, error)
}

// Imager finds the root disk, and opens files at URLs: it is an [imaging.Imager], which this package does not import.
type Imager interface {
	DeployDisk(ctx context.Context, refresh bool) (block.Device, error)
	Open(ctx context.Context, url string, verify bool) (io.ReadCloser, error)
}

// Run writes the operator's files to file systems of the node, or removes files. The whole list is validated first.
// Names are resolved as inside a chroot to the file system, because its content belongs to the tenant. If a file is on
// a named array, the arrays of raid_config are assembled, and stopped again when all files are written.
func (in Injector) Run(ctx context.Context, args map[string]json.RawMessage) (err error) {
	files, verify, err := in.parse(args)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		in.Log.Info("no files to inject")
		return nil
	}
	if slices.ContainsFunc(files, file.isOnArray) {
		volumes, failed := in.Arrays.Assemble(ctx, in.Node)
		if failed != nil {
			return fault.DeviceNotFound("RAID arrays of raid_config: %w", failed)
		}
		defer func() {
			if failed := volumes.Release(context.WithoutCancel(ctx), ""); failed != nil {
				err = errors.Join(err, fault.CommandExecution(fmt.Errorf("inject files: %w", failed)))
			}
		}()
	}
	for _, f := range files {
		if err := in.inject(ctx, f, verify); err != nil {
			return err
		}
	}
	return nil
}

// isOnArray reports whether the file is on a named device that is, or by a link can be, a RAID array or a partition of
// one.
func (f file) isOnArray() bool {
	return strings.HasPrefix(f.device, "/dev/md") || strings.HasPrefix(f.device, block.LinkDir)
}

// inject writes or removes one file.
func (in Injector) inject(ctx context.Context, f file, verify bool) error {
	device, err := in.device(ctx, f)
	if err != nil {
		return err
	}
	fs, err := mounted.Open(ctx, device, true)
	if err != nil {
		return fault.CommandExecution(fmt.Errorf("inject %s: %w", f.path, err))
	}
	if f.deleted {
		err = remove(fs, f.path)
	} else {
		err = in.write(ctx, fs, f, verify)
	}
	if err = errors.Join(err, fs.Close()); err != nil {
		return fault.CommandExecution(fmt.Errorf("inject %s: %w", f.path, err))
	}
	phrase := "file injected"
	if f.deleted {
		phrase = "file removed"
	}
	in.Log.Info(phrase, "path", f.path, "device", device)
	return nil
}

// remove removes a file, which need not exist.
func remove(fs *mounted.FS, name string) error {
	if err := fs.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// write writes a file, and waits until it is on the device. If its content cannot be fetched, the file system does not
// change.
func (in Injector) write(ctx context.Context, fs *mounted.FS, f file, verify bool) (err error) {
	content := io.NopCloser(f.content())
	if f.url != "" {
		if content, err = in.Imager.Open(ctx, f.url, verify); err != nil {
			return err
		}
	}
	defer content.Close() //nolint:errcheck // it was read to its end, or has failed before
	dir := path.Dir(f.path)
	created, err := fs.MkdirAll(dir, 0o755)
	if err == nil && created && f.dirMode != 0 {
		err = changeDirMode(fs, dir, f.dirMode)
	}
	if err != nil {
		return err
	}
	file, err := fs.OpenFile(f.path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := file.Truncate(0); err != nil { // fails unless the file is regular
		return err
	}
	if _, err := io.Copy(file, content); err != nil {
		return fmt.Errorf("write %s: %w", file.Name(), err)
	}
	if err := f.setAttributes(file); err != nil {
		return err
	}
	// The sync of the file system reports errors of earlier writes only from Linux 5.8 on, and without the name.
	return file.Sync()
}

// setAttributes sets the owner, the group and the mode that are given.
func (f file) setAttributes(file *os.File) error {
	// First the owner: its change clears bits of the mode.
	if f.owner >= 0 || f.group >= 0 {
		if err := unix.Fchown(int(file.Fd()), f.owner, f.group); err != nil {
			return &os.PathError{Op: "chown", Path: file.Name(), Err: err}
		}
	}
	if f.mode == 0 {
		return nil
	}
	return changeMode(file, f.mode)
}

// changeDirMode changes the mode of a directory.
func changeDirMode(fs *mounted.FS, dir string, mode uint32) error {
	d, err := fs.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // nothing is written through it
	return changeMode(d, mode)
}

// changeMode changes the mode of an open file. Unlike [os.File.Chmod], it takes the bits of chmod(2).
func changeMode(file *os.File, mode uint32) error {
	if err := unix.Fchmod(int(file.Fd()), mode); err != nil {
		return &os.PathError{Op: "chmod", Path: file.Name(), Err: err}
	}
	return nil
}

// device returns the device with the file system that f belongs to.
func (in Injector) device(ctx context.Context, f file) (string, error) {
	if f.device != "" {
		return in.namedDevice(ctx, f.device)
	}
	disk, err := in.Imager.DeployDisk(ctx, false)
	if err != nil {
		return "", err
	}
	if f.partition == 0 {
		return in.findDevice(ctx, disk.Path, f)
	}
	return block.PartitionPath(in.System, disk.Path, f.partition), nil
}

// namedDevice returns the path of the disk or partition that device names, by its path or by a link of udev.
// It returns an error if the node protects the device.
func (in Injector) namedDevice(ctx context.Context, device string) (string, error) {
	disks, unread := in.Disks.Disks(ctx)
	if unread != nil && !errors.Is(unread, block.ErrUnreadable) {
		return "", fault.DeviceNotFound("list disks: %w", unread)
	}
	if strings.HasPrefix(device, block.LinkDir) {
		linked, err := partition.FindLink(ctx, in.System, disks, device)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if err != nil {
			return "", fault.DeviceNotFound("%w", errors.Join(err, unread))
		}
		device = linked
	}
	return device, in.checkDevice(ctx, device, disks, unread)
}

// checkDevice returns an error unless device is one of the disks or a partition of one, and the node does not protect
// it. unread is the error of the disks that could not be read, or nil.
func (in Injector) checkDevice(
	ctx context.Context, device string, disks []block.Device, unread error,
) error {
	i := slices.IndexFunc(disks, func(d block.Device) bool {
		if d.Path == device {
			return true
		}
		parts, err := block.Partitions(ctx, in.System, d.Path)
		unread = errors.Join(unread, err)
		return slices.ContainsFunc(parts, func(p block.Device) bool { return p.Path == device })
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if i < 0 && unread != nil {
		return fault.DeviceNotFound("find device %s: %w", device, unread)
	}
	if i < 0 {
		return fault.DeviceNotFound("device %s is neither a disk of this machine nor a partition of one", device)
	}
	skips, err := node.NewSkipList(in.Node)
	if err != nil {
		return fault.DeviceNotFound("%w", err)
	}
	kept, err := skips.Without(disks[i : i+1])
	if err == nil {
		kept, err = softraid.WithoutProtected(ctx, in.System, in.Node, kept)
	}
	if err != nil {
		return fault.DeviceNotFound("device %s: %w", device, err)
	}
	if len(kept) == 0 {
		return fault.DeviceNotFound("device %s is protected by skip_block_devices", device)
	}
	if err := skips.CheckRead(disks[i]); err != nil {
		return fault.DeviceNotFound("device %s: %w", device, err)
	}
	return nil
}

// findDevice returns the first partition of a disk that has the first directory of the file's path.
func (in Injector) findDevice(ctx context.Context, disk string, f file) (string, error) {
	first, _, _ := strings.Cut(strings.TrimPrefix(f.path, "/"), "/")
	table, err := partition.Read(ctx, disk)
	if err != nil {
		return "", fault.DeviceNotFound("partition for %s: %w", f.path, err)
	}
	var scanned []string
	for _, p := range table.Partitions {
		if p.Type == partition.TypeLVM || p.Type == partition.TypeMBRLVM || p.Extended() {
			continue // no file system
		}
		device := block.PartitionPath(in.System, disk, p.Number)
		found, err := hasDirectory(ctx, device, first)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if found {
			return device, nil
		}
		if err != nil {
			in.Log.Warn("partition not searched", "device", device, "path", f.path, "err", err)
			device += " (unreadable)"
		}
		scanned = append(scanned, device)
	}
	return "", fault.DeviceNotFound("none of the partitions of %s has the directory /%s: searched %s",
		disk, first, strings.Join(scanned, ", "))
}

// hasDirectory reports whether the file system of a device has a directory.
func hasDirectory(ctx context.Context, device, name string) (found bool, err error) {
	fs, err := mounted.Open(ctx, device, false)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, fs.Close()) }()
	dir, err := fs.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, dir.Close()
}
