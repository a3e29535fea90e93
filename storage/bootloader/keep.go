package bootloader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/fat"
	"ironroot/storage/mounted"
	"ironroot/storage/partition"
)

// ErrNoRoot says that no partition has the UUID of the root file system.
var ErrNoRoot = errors.New("no root partition")

// assets is where a root file system keeps what belongs onto the ESP; names in the ESP begin with its last part.
const assets = "boot/efi/EFI"

// Kept says what KeepEFI did.
type Kept struct {
	Files int
	Bytes int64
	Fstab bool // the root's fstab got a line
}

// KeepEFI copies the loaders that a partition image carries below /boot/efi/EFI of its root onto the disk's ESP, gives
// each loader's folder GRUB's configuration where it has none, and adds the ESP to the image's fstab. It can be run
// again. Root and ESP are found by the UUIDs of their file systems or partitions. Where the root has no such folder
// nothing is done. Errors wrap ErrNoRoot, ErrNoESP, and what the kernel says of the file systems.
func KeepEFI(ctx context.Context, disk, rootUUID, espUUID string, log *slog.Logger) (Kept, error) {
	kept, err := keepEFI(ctx, disk, rootUUID, espUUID)
	if err != nil {
		return kept, fmt.Errorf("keep the boot loaders of the root file system on %s: %w", disk, err)
	}
	if kept.Files > 0 {
		log.Info("boot loaders of the root file system are on the ESP", "device", disk, "files", kept.Files, "bytes", kept.Bytes,
			"fstab", kept.Fstab)
	}
	return kept, nil
}

func keepEFI(ctx context.Context, disk, rootUUID, espUUID string) (Kept, error) {
	table, err := partition.Read(ctx, disk)
	if err != nil {
		return Kept{}, fmt.Errorf("%w: %w", ErrNoRoot, err)
	}
	rootPath, err := findRoot(ctx, disk, table, rootUUID)
	if err != nil {
		return Kept{}, err
	}
	esp, err := findESP(disk, table, espUUID)
	if err != nil {
		return Kept{}, err
	}
	name, err := nameInFstab(disk, esp, espUUID)
	if err != nil {
		return Kept{}, err
	}
	kept, err := copyAssets(ctx, rootPath, block.PartitionPath(disk, esp.Number))
	if err != nil || kept.Files == 0 {
		return kept, err
	}
	kept.Fstab, err = changeFstab(ctx, rootPath, name)
	return kept, err
}

// findRoot returns the device of the partition that has the UUID, or the label where none has it.
func findRoot(ctx context.Context, disk string, table *partition.Table, uuid string) (string, error) {
	var unread error
	labelled := ""
	for _, p := range table.Partitions {
		device := block.PartitionPath(disk, p.Number)
		if strings.EqualFold(p.UUID, uuid) {
			return device, nil
		}
		found, err := block.Probe(ctx, device)
		switch {
		case err != nil:
			unread = errors.Join(unread, err)
		case strings.EqualFold(found.UUID, uuid):
			return device, nil
		case found.Label == uuid:
			labelled = device
		}
	}
	if labelled != "" {
		return labelled, nil
	}
	err := fmt.Errorf("%w: none of %d partitions on %s has the UUID %s", ErrNoRoot, len(table.Partitions), disk, uuid)
	return "", errors.Join(err, unread)
}

// nameInFstab returns how an fstab names the ESP: by its partition where that is what it was asked for by, else by its
// file system.
func nameInFstab(disk string, esp partition.Partition, asked string) (string, error) {
	if strings.EqualFold(asked, esp.UUID) {
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

// copyAssets copies from the root's device to the ESP's.
func copyAssets(ctx context.Context, rootPath, espPath string) (kept Kept, err error) {
	root, err := mounted.Open(ctx, rootPath, false)
	if err != nil {
		return Kept{}, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if folder, err := root.OpenFile(assets, os.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
		return Kept{}, absent(err)
	} else if err := folder.Close(); err != nil {
		return Kept{}, err
	}
	esp, err := mounted.Open(ctx, espPath, true)
	if err != nil {
		return Kept{}, err
	}
	defer func() { err = errors.Join(err, esp.Close()) }()
	c := copier{from: root, to: esp}
	err = c.run(ctx)
	return c.kept, err
}

// absent turns the error of what is not there into none.
func absent(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// changeFstab adds the ESP to the fstab of a root that can be written to; squashfs and its like cannot.
func changeFstab(ctx context.Context, rootPath, esp string) (changed bool, err error) {
	root, err := mounted.Open(ctx, rootPath, true)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return addToFstab(root, esp)
}

// copier copies the assets of one file system to another.
type copier struct {
	from, to *mounted.FS
	looked   int // names seen
	kept     Kept
}

func (c *copier) run(ctx context.Context) error {
	folders, err := c.folder(ctx, assets, path.Base(assets), 0)
	if err != nil {
		return err
	}
	// GRUB looks for its configuration beside itself; images often have it on their root only.
	for _, folder := range folders {
		for _, name := range []string{"grub.cfg", "grubenv"} {
			if err := c.grubFile(ctx, path.Join(assets, folder, name), path.Join(path.Base(assets), folder, name), name); err != nil {
				return err
			}
		}
	}
	return nil
}

// folder copies what is below a folder and returns the names of its own folders. Other things than files and folders are
// passed over; symbolic links are followed inside the file system, as FAT knows none.
func (c *copier) folder(ctx context.Context, from, to string, depth int) (folders []string, err error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%s: more than %d folders deep", from, maxDepth)
	}
	f, err := c.from.Open(from)
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(maxFiles + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if c.looked += len(names); c.looked > maxFiles {
		return nil, fmt.Errorf("%s: more than %d files", from, maxFiles)
	}
	if err := c.to.Mkdir(to, 0o755); err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		isFolder, err := c.entry(ctx, path.Join(from, name), path.Join(to, name), depth)
		if err != nil {
			return nil, err
		}
		if isFolder {
			folders = append(folders, name)
		}
	}
	return folders, nil
}

func (c *copier) entry(ctx context.Context, from, to string, depth int) (isFolder bool, err error) {
	f, err := c.from.Open(from)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EACCES) {
		return false, nil // a link to nowhere, a socket, a device
	}
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return false, err
	case info.IsDir():
		_, err = c.folder(ctx, from, to, depth+1)
		return true, err
	case info.Mode().IsRegular():
		return false, c.file(ctx, f, to)
	}
	return false, nil
}

// grubFile copies one of GRUB's files from the root's own folder, unless the image has it where it belongs.
func (c *copier) grubFile(ctx context.Context, place, to, name string) error {
	if f, err := c.from.Regular(place); err == nil {
		return f.Close()
	}
	for _, folder := range []string{"boot/grub2", "boot/grub"} {
		f, err := c.from.Regular(path.Join(folder, name))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return err
		}
		return errors.Join(c.file(ctx, f, to), f.Close())
	}
	return nil
}

// file writes one file.
func (c *copier) file(ctx context.Context, from *os.File, to string) (err error) {
	f, err := c.to.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.CopyN(f, from, 1<<20)
		c.kept.Bytes += n
		if errors.Is(err, io.EOF) {
			c.kept.Files++
			return nil
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", from.Name(), err)
		}
	}
}
