package chroot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
)

// entry describes to the child process the system to enter.
type entry struct {
	System
	Kind string // of the root's file system
	UUID string // of the root's file system, "" for none
}

const mountedAt = "/tmp" // any directory; in the child's namespace only

// enter makes the system's root the root of this process. Paths of the system are resolved only inside its root, so
// that its symbolic links cannot lead outside.
func (e entry) enter() error {
	if err := confine.KeepMountsPrivate(); err != nil {
		return err
	}
	nodes, err := e.nodes()
	if err != nil {
		return err
	}
	// A device node of the image must not open a device.
	if err := unix.Mount(e.Root, mountedAt, e.Kind, unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mount %s, %s: %w", e.Root, e.Kind, err)
	}
	if err := unix.Chdir(mountedAt); err != nil {
		return err
	}
	// Moving it over the old root makes the old root unreachable; pivot_root(2) does not work on an initramfs.
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move %s to /: %w", e.Root, err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter %s: %w", e.Root, err)
	}
	if err := makeDev(nodes); err != nil {
		kind := e.Kind
		if kind == "btrfs" {
			kind += ", in its default subvolume"
		}
		return fmt.Errorf("mount /dev in %s, %s: %w", e.Root, kind, err)
	}
	for _, m := range []struct {
		kind, at string
		flags    uintptr
		data     string
	}{
		{"proc", "/proc", confine.DataOnly | unix.MS_RDONLY, ""},
		{"sysfs", "/sys", confine.DataOnly | unix.MS_RDONLY, ""},
		{"tmpfs", "/run", confine.DataOnly, "size=5%," + confine.MaxFilesOption},
		{"tmpfs", "/tmp", confine.DataOnly &^ unix.MS_NOEXEC, "size=25%," + confine.MaxFilesOption},
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := e.mask(); err != nil {
		return err
	}
	if err := confine.ReplaceStdin(); err != nil {
		return err
	}
	if err := e.nameRoot(); err != nil {
		return fmt.Errorf("name %s by its UUID: %w", e.Root, err)
	}
	if err := e.mountOthers(); err != nil {
		return err
	}
	if err := confine.ProgramPolicy().ApplyAndSend(callsSocket); err != nil {
		return err
	}
	return capabilities(e.privileged())
}

// nodes returns the device nodes that the program sees besides the standard ones. They include the device mapper's,
// which GRUB queries for the components of a map.
func (e entry) nodes() (list []confine.DeviceNode, _ error) {
	paths := append([]string{e.Root}, e.Devices...)
	if e.ESP != "" {
		paths = append(paths, e.ESP)
	}
	if e.mapped() {
		paths = append(paths, "/dev/mapper/control")
	}
	for _, p := range paths {
		name, ok := strings.CutPrefix(path.Clean(p), "/dev/")
		if !ok {
			return nil, fmt.Errorf("device node %s: not in /dev", p)
		}
		var info unix.Stat_t
		if err := unix.Stat(p, &info); errors.Is(err, fs.ErrNotExist) && p != e.Root {
			continue // a partition that the kernel does not know
		} else if err != nil {
			return nil, fmt.Errorf("device node %s: %w", p, err)
		}
		list = append(list, confine.DeviceNode{
			Name: name, Mode: info.Mode&unix.S_IFMT | 0o600, Number: info.Rdev,
		})
	}
	return list, nil
}

// mapped reports whether the root is on a map of the device mapper.
func (e entry) mapped() bool { return strings.HasPrefix(path.Base(e.Root), "dm-") }

// privileged reports whether GRUB needs CAP_SYS_ADMIN to find the root's device: the ioctls of the device mapper and
// the search of Btrfs subvolumes require it.
func (e entry) privileged() bool { return e.Kind == "btrfs" || e.mapped() }

// makeDev mounts /dev and creates its nodes.
func makeDev(nodes []confine.DeviceNode) error {
	if err := unix.Mount("tmpfs", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755"); err != nil {
		return err
	}
	return confine.FillDev(nodes)
}

// mask replaces the ramdisk's command line by one for the system, and hides its other sources.
func (e entry) mask() error {
	line := "ro\n"
	if e.UUID != "" {
		line = "root=UUID=" + e.UUID + " ro\n"
	}
	if err := confine.Mask(line); err != nil {
		return err
	}
	return confine.HideFiles("/proc/keys")
}

// nameRoot creates a link to the root by its UUID in /dev/disk. Without the link GRUB writes the root's device path to
// its menu, and the installed system may name the device differently.
func (e entry) nameRoot() error {
	if e.UUID == "" {
		return nil
	}
	const byUUID = "/dev/disk/by-uuid"
	if err := os.MkdirAll(byUUID, 0o755); err != nil {
		return err
	}
	return os.Symlink(e.Root, path.Join(byUUID, path.Base(e.UUID)))
}

// mountOthers mounts the other file systems, and then the ESP. If another one cannot be mounted, it writes the reason
// to the program's output and continues. A failure to mount the ESP is an error.
func (e entry) mountOthers() error {
	for _, m := range e.Mounts {
		if err := unix.Mount(m.Device, m.At, m.Kind, confine.DataOnly, ""); err != nil {
			_, _ = fmt.Fprintf(os.Stderr, "mount %s, %s, at %s: %v\n", m.Device, m.Kind, m.At, err)
		}
	}
	if e.ESP == "" {
		return nil
	}
	if err := os.MkdirAll("/boot/efi", 0o700); err != nil {
		return err
	}
	if err := unix.Mount(e.ESP, "/boot/efi", "vfat", confine.DataOnly, ""); err != nil {
		return fmt.Errorf("mount %s: %w", e.ESP, err)
	}
	return nil
}
