package bootloader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/bootloader/chroot"
	"ironroot/storage/fat"
	"ironroot/storage/mounted"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// ErrNoRoot is returned if no partition has the UUID of the root file system.
var ErrNoRoot = errors.New("no root partition")

// assets is the directory of a root file system with the content of the ESP. Paths on the ESP start with its last
// part.
const assets = "boot/efi/EFI"

// Kept is the result of KeepEFI.
type Kept struct {
	Files int
	Bytes int64
	Fstab bool // the root's fstab was changed
}

// Keep holds the parameters of KeepEFI.
type Keep struct {
	Disk      string
	System    sysfs.Root
	Disks     block.Lister // searched for the root if it is not on Disk; nil for none
	RootUUID  string       // of the root's file system or partition
	ESPUUID   string
	Configure bool // first run the image's GRUB, if any, to write its menu
	// Array is not nil if Disk is a Linux RAID array that firmware cannot read. The ESP will be moved to its disks, so
	// that fstab must name the file system, not the partition.
	Array *ArrayDisks
	Log   *slog.Logger
}

// KeepEFI copies the loaders below /boot/efi/EFI of a partition image's root to the disk's ESP. It adds GRUB's
// configuration to each loader's directory that has none, and makes the image's fstab mount the ESP. It can be called
// again.
// Root and ESP are found by the UUIDs of their file systems or partitions. If the root has no such directory, KeepEFI
// does nothing. Errors wrap ErrNoRoot, ErrNoESP, and errors of the kernel's file systems.
func KeepEFI(ctx context.Context, k Keep) (Kept, error) {
	kept, err := k.keep(ctx)
	if err != nil {
		return kept, fmt.Errorf("keep the boot loaders of the root file system on %s: %w", k.Disk, err)
	}
	if kept.Files > 0 {
		k.Log.Info("boot loaders of the root file system copied to the ESP",
			"device", k.Disk, "files", kept.Files, "bytes", kept.Bytes, "fstab", kept.Fstab)
	}
	return kept, nil
}

func (k Keep) keep(ctx context.Context) (Kept, error) {
	table, err := partition.Read(ctx, k.Disk)
	if err != nil {
		return Kept{}, fmt.Errorf("%w: %w", ErrNoRoot, err)
	}
	rootPath, err := findRoot(ctx, k.System, k.Disks, k.Disk, table, k.RootUUID)
	if err != nil {
		return Kept{}, err
	}
	esp, err := findESP(k.Disk, table, k.ESPUUID)
	if err != nil {
		return Kept{}, err
	}
	requested := k.ESPUUID
	if k.Array != nil {
		requested = ""
	}
	name, err := nameInFstab(k.Disk, esp, requested)
	if err != nil {
		return Kept{}, err
	}
	if found, err := hasAssets(ctx, rootPath); err != nil || !found {
		return Kept{}, err
	}
	if k.Configure {
		k.Log.Warn("running the image's own GRUB, as enable_bios_bootloader_install allows", "device", rootPath)
		system, err := installed(ctx, k.System, k.Disk, rootPath, table, k.Log)
		if err != nil {
			return Kept{}, err
		}
		if err := k.Array.show(ctx, k.System, &system, k.Log); err != nil {
			return Kept{}, err
		}
		if err := configureGRUB(ctx, system); err != nil && !errors.Is(err, chroot.ErrNoProgram) {
			return Kept{}, err
		}
	}
	kept, err := copyAssets(ctx, rootPath, block.PartitionPath(k.System, k.Disk, esp.Number))
	if err != nil || kept.Files == 0 {
		return kept, err
	}
	kept.Fstab, err = changeFstab(ctx, rootPath, name)
	return kept, err
}

// nameInFstab returns the ESP's name in an fstab: by its partition if requested is its PARTUUID, otherwise by its file
// system.
func nameInFstab(disk string, esp partition.Partition, requested string) (string, error) {
	if strings.EqualFold(requested, esp.UUID) {
		return "PARTUUID=" + esp.UUID, nil
	}
	f, err := os.Open(disk)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	tree, err := fat.Open(io.NewSectionReader(f, esp.Start, esp.Size))
	if err != nil {
		return "", fmt.Errorf("read the ESP, partition %d: %w", esp.Number, err)
	}
	return "UUID=" + tree.Serial(), nil
}

// hasAssets reports whether the root has loaders for the ESP.
func hasAssets(ctx context.Context, rootPath string) (found bool, err error) {
	root, err := mounted.Open(ctx, rootPath, false)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	directory, err := root.OpenFile(assets, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return false, absent(err)
	}
	return true, directory.Close()
}

// copyAssets copies the loaders from the root's device to the ESP's.
func copyAssets(ctx context.Context, rootPath, espPath string) (kept Kept, err error) {
	root, err := mounted.Open(ctx, rootPath, false)
	if err != nil {
		return Kept{}, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	esp, err := mounted.Open(ctx, espPath, true)
	if err != nil {
		return Kept{}, err
	}
	defer func() { err = errors.Join(err, esp.Close()) }()
	c := copier{from: root, to: esp}
	err = c.run(ctx)
	return c.kept, err
}

// openWritable opens the root of a file system to change its files. The result is nil if the file system is read-only,
// such as squashfs.
func openWritable(ctx context.Context, path string) (*mounted.FS, error) {
	root, err := mounted.Open(ctx, path, true)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
		return nil, nil
	}
	return root, err
}

// absent returns nil if the error is that a file does not exist.
func absent(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// changeFstab makes the fstab of a root mount the ESP, unless its file system is read-only, such as squashfs.
func changeFstab(ctx context.Context, rootPath, esp string) (changed bool, err error) {
	root, err := openWritable(ctx, rootPath)
	if root == nil || err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return rewriteFstab(root, esp)
}
