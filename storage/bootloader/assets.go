package bootloader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"ironroot/storage/mounted"
)

// copier copies boot loaders and their files from one file system to another.
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
		return nil, fmt.Errorf("%s: more than %d directories deep", from, maxDepth)
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
		return false, nil // a dangling link, a socket, a device
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

// file copies a file.
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
