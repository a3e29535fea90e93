package configdrive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/fat"
	"ironroot/storage/iso9660"
)

const (
	maxFiles = 1 << 14
	maxDepth = 32
)

// damaged returns the error of a drive whose file system cannot be read. It replaces the readers' errors: they quote
// file names, which are content of the drive and must not appear in errors.
func damaged(kind string) error {
	return fmt.Errorf("%w: its %s file system is damaged", ErrUnreadable, kind)
}

// withoutNames returns the cause of an error of writing files, without their names.
func withoutNames(err error) error {
	for {
		var node *fat.NodeError
		if !errors.As(err, &node) {
			return err
		}
		err = node.Err
	}
}

// readFiles lists the files of a drive.
func readFiles(drive []byte) ([]fat.Node, error) {
	r := bytes.NewReader(drive)
	left := maxFiles
	iso, err := iso9660.Open(r)
	if err == nil {
		if !iso.RockRidge() {
			return nil, fmt.Errorf("%w: its ISO 9660 file system has no Rock Ridge names (genisoimage -r)", ErrUnreadable)
		}
		return isoNodes(iso, iso.Root(), &left, 0)
	}
	if !errors.Is(err, iso9660.ErrNoISO) {
		return nil, damaged("ISO 9660")
	}
	f, err := fat.Open(r)
	if errors.Is(err, fat.ErrNoFAT) {
		return nil, fmt.Errorf("%w: it is neither ISO 9660 nor FAT", ErrUnreadable)
	}
	if err != nil {
		return nil, damaged("FAT")
	}
	return fatNodes(f, f.Root(), &left, 0)
}

func isoNodes(f *iso9660.FS, folder iso9660.File, left *int, depth int) ([]fat.Node, error) {
	list, err := f.List(folder)
	if err != nil {
		return nil, damaged("ISO 9660")
	}
	if err := count(len(list), left, depth); err != nil {
		return nil, err
	}
	var nodes []fat.Node
	for _, file := range list {
		node := fat.Node{Name: file.Name, Folder: file.Folder, Size: file.Size}
		switch {
		case file.Folder:
			if node.Nodes, err = isoNodes(f, file, left, depth+1); err != nil {
				return nil, err
			}
		case !file.Regular:
			return nil, fmt.Errorf("%w: one of its %d files is neither a directory nor a regular file in one piece", ErrUnreadable, len(list))
		default:
			node.Content = func() ([]byte, error) {
				content, err := f.Read(file, file.Size)
				if err != nil {
					return nil, damaged("ISO 9660")
				}
				return content, nil
			}
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

func fatNodes(f *fat.FS, folder fat.File, left *int, depth int) ([]fat.Node, error) {
	list, err := f.List(folder)
	if err != nil {
		return nil, damaged("FAT")
	}
	if err := count(len(list), left, depth); err != nil {
		return nil, err
	}
	var nodes []fat.Node
	for _, file := range list {
		node := fat.Node{Name: file.Name, Folder: file.Folder, Size: file.Size}
		if file.Folder {
			if node.Nodes, err = fatNodes(f, file, left, depth+1); err != nil {
				return nil, err
			}
		} else {
			node.Content = func() ([]byte, error) {
				content, err := f.Read(file, file.Size)
				if err != nil {
					return nil, damaged("FAT")
				}
				return content, nil
			}
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// count bounds what is listed: a damaged file system may be a folder in itself.
func count(files int, left *int, depth int) error {
	if *left -= files; *left < 0 || depth > maxDepth {
		return fmt.Errorf("%w: it has more than %d files or %d folders within each other", ErrUnreadable, maxFiles, maxDepth)
	}
	return nil
}

// rewrite makes a FAT file system with the files on a partition, and compares what is then on the medium with them.
func rewrite(ctx context.Context, path string, sector int64, files []fat.Node) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0) // fails if it is mounted or otherwise in use
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, _, err := block.Geometry(f)
	if err != nil {
		return err
	}
	// The serial number follows from the place, so that the same drive gives the same bytes.
	volume := fat.Volume{Size: size, Sector: sector, Label: strings.ToUpper(Label), Serial: crc32.ChecksumIEEE([]byte(path))}
	if err := volume.Write(ctx, f, files, f.Sync); err != nil {
		return fmt.Errorf("copy into a new file system on %s: %w", path, withoutNames(err))
	}
	if err := block.Flush(ctx, path); err != nil {
		return err
	}
	copied, err := fat.Open(f)
	if err != nil {
		return fmt.Errorf("read back %s: %w", path, err)
	}
	return compare(ctx, copied, copied.Root(), files)
}

var errReadBack = errors.New("read back: a file differs from what was written")

// readBackError returns the device's error number from an error of reading files, otherwise errReadBack.
func readBackError(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return fmt.Errorf("read back: %w", number)
	}
	return errReadBack
}

// compare holds the copies against the files.
func compare(ctx context.Context, copied *fat.FS, folder fat.File, files []fat.Node) error {
	list, err := copied.List(folder)
	if err != nil {
		return readBackError(err)
	}
	found := map[string]fat.File{}
	for _, file := range list {
		found[file.Name] = file
	}
	for _, want := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		file, ok := found[want.Name]
		if !ok || file.Folder != want.Folder || file.Size != want.Size && !want.Folder {
			return errReadBack
		}
		if want.Folder {
			if err := compare(ctx, copied, file, want.Nodes); err != nil {
				return err
			}
			continue
		}
		content, err := want.Content()
		if err != nil {
			return err
		}
		got, err := copied.Read(file, file.Size)
		if err != nil {
			return readBackError(err)
		}
		if !bytes.Equal(got, content) {
			return errReadBack
		}
	}
	return nil
}
