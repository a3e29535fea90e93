package squashfs

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// File is the content of a regular file.
type File interface {
	io.ReaderAt
	io.Closer
}

// Content opens the content of a regular file.
type Content interface {
	Open() (File, error)
}

// Bytes is content in memory.
type Bytes []byte

// Open implements [Content].
func (b Bytes) Open() (File, error) { return memoryFile{bytes.NewReader(b)}, nil }

// Path is the path of a file of this machine with the content.
type Path string

// Open implements [Content].
func (p Path) Open() (File, error) { return os.Open(string(p)) }

type memoryFile struct{ *bytes.Reader }

// Close implements [io.Closer].
func (memoryFile) Close() error { return nil }

// Entry is a file, a directory or a symbolic link.
type Entry struct {
	Path    string // relative, cleaned, with slashes; "." is the root
	Mode    fs.FileMode
	ModTime time.Time
	Size    int64   // of a regular file, in bytes
	Content Content // of a regular file
	Target  string  // of a symbolic link
	Link    string  // path of the regular file that this entry is a further name of, "" for none
}

const (
	blockSize    = 128 << 10
	blockLog     = 17
	metadataSize = 8 << 10
	compressor   = 6 // Zstandard
	magic        = 0x73717368
	noXattrs     = 0x200 // flag: no extended attributes
	uncompressed = 1 << 24
	none         = math.MaxUint32
	padding      = 4 << 10 // size of the image is a multiple, so that a loop device contains all of it
	maxName      = 256
	superblock   = 96
)

// The types of inodes.
const (
	typeDirectory     = 1
	typeFile          = 2
	typeLink          = 3
	typeLongDirectory = 8
	typeLongFile      = 9
)

// inode is a file, a directory or a symbolic link with all its names.
type inode struct {
	Entry
	number    uint32
	nameCount uint32
	parent    *inode // of a directory
	children  []child

	start    uint64   // of the first block in the image
	blocks   []uint32 // sizes of the stored blocks
	fragment uint32   // number of the fragment block with the whole content, none if there is none
	offset   uint32   // in the fragment block
	written  bool
	at       reference
}

// child is a name in a directory.
type child struct {
	name string
	*inode
}

// reference is the position of an inode or of a listing in its table.
type reference struct {
	block  uint32 // offset of the stored metadata block in the table
	offset uint16 // in the block
}

// Image returns the file system with the entries. Directories that are missing are created.
func Image(entries []Entry) ([]byte, error) {
	t, err := newTree(entries)
	if err != nil {
		return nil, fmt.Errorf("squashfs: %w", err)
	}
	image, err := t.image()
	if err != nil {
		return nil, fmt.Errorf("squashfs: %w", err)
	}
	return image, nil
}

// tree is the state of Image.
type tree struct {
	root   *inode
	byPath map[string]*inode
	inodes []*inode
	packer *packer
	image0 bytes.Buffer // superblock and data
	table  metadata     // of inodes
	lists  metadata     // of directories
}

// newTree returns the tree of the entries, with numbered inodes.
func newTree(entries []Entry) (*tree, error) {
	root := &inode{Entry: Entry{Path: ".", Mode: fs.ModeDir | 0o755}, nameCount: 1}
	t := &tree{root: root, byPath: map[string]*inode{".": root}}
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
	for _, e := range entries {
		if e.Link != "" {
			continue
		}
		if err := t.add(e); err != nil {
			return nil, err
		}
	}
	for _, e := range entries {
		if e.Link == "" {
			continue
		}
		if err := t.link(e); err != nil {
			return nil, err
		}
	}
	t.number(root)
	return t, nil
}

// add adds an entry other than a hard link.
func (t *tree) add(e Entry) error {
	if e.Path != path.Clean(e.Path) || path.IsAbs(e.Path) || e.Path == ".." || strings.HasPrefix(e.Path, "../") {
		return fmt.Errorf("path %q: want a clean relative path", e.Path)
	}
	known := t.byPath[e.Path]
	switch {
	case known != nil && known.Mode.IsDir() && e.Mode.IsDir():
		known.Entry = e
		return nil
	case known != nil:
		return fmt.Errorf("%s: duplicate path", e.Path)
	case !e.Mode.IsDir() && !e.Mode.IsRegular() && e.Mode.Type() != fs.ModeSymlink:
		return fmt.Errorf("%s: type %v: want a file, a directory or a link", e.Path, e.Mode.Type())
	case e.Mode.IsRegular() && e.Size < 0, e.Mode.Type() == fs.ModeSymlink && e.Target == "":
		return fmt.Errorf("%s: size %d, target %q", e.Path, e.Size, e.Target)
	}
	return t.insert(e.Path, &inode{Entry: e, fragment: none})
}

// link adds a hard link to a file.
func (t *tree) link(e Entry) error {
	target := t.byPath[e.Link]
	if target == nil || !target.Mode.IsRegular() {
		return fmt.Errorf("%s: link to %s, which is no file", e.Path, e.Link)
	}
	if t.byPath[e.Path] != nil {
		return fmt.Errorf("%s: duplicate path", e.Path)
	}
	return t.insert(e.Path, target)
}

// insert puts an inode into its directory under the last part of its path.
func (t *tree) insert(name string, n *inode) error {
	dir := path.Dir(name)
	if t.byPath[dir] == nil {
		if err := t.add(Entry{Path: dir, Mode: fs.ModeDir | 0o755}); err != nil {
			return err
		}
	}
	parent, base := t.byPath[dir], path.Base(name)
	if !parent.Mode.IsDir() {
		return fmt.Errorf("%s: %s is no directory", name, dir)
	}
	if len(base) > maxName {
		return fmt.Errorf("%s: name longer than %d bytes", name, maxName)
	}
	n.nameCount++
	if n.Mode.IsDir() {
		n.parent = parent
	}
	parent.children = append(parent.children, child{base, n})
	t.byPath[name] = n
	return nil
}

// number numbers the inodes, the inodes of one directory in succession, and sorts the directories.
func (t *tree) number(root *inode) {
	give := func(n *inode) {
		if n.number == 0 {
			t.inodes = append(t.inodes, n)
			n.number = uint32(len(t.inodes))
		}
	}
	give(root)
	for queue := []*inode{root}; len(queue) > 0; queue = queue[1:] {
		dir := queue[0]
		slices.SortFunc(dir.children, func(a, b child) int { return cmp.Compare(a.name, b.name) })
		for _, c := range dir.children {
			give(c.inode)
			if c.Mode.IsDir() {
				queue = append(queue, c.inode)
			}
		}
	}
}

// image writes everything.
func (t *tree) image() ([]byte, error) {
	p, err := newPacker()
	if err != nil {
		return nil, err
	}
	defer p.close()
	t.packer, t.table.packer, t.lists.packer = p, p, p
	t.image0.Write(make([]byte, superblock))
	fragments, err := t.writeData()
	if err != nil {
		return nil, err
	}
	if err := t.writeDirectory(t.root); err != nil {
		return nil, err
	}
	out := &t.image0
	inodes := out.Len()
	out.Write(t.table.finish())
	directories := out.Len()
	out.Write(t.lists.finish())
	fragmentTable := uint64(math.MaxUint64)
	if len(fragments) > 0 {
		fragmentTable = t.writeTable(fragments)
	}
	ids := t.writeTable(make([]byte, 4)) // one owner and group, root
	used := out.Len()
	out.Write(make([]byte, (padding-used%padding)%padding))
	image := out.Bytes()
	header := fields{}
	header.u32(magic, uint32(len(t.inodes)), 0, blockSize, uint32(len(fragments)/16))
	header.u16(compressor, blockLog, noXattrs, 1, 4, 0) // one owner; version 4.0
	header.u64(uint64(t.root.at.block)<<16|uint64(t.root.at.offset), uint64(used), ids, math.MaxUint64,
		uint64(inodes), uint64(directories), fragmentTable, math.MaxUint64)
	copy(image, header)
	return image, nil
}

// writeTable writes a table that is found by a list of its metadata blocks, and returns the position of the list.
func (t *tree) writeTable(data []byte) uint64 {
	var index fields
	for len(data) > 0 {
		n := min(len(data), metadataSize)
		index.u64(uint64(t.image0.Len()))
		t.image0.Write(t.packer.metadata(data[:n]))
		data = data[n:]
	}
	at := t.image0.Len()
	t.image0.Write(index)
	return uint64(at)
}

// writeDirectory writes the inodes below a directory, its listing, and then its own inode.
func (t *tree) writeDirectory(dir *inode) error {
	for _, c := range dir.children {
		switch {
		case c.Mode.IsDir():
			if err := t.writeDirectory(c.inode); err != nil {
				return err
			}
		case !c.written:
			if err := t.writeInode(c.inode); err != nil {
				return err
			}
		}
	}
	listing, size := t.lists.position(), 0
	for rest := dir.children; len(rest) > 0; {
		n := sharedHeaderCount(rest)
		var run fields
		run.u32(uint32(n-1), rest[0].at.block, rest[0].number)
		for _, c := range rest[:n] {
			run.u16(c.at.offset, uint16(c.number-rest[0].number), c.kind(), uint16(len(c.name)-1))
			run = append(run, c.name...)
		}
		size += len(run)
		t.lists.write(run)
		rest = rest[n:]
	}
	return t.writeDirectoryInode(dir, listing, size)
}

// sharedHeaderCount returns the number of the first names that can share a header: their inodes are in the same
// metadata block, and their numbers are close.
func sharedHeaderCount(names []child) int {
	first := names[0]
	n := 1
	for n < len(names) && n < 256 && names[n].at.block == first.at.block {
		if d := int64(names[n].number) - int64(first.number); d < math.MinInt16 || d > math.MaxInt16 {
			break
		}
		n++
	}
	return n
}

// kind returns the type of the inode as listings contain it.
func (n *inode) kind() uint16 {
	switch {
	case n.Mode.IsDir():
		return typeDirectory
	case n.Mode.IsRegular():
		return typeFile
	}
	return typeLink
}

// header returns the fields that all inodes begin with.
func (n *inode) header(kind uint16) fields {
	mode := n.Mode.Perm()
	for flag, bit := range map[fs.FileMode]fs.FileMode{
		fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000,
	} {
		if n.Mode&flag != 0 {
			mode |= bit
		}
	}
	var f fields
	f.u16(kind, uint16(mode), 0, 0)
	f.u32(uint32(max(0, min(n.ModTime.Unix(), math.MaxUint32))), n.number)
	return f
}

func (t *tree) writeDirectoryInode(dir *inode, listing reference, size int) error {
	links := uint32(2)
	for _, c := range dir.children {
		if c.Mode.IsDir() {
			links++
		}
	}
	parent := uint32(len(t.inodes)) + 1 // of the root
	if dir.parent != nil {
		parent = dir.parent.number
	}
	size += 3 // for "." and ".."
	var f fields
	if size <= math.MaxUint16 {
		f = dir.header(typeDirectory)
		f.u32(listing.block, links)
		f.u16(uint16(size), listing.offset)
		f.u32(parent)
	} else {
		f = dir.header(typeLongDirectory)
		f.u32(links, uint32(size), listing.block, parent)
		f.u16(0, listing.offset)
		f.u32(none)
	}
	dir.at = t.table.position()
	t.table.write(f)
	return nil
}

// writeInode writes the inode of a file or of a link.
func (t *tree) writeInode(n *inode) error {
	var f fields
	switch {
	case !n.Mode.IsRegular():
		f = n.header(typeLink)
		f.u32(n.nameCount, uint32(len(n.Target)))
		f = append(f, n.Target...)
	case n.nameCount == 1 && n.start <= math.MaxUint32 && n.Size <= math.MaxUint32:
		f = n.header(typeFile)
		f.u32(uint32(n.start), n.fragment, n.offset, uint32(n.Size))
		f.u32(n.blocks...)
	default:
		f = n.header(typeLongFile)
		f.u64(n.start, uint64(n.Size), 0)
		f.u32(n.nameCount, n.fragment, n.offset, none)
		f.u32(n.blocks...)
	}
	n.written, n.at = true, t.table.position()
	if t.table.stored.Len() > math.MaxUint32 {
		return errors.New("more than 4 GiB of inodes")
	}
	t.table.write(f)
	return nil
}

// fields is a sequence of numbers in little-endian order.
type fields []byte

func (f *fields) u16(values ...uint16) {
	for _, v := range values {
		*f = binary.LittleEndian.AppendUint16(*f, v)
	}
}

func (f *fields) u32(values ...uint32) {
	for _, v := range values {
		*f = binary.LittleEndian.AppendUint32(*f, v)
	}
}

func (f *fields) u64(values ...uint64) {
	for _, v := range values {
		*f = binary.LittleEndian.AppendUint64(*f, v)
	}
}
