package container

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
)

// mount makes the file system of the container, and makes it the root of this process. Paths of the image are resolved
// only inside of its root, so that its symbolic links cannot lead outside.
func (p *plan) mount() error {
	if err := confine.KeepMountsPrivate(); err != nil {
		return err
	}
	var trees []int
	for _, m := range p.Mounts {
		tree, err := unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("mount %s: %w", m.Source, err)
		}
		defer unix.Close(tree) //nolint:errcheck // only opened
		trees = append(trees, tree)
	}
	files := maps.Clone(p.Files)
	resolver, err := os.ReadFile("/etc/resolv.conf")
	if err == nil {
		files["/etc/resolv.conf"] = File{Content: resolver, Mode: 0o644}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := enterRoot(p.Root); err != nil {
		return err
	}
	for _, f := range []func() error{p.mountDev, p.mountOthers, p.hide} {
		if err := f(); err != nil {
			return err
		}
	}
	for i, m := range p.Mounts {
		if err := m.move(trees[i]); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.Source, m.Target, err)
		}
	}
	for name, f := range files {
		if err := writeFile(name, f); err != nil {
			return err
		}
	}
	return nil
}

// move mounts the open tree of a mount.
func (m Mount) move(tree int) error {
	if err := os.MkdirAll(m.Target, 0o755); err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, m.Target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | confine.DataOnly)
	if m.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	return unix.Mount("", m.Target, "", flags, "")
}

// writeFile writes a file. It replaces a symbolic link.
func writeFile(name string, f File) error {
	if err := os.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(name); err != nil {
		return err
	}
	return os.WriteFile(name, f.Content, fs.FileMode(f.Mode))
}

// mountDev mounts /dev with its nodes.
func (p *plan) mountDev() error {
	if err := mountAt("tmpfs", "/dev", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=4m"); err != nil {
		return err
	}
	if err := confine.FillDev(p.Devices); err != nil {
		return err
	}
	if err := os.Symlink("pts/ptmx", "/dev/ptmx"); err != nil {
		return err
	}
	const ptys = unix.MS_NOSUID | unix.MS_NOEXEC
	if err := mountAt("devpts", "/dev/pts", ptys, "newinstance,ptmxmode=0666,mode=0620,gid=5"); err != nil {
		return err
	}
	if err := mountAt("tmpfs", "/dev/shm", confine.DataOnly, "mode=1777,size=25%,"+confine.MaxFilesOption); err != nil {
		return err
	}
	return mountOptional("mqueue", "/dev/mqueue", confine.DataOnly)
}

// mountOthers mounts the other file systems of a container.
func (p *plan) mountOthers() error {
	for _, m := range []struct {
		kind, at string
		flags    uintptr
		data     string
	}{
		{"proc", "/proc", confine.DataOnly, ""},
		{"sysfs", "/sys", confine.DataOnly | unix.MS_RDONLY, ""},
		{"tmpfs", "/run", unix.MS_NOSUID | unix.MS_NODEV, "mode=755,size=25%," + confine.MaxFilesOption},
		{"tmpfs", "/tmp", unix.MS_NODEV, "mode=1777,size=25%," + confine.MaxFilesOption},
	} {
		if err := mountAt(m.kind, m.at, m.flags, m.data); err != nil {
			return err
		}
	}
	if err := mountOptional("cgroup2", "/sys/fs/cgroup", confine.DataOnly|unix.MS_RDONLY, unix.ENOENT); err != nil {
		return err
	}
	if p.Privileged { // without the directory, the machine was not booted by UEFI
		return mountOptional("efivarfs", "/sys/firmware/efi/efivars", confine.DataOnly, unix.ENOENT, unix.EOPNOTSUPP)
	}
	return nil
}

// mountAt mounts a file system in a directory, which is created.
func mountAt(kind, at string, flags uintptr, data string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(kind, at, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", kind, at, err)
	}
	return nil
}

// mountOptional mounts a file system. It does nothing if the kernel lacks the file system (ENODEV), or if the error is
// one of absent, which mean that the machine lacks what it shows.
func mountOptional(kind, at string, flags uintptr, absent ...unix.Errno) error {
	if strings.HasPrefix(at, "/dev/") {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
	}
	err := unix.Mount(kind, at, kind, flags, "")
	isErr := func(lacks unix.Errno) bool { return errors.Is(err, lacks) }
	if err == nil || isErr(unix.ENODEV) || slices.ContainsFunc(absent, isErr) {
		return nil
	}
	return fmt.Errorf("mount %s at %s: %w", kind, at, err)
}

// Files of /proc through which a program could change the machine, and directories and files that show its memory or
// secrets.
var (
	readOnlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/proc/acpi"}
	hiddenFiles   = []string{"/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/kallsyms"}
	hiddenDirs    = []string{
		"/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security",
		"/sys/firmware/ibft", "/sys/firmware/acpi/tables", // secrets of CHAP
		"/proc/scsi", // removes and adds disks
	}
)

// hide covers files that show the agent's secrets, and makes files that change the machine read-only.
func (p *plan) hide() error {
	if err := confine.Mask("\n"); err != nil {
		return err
	}
	if err := confine.HideFiles(hiddenFiles...); err != nil {
		return err
	}
	for _, dir := range hiddenDirs {
		if err := confine.HideDirectory(dir); err != nil {
			return err
		}
	}
	for _, name := range readOnlyPaths {
		err := unix.Mount(name, name, "", unix.MS_BIND, "")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = unix.Mount("", name, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|confine.DataOnly, "")
		}
		if err != nil {
			return fmt.Errorf("make %s read-only: %w", name, err)
		}
	}
	return nil
}
