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
	count    int // directory entries read
	kept     Kept
}

func (c *copier) run(ctx context.Context) error {
	directories, err := c.directory(ctx, assets, path.Base(assets), 0)
	if err != nil {
		return err
	}
	// GRUB reads its configuration from its own directory; images often have it on their root only.
	for _, directory := range directories {
		for _, name := range []string{"grub.cfg", "grubenv"} {
			from, to := path.Join(assets, directory, name), path.Join(path.Base(assets), directory, name)
			if err := c.grubFile(ctx, from, to, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// directory copies the content of a directory and returns the names of its subdirectories. It copies only files and
// directories, and follows symbolic links inside the file system, because FAT has none.
func (c *copier) directory(ctx context.Context, from, to string, depth int) (directories []string, err error) {
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
	if c.count += len(names); c.count > maxFiles {
		return nil, fmt.Errorf("%s: more than %d files", from, maxFiles)
	}
	if err := c.to.Mkdir(to, 0o755); err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		isDir, err := c.entry(ctx, path.Join(from, name), path.Join(to, name), depth)
		if err != nil {
			return nil, err
		}
		if isDir {
			directories = append(directories, name)
		}
	}
	return directories, nil
}

func (c *copier) entry(ctx context.Context, from, to string, depth int) (isDir bool, err error) {
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
		_, err = c.directory(ctx, from, to, depth+1)
		return true, err
	case info.Mode().IsRegular():
		return false, c.file(ctx, f, to)
	}
	return false, nil
}

// grubFile copies one of GRUB's files from GRUB's directory on the root, unless the image has it at path from.
func (c *copier) grubFile(ctx context.Context, from, to, name string) error {
	if f, err := c.from.Regular(from); err == nil {
		return f.Close()
	}
	for _, directory := range []string{"boot/grub2", "boot/grub"} {
		f, err := c.from.Regular(path.Join(directory, name))
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
