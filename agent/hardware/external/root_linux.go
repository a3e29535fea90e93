package external

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
	"ironroot/internal/pause"
	"ironroot/storage/sysfs"
)

// assembly is the directory where a root is assembled, in a mount namespace of its own.
const assembly = "/tmp"

// enterRoot makes a manager root the root file system of this process, hides the agent and its secrets from it, and
// permits only the system calls of programs and addedCalls. It runs in namespaces of its own, and its mounts end with
// them. The loop device is detached with its last mount.
//
// The root is writable: an overlay in memory receives the changes, and is discarded at the end.
func enterRoot(ctx context.Context, image string, addedCalls []string) error {
	if err := confine.KeepMountsPrivate(); err != nil {
		return err
	}
	devices := udevDevices(context.Background(), sysfs.Root{}) // before sysfs is covered
	// The changes of the root are in memory. The tmpfs of a root must not take all of it together.
	const limits = "mode=755,size=25%," + confine.MaxFilesOption
	if err := unix.Mount("tmpfs", assembly, "tmpfs", unix.MS_NOSUID, limits); err != nil {
		return fmt.Errorf("mount %s: %w", assembly, err)
	}
	below := func(name string) string { return filepath.Join(assembly, name) }
	for _, name := range []string{"image", "changes", "work", "root"} {
		if err := os.Mkdir(below(name), 0o755); err != nil {
			return err
		}
	}
	if err := MountImage(ctx, image, below("image")); err != nil {
		return fmt.Errorf("mount %s: %w", image, err)
	}
	options := "lowerdir=" + below("image") + ",upperdir=" + below("changes") + ",workdir=" + below("work")
	root := below("root")
	if err := unix.Mount("overlay", root, "overlay", unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount overlay over %s: %w", image, err)
	}
	if err := mountInto(root); err != nil {
		return fmt.Errorf("%s: %w", image, err)
	}
	if err := copyResolver(root); err != nil {
		return fmt.Errorf("%s: %w", image, err)
	}
	if err := unix.Chdir(root); err != nil {
		return err
	}
	// Moving it over the old root makes the old root unreachable; pivot_root(2) does not work on an initramfs.
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move %s to /: %w", image, err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter %s: %w", image, err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := devices.write(); err != nil {
		return err
	}
	if err := coverKernel(); err != nil {
		return err
	}
	if err := protectSysfs(); err != nil {
		return err
	}
	makeControlNodes()
	if err := readOnly("/dev", false); err != nil {
		return err
	}
	if err := confine.ProgramPolicy(addedCalls...).ApplyAndSend(callsSocket); err != nil {
		return err
	}
	return limitCapabilities(unix.CAP_SYS_CHROOT) // chroot(2) leads out of a root
}

// mountInto mounts the kernel's file systems and empty directories into a root, as programs of a distribution expect
// them.
func mountInto(root string) error {
	// The directory for links is empty in the ramdisk, which has no udev.
	if err := os.MkdirAll(linkDir, 0o755); err != nil {
		return err
	}
	for _, m := range []struct {
		source, at, kind string
		flags            uintptr
		options          string
	}{
		{"/dev", "dev", "", unix.MS_BIND | unix.MS_REC, ""},
		{"tmpfs", linkDir[1:], "tmpfs", confine.DataOnly, "mode=755,size=1m"},
		{"/sys", "sys", "", unix.MS_BIND | unix.MS_REC, ""},
		{"proc", "proc", "proc", confine.DataOnly | unix.MS_RDONLY, ""}, // /proc/sys names programs of the kernel
		{"tmpfs", "run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755,size=5%," + confine.MaxFilesOption},
		{"tmpfs", "tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777,size=25%," + confine.MaxFilesOption},
	} {
		at := filepath.Join(root, m.at)
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		if !info.IsDir() { // a link could lead out of the root
			return fmt.Errorf("%s: not a directory", m.at)
		}
		if err := unix.Mount(m.source, at, m.kind, m.flags, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}

// MountImage mounts an image read-only through a loop device, which is detached with the last mount.
func MountImage(ctx context.Context, image, at string) error {
	f, err := os.Open(image)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	device, err := attach(ctx, f)
	if err != nil {
		return fmt.Errorf("attach to a loop device: %w", err)
	}
	defer device.Close() //nolint:errcheck // the mount keeps it attached
	const flags = unix.MS_RDONLY | unix.MS_NODEV | unix.MS_NOSUID
	if err := unix.Mount(device.Name(), at, "squashfs", flags, ""); err != nil {
		return fmt.Errorf("squashfs: %w", err)
	}
	return nil
}

// Limits of the attempts to attach an image to a loop device.
const (
	attachAttempts = 100
	attachPause    = 20 * time.Millisecond
)

// attach attaches a file read-only to a free loop device. The device is detached when nothing uses it any more.
func attach(ctx context.Context, f *os.File) (device *os.File, err error) {
	control, err := openLoopControl()
	if err != nil {
		return nil, err
	}
	defer control.Close() //nolint:errcheck // nothing was written
	err = retryBusy(ctx, func() error {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return fmt.Errorf("find a free one: %w", err)
		}
		device, err = os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		config := unix.LoopConfig{Fd: uint32(f.Fd())}
		config.Info.Flags = unix.LO_FLAGS_READ_ONLY | unix.LO_FLAGS_AUTOCLEAR
		if err := unix.IoctlLoopConfigure(int(device.Fd()), &config); err != nil {
			_ = device.Close() // nothing was attached
			return fmt.Errorf("%s: %w", device.Name(), err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return device, nil
}

// retryBusy calls a function again while it fails with EBUSY, because another process was faster. It gives up after
// attachAttempts attempts, or when ctx ends.
func retryBusy(ctx context.Context, attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		if n == attachAttempts {
			return fmt.Errorf("%d attempts: %w", n, err)
		}
		if pause.For(ctx, attachPause) != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// openLoopControl opens the control device of the loop driver. The kernel loads the driver when a node with the number
// of that device is opened.
func openLoopControl() (*os.File, error) {
	const name, node = "/dev/loop-control", assembly + "/loop-control"
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(10, 237))); err != nil {
		return nil, fmt.Errorf("make device node %s: %w", node, err)
	}
	return os.OpenFile(node, os.O_RDWR, 0)
}

// resolverFiles are the files by which the C library finds the machines of the network.
var resolverFiles = []string{"etc/resolv.conf", "etc/hosts"}

// copyResolver copies the ramdisk's resolver files into a root. A link there is replaced.
func copyResolver(root string) error {
	for _, name := range resolverFiles {
		text, err := os.ReadFile("/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		inside, err := os.OpenRoot(root) // links of the root are not followed outside of it
		if err != nil {
			return err
		}
		if err := inside.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, inside.Close())
		}
		err = inside.WriteFile(name, text, 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // a root without /etc
		}
		if err := errors.Join(err, inside.Close()); err != nil {
			return err
		}
	}
	return nil
}
