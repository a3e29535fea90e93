package bootloader

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"

	"ironroot/storage/block"
	"ironroot/storage/fat"
	"ironroot/storage/partition"
)

// Limits of the files of an EFI system partition.
const (
	maxContentDepth = 16
	maxContentFiles = 20000
)

// content describes the files of a FAT file system.
type content struct {
	serial string // "1234-ABCD"; "" for a random one
	label  string
	nodes  []fat.Node
	files  int
	bytes  int64
	digest [sha256.Size]byte // of all names and files
}

// openFAT opens the file system of a partition of a disk. It drops the kernel's buffers first: the file system can have
// been changed through another device.
func openFAT(ctx context.Context, disk string, p partition.Partition) (*os.File, *fat.FS, error) {
	if err := block.Flush(ctx, disk); err != nil {
		return nil, nil, err
	}
	f, err := os.Open(disk)
	if err != nil {
		return nil, nil, err
	}
	tree, err := fat.Open(io.NewSectionReader(f, p.Start, p.Size))
	if err != nil {
		f.Close() //nolint:errcheck // only read
		return nil, nil, fmt.Errorf("read partition %d of %s: %w", p.Number, disk, err)
	}
	return f, tree, nil
}

// readContent reads all files of a file system. The nodes read them again from it.
func readContent(ctx context.Context, tree *fat.FS) (content, error) {
	r := reader{tree: tree, sum: sha256.New()}
	c := content{serial: tree.Serial()}
	var err error
	if c.label, err = tree.Label(); err != nil {
		return content{}, err
	}
	if c.nodes, err = r.directory(ctx, ".", 0); err != nil {
		return content{}, err
	}
	c.files, c.bytes = r.files, r.bytes
	r.sum.Sum(c.digest[:0])
	return c, nil
}

// reader walks a file system. It computes the digest of what it finds.
type reader struct {
	tree  *fat.FS
	sum   hash.Hash
	files int
	bytes int64
}

func (r *reader) directory(ctx context.Context, name string, depth int) ([]fat.Node, error) {
	if depth > maxContentDepth {
		return nil, fmt.Errorf("%s: more than %d directories deep", name, maxContentDepth)
	}
	entries, err := r.tree.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var nodes []fat.Node
	for _, entry := range entries {
		if r.files++; r.files > maxContentFiles {
			return nil, fmt.Errorf("more than %d files", maxContentFiles)
		}
		file, err := entry.Info()
		if err != nil {
			return nil, err
		}
		at := path.Join(name, file.Name())
		node := fat.Node{Name: file.Name(), IsDir: file.IsDir(), Size: file.Size()}
		r.header(at, file)
		if file.IsDir() {
			if node.Nodes, err = r.directory(ctx, at, depth+1); err != nil {
				return nil, err
			}
		} else {
			node.Content = treeFile{r.tree, at}
			if err := node.Content.Copy(ctx, r.sum); err != nil {
				return nil, err
			}
			r.bytes += file.Size()
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// treeFile is the content of a file.
type treeFile struct {
	tree *fat.FS
	name string
}

// Copy implements [fat.Content].
func (f treeFile) Copy(ctx context.Context, w io.Writer) error { return f.tree.Copy(ctx, w, f.name) }

// header adds name, kind and size of a file to the digest.
func (r *reader) header(name string, file fs.FileInfo) {
	kind := byte(0)
	if file.IsDir() {
		kind = 1
	}
	b := binary.LittleEndian.AppendUint64([]byte{kind}, uint64(len(name)))
	b = append(b, name...)
	_, _ = r.sum.Write(binary.LittleEndian.AppendUint64(b, uint64(file.Size()))) // never fails
}
