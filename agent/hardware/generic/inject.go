package generic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/node"
	"ironroot/agent/softraid"
	"ironroot/storage/block"
	"ironroot/storage/mounted"
	"ironroot/storage/partition"
)

// injectArguments are the arguments of inject_files.
func injectArguments() map[string]hardware.ArgInfo {
	return map[string]hardware.ArgInfo{
		injectedFiles: {Description: "" +
			"List of files to write, after those in the inject_files property of the node. Each is an object with " +
			"path, and optionally partition (number on the root disk, path of a device, or link below /dev/disk), " +
			"content (base64, or a URL in " +
			"which {node[...]} and {ports[0][...]} are replaced), deleted (true removes the file), mode, dirmode " +
			"(of the directory, if it is created), owner and group (numbers). Without partition, the file is on the " +
			"first partition that has the first directory of the path."},
		verifyCA: {Description: "" +
			"Whether the certificates of HTTPS servers are verified as the agent's options say. The default is true."},
	}
}

// injectFiles writes files of the operator's to file systems of the node, or removes files. The whole call is validated
// first. Names are resolved as inside a chroot to the file system, because its content belongs to the tenant. If a file
// is on a named array, the arrays of raid_config are assembled, and stopped again when all files are written.
func (m *Manager) injectFiles(ctx context.Context, call hardware.Call) (_ any, err error) {
	files, verify, err := parseInjection(call)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		m.o.Log.Info("no files to inject")
		return nil, nil
	}
	if slices.ContainsFunc(files, injectedFile.isOnArray) {
		volumes, failed := m.assembleAll(ctx, call.Node)
		if failed != nil {
			return nil, fault.DeviceNotFound("RAID arrays of raid_config: %w", failed)
		}
		defer func() {
			if failed := volumes.Release(context.WithoutCancel(ctx), ""); failed != nil {
				err = errors.Join(err, fault.CommandExecution(fmt.Errorf("inject files: %w", failed)))
			}
		}()
	}
	for _, f := range files {
		if err := m.inject(ctx, call, f, verify); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// isOnArray reports whether the file is on a named device that is, or by a link can be, a RAID array or a partition of
// one.
func (f injectedFile) isOnArray() bool {
	return strings.HasPrefix(f.device, "/dev/md") || strings.HasPrefix(f.device, block.LinkDir)
}

// inject writes or removes one file.
func (m *Manager) inject(ctx context.Context, call hardware.Call, f injectedFile, verify bool) error {
	device, err := m.injectionDevice(ctx, call, f)
	if err != nil {
		return err
	}
	fs, err := mounted.Open(ctx, device, true)
	if err != nil {
		return fault.CommandExecution(fmt.Errorf("inject %s: %w", f.path, err))
	}
	if f.deleted {
		err = removeInjected(fs, f.path)
	} else {
		err = m.writeInjected(ctx, fs, f, verify)
	}
	if err = errors.Join(err, fs.Close()); err != nil {
		return fault.CommandExecution(fmt.Errorf("inject %s: %w", f.path, err))
	}
	phrase := "file injected"
	if f.deleted {
		phrase = "file removed"
	}
	m.o.Log.Info(phrase, "path", f.path, "device", device)
	return nil
}

// removeInjected removes a file, which need not exist.
func removeInjected(fs *mounted.FS, name string) error {
	if err := fs.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// writeInjected writes a file, and waits until it is on the device. If its content cannot be fetched, the file system
// does not change.
func (m *Manager) writeInjected(ctx context.Context, fs *mounted.FS, f injectedFile, verify bool) (err error) {
	content := io.NopCloser(f.content())
	if f.url != "" {
		if content, err = m.o.Imager.Open(ctx, f.url, verify); err != nil {
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
func (f injectedFile) setAttributes(file *os.File) error {
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

// injectionDevice returns the device with the file system that f belongs to.
func (m *Manager) injectionDevice(ctx context.Context, call hardware.Call, f injectedFile) (string, error) {
	if f.device != "" {
		return m.namedInjectionDevice(ctx, call, f.device)
	}
	disk, err := m.o.Imager.DeployDisk(ctx, false)
	if err != nil {
		return "", err
	}
	if f.partition == 0 {
		return m.findInjectionDevice(ctx, disk.Path, f)
	}
	return block.PartitionPath(m.o.System, disk.Path, f.partition), nil
}

// namedInjectionDevice returns the path of the disk or partition that device names, by its path or by a link of udev.
// It returns an error if the node protects the device.
func (m *Manager) namedInjectionDevice(ctx context.Context, call hardware.Call, device string) (string, error) {
	disks, unread := m.o.Disks.Disks(ctx)
	if unread != nil && !errors.Is(unread, block.ErrUnreadable) {
		return "", fault.DeviceNotFound("list disks: %w", unread)
	}
	if strings.HasPrefix(device, block.LinkDir) {
		linked, err := partition.FindLink(ctx, m.o.System, disks, device)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if err != nil {
			return "", fault.DeviceNotFound("%w", errors.Join(err, unread))
		}
		device = linked
	}
	return device, m.checkInjectionDevice(ctx, call, device, disks, unread)
}

// checkInjectionDevice returns an error unless device is one of the disks or a partition of one, and the node does not
// protect it. unread is the error of the disks that could not be read, or nil.
func (m *Manager) checkInjectionDevice(
	ctx context.Context, call hardware.Call, device string, disks []block.Device, unread error,
) error {
	i := slices.IndexFunc(disks, func(d block.Device) bool {
		if d.Path == device {
			return true
		}
		parts, err := block.Partitions(ctx, m.o.System, d.Path)
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
	skips, err := node.NewSkipList(call.Node)
	if err != nil {
		return fault.DeviceNotFound("%w", err)
	}
	kept, err := skips.Without(disks[i : i+1])
	if err == nil {
		kept, err = softraid.WithoutProtected(ctx, m.o.System, call.Node, kept)
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

// findInjectionDevice returns the first partition of a disk that has the first directory of the file's path.
func (m *Manager) findInjectionDevice(ctx context.Context, disk string, f injectedFile) (string, error) {
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
		device := block.PartitionPath(m.o.System, disk, p.Number)
		found, err := hasDirectory(ctx, device, first)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if found {
			return device, nil
		}
		if err != nil {
			m.o.Log.Warn("partition not searched", "device", device, "path", f.path, "err", err)
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
