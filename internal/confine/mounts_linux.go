package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DataOnly are the flags of a mount whose files are neither executed nor opened as devices.
const DataOnly = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// MaxFilesOption is the option of a tmpfs that limits its files. The size does not limit them, and each needs about 1
// KiB of memory: by default a program can use an eighth of the memory for them.
const MaxFilesOption = "nr_inodes=65536"

// KeepMountsPrivate hides later mounts of this mount namespace from the other ones.
func KeepMountsPrivate() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	return nil
}

// Mask replaces the ramdisk's command line in this mount namespace, and hides its other sources: the kernel log, kernel
// memory, the ramdisk's archive, and the files in which firmware and boot configuration pass a command line. Files that
// the kernel does not have are skipped. It needs a writable /run.
func Mask(line string) error {
	const file = "/run/cmdline"
	if err := os.WriteFile(file, []byte(line), 0o444); err != nil {
		return err
	}
	if err := Cover(file, "/proc/cmdline"); err != nil {
		return err
	}
	err := HideFiles("/proc/kmsg", "/proc/kcore", "/proc/bootconfig", "/sys/firmware/fdt", "/sys/firmware/initrd")
	if err != nil {
		return err
	}
	chosen, err := filepath.Glob("/sys/firmware/devicetree/base/chosen*")
	if err != nil {
		return err
	}
	for _, dir := range chosen {
		if err := unix.Mount("tmpfs", dir, "tmpfs", DataOnly|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("mask %s: %w", dir, err)
		}
	}
	return os.Remove(file)
}

// HideFiles mounts an empty device over each file. Files that do not exist are skipped.
func HideFiles(names ...string) error {
	for _, name := range names {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := Cover("/dev/null", name); err != nil { // also if there is no /dev/null
			return err
		}
	}
	return nil
}

// HideDirectory mounts an empty file system over a directory. One that does not exist is skipped.
func HideDirectory(name string) error {
	err := unix.Mount("tmpfs", name, "tmpfs", DataOnly|unix.MS_RDONLY, "size=0")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hide %s: %w", name, err)
	}
	return nil
}

// Cover mounts a file read-only over another.
func Cover(file, name string) error {
	if err := unix.Mount(file, name, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mask %s: %w", name, err)
	}
	const flags = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NOEXEC
	if err := unix.Mount("", name, "", flags, ""); err != nil {
		return fmt.Errorf("mask %s: %w", name, err)
	}
	return nil
}
