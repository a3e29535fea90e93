package configdrive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"ironroot/storage/block"
	"ironroot/storage/fat"
	"ironroot/storage/iso9660"
)

const (
	maxFiles = 1 << 14
	maxDepth = 32
)

// damaged returns the error of a drive whose file system cannot be read. It replaces the errors of the readers,
// because they contain file names, which are secret content of the drive.
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

// The kinds of file systems whose files can be read.
const (
	kindISO = "ISO 9660"
	kindFAT = "FAT"
)

// errUnknown is returned if a drive has neither an ISO 9660 nor a FAT file system.
var errUnknown = fmt.Errorf("%w: it is neither ISO 9660 nor FAT", ErrUnreadable)

// openFiles opens the file system of a drive. ISO 9660 comes first: the first 32 KiB of such a drive can have any
// content.
func openFiles(drive []byte) (*lister, error) {
	r := bytes.NewReader(drive)
	iso, err := iso9660.Open(r)
	switch {
	case err == nil && !iso.LongNames():
		return nil, fmt.Errorf("%w: its ISO 9660 file system has neither Rock Ridge nor Joliet names (genisoimage -r)",
			ErrUnreadable)
	case err == nil:
		return &lister{files: iso, kind: kindISO, left: maxFiles}, nil
	case !errors.Is(err, iso9660.ErrNoISO):
		return nil, damaged(kindISO)
	}
	f, err := fat.Open(r)
	switch {
	case err == nil:
		return &lister{files: f, kind: kindFAT, left: maxFiles}, nil
	case errors.Is(err, fat.ErrNoFAT):
		return nil, errUnknown
	}
	return nil, damaged(kindFAT)
}

// readFiles lists the files of a drive.
func readFiles(drive []byte) ([]fat.Node, error) {
	l, err := openFiles(drive)
	if err != nil {
		return nil, err
	}
	return l.nodes(".", 0)
}

// driveFile is the content of a file.
type driveFile struct {
	files      fs.FS
	kind, name string
}

// Copy implements [fat.Content].
func (f driveFile) Copy(ctx context.Context, w io.Writer) error {
	content, err := fs.ReadFile(f.files, f.name)
	if err != nil {
		return damaged(f.kind)
	}
	return fat.Bytes(content).Copy(ctx, w)
}

// lister lists the files of a drive.
type lister struct {
	files fs.FS
	kind  string
	left  int // number of files that may follow
}

func (l *lister) nodes(directory string, depth int) ([]fat.Node, error) {
	list, err := fs.ReadDir(l.files, directory)
	if err != nil {
		return nil, damaged(l.kind)
	}
	// A damaged directory may contain itself.
	if l.left -= len(list); l.left < 0 || depth > maxDepth {
		return nil, fmt.Errorf("%w: it has more than %d files or %d directories within each other",
			ErrUnreadable, maxFiles, maxDepth)
	}
	var nodes []fat.Node
	for _, file := range list {
		name := path.Join(directory, file.Name())
		info, err := file.Info()
		if err != nil {
			return nil, damaged(l.kind)
		}
		node := fat.Node{Name: file.Name(), IsDir: file.IsDir(), Size: info.Size()}
		switch {
		case node.IsDir:
			if node.Nodes, err = l.nodes(name, depth+1); err != nil {
				return nil, err
			}
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("%w: one of its %d files is neither a directory nor a regular file in one piece",
				ErrUnreadable, len(list))
		default:
			node.Content = driveFile{l.files, l.kind, name}
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// rewrite makes a FAT file system with the files on a partition, and compares the content of the medium with them.
func rewrite(ctx context.Context, path string, sector int64, files []fat.Node) (err error) {
	f, size, err := openExclusive(path, os.O_RDWR)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// The serial number depends only on the path, so that the same drive gives the same bytes.
	volume := fat.Volume{
		Size: size, Sector: sector, Label: strings.ToUpper(Label), Serial: crc32.ChecksumIEEE([]byte(path)),
	}
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
	return compare(ctx, copied, ".", files)
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

// compare compares the copies with the files.
func compare(ctx context.Context, copied *fat.FS, directory string, files []fat.Node) error {
	list, err := copied.ReadDir(directory)
	if err != nil {
		return readBackError(err)
	}
	found := map[string]fs.DirEntry{}
	for _, file := range list {
		found[file.Name()] = file
	}
	for _, want := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		file, ok := found[want.Name]
		if !ok || file.IsDir() != want.IsDir {
			return errReadBack
		}
		name := path.Join(directory, want.Name)
		if want.IsDir {
			if err := compare(ctx, copied, name, want.Nodes); err != nil {
				return err
			}
			continue
		}
		var content bytes.Buffer
		if err := want.Content.Copy(ctx, &content); err != nil {
			return err
		}
		got, err := copied.ReadFile(name)
		if err != nil {
			return readBackError(err)
		}
		if !bytes.Equal(got, content.Bytes()) {
			return errReadBack
		}
	}
	return nil
}
