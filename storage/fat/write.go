package fat

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// ErrFull is returned if the files do not fit into the file system.
var ErrFull = errors.New("FAT file system is too small")

// Node is a file or directory to write.
type Node struct {
	Name    string
	IsDir   bool
	Nodes   []Node  // of a directory
	Size    int64   // of a file, in bytes
	Content Content // of a file
}

// Content is the content of a file.
type Content interface {
	// Copy writes it: as many bytes as the node's Size. It may be called more than once.
	Copy(ctx context.Context, w io.Writer) error
}

// Bytes is content in memory.
type Bytes []byte

// Copy implements [Content].
func (b Bytes) Copy(_ context.Context, w io.Writer) error {
	_, err := io.Copy(w, bytes.NewReader(b))
	return err
}

// NodeError is the error of a file or directory that could not be written. In a directory it wraps another NodeError.
type NodeError struct {
	Name string
	Err  error
}

func (e *NodeError) Error() string { return fmt.Sprintf("file %q: %v", e.Name, e.Err) }
func (e *NodeError) Unwrap() error { return e.Err }

// Volume describes a new file system: FAT12 or FAT16, or FAT32 from 512 MiB. Sectors after the 2^32nd and bytes beyond
// 8 TiB are not used. With a given cluster size, bytes after the 65508th cluster are not used either.
type Volume struct {
	Size    int64     // bytes
	Sector  int64     // bytes, at least the device's logical sector
	Cluster int64     // bytes below 512 MiB, a power of two from Sector to 32 KiB; 0 chooses one by the size
	Label   string    // at most 11 ASCII characters; all systems support capitals; "" for none
	Serial  uint32    // volume serial number
	Date    time.Time // of all files; zero is 1 January 1980, the first day of FAT
	// Short omits the long name if the short one is complete: up to eight characters and an extension of three, in
	// upper case, as other tools write such names.
	Short bool
}

const (
	minCluster  = 2048     // bytes
	maxCluster  = 32 << 10 // bytes; not all systems support more
	maxFAT12    = 4085 - 17
	maxFAT16    = 65525 - 17 // drivers differ in the limit, so the last 16 numbers of clusters are not used
	rootEntries = 512
	copies      = 2
	endOfChain  = math.MaxUint32 // truncated to the bits of an entry of the FAT
	entrySize   = 32
	blankHead   = 1 << 20 // bytes at the start that are zeroed, because they may contain old signatures
)

// Write makes the file system with the given files. It writes the boot sector last, so that an incomplete file system
// has none. It calls flush, which may be nil, before and after that. The same input gives the same bytes. If w has a
// method Zero(ctx, offset, length) error, Write calls it for ranges that must read as zeros.
func (v Volume) Write(ctx context.Context, w io.WriterAt, nodes []Node, flush func() error) error {
	f, err := v.layout()
	if err != nil {
		return err
	}
	if flush == nil {
		flush = func() error { return nil }
	}
	f.w, f.day, f.short = w, day(v.Date), v.Short
	if err := f.zero(ctx, 0, max(f.data, min(v.Size, blankHead))); err != nil {
		return fmt.Errorf("clear the start: %w", err)
	}
	if err := f.topmost(ctx, v.Label, nodes); err != nil {
		return err
	}
	for n := range int64(copies) {
		if _, err := w.WriteAt(f.table, f.reserved+n*f.length); err != nil {
			return err
		}
	}
	if f.bits == 32 {
		if err := f.spare(v); err != nil {
			return err
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if _, err := w.WriteAt(f.boot(v), 0); err != nil {
		return err
	}
	return flush()
}

// writer is a file system that is being made. All offsets are bytes.
type writer struct {
	w        io.WriterAt
	bits     uint32
	sector   int64
	cluster  int64
	reserved int64
	root     int64
	data     int64
	clusters uint32
	next     uint32 // first free cluster; files are written one after the other
	day      uint16 // date of all files
	short    bool   // names without a long entry where possible
	length   int64  // of a FAT
	table    []byte // the used part of the FAT
}

// topmost writes the root directory and its content.
func (f *writer) topmost(ctx context.Context, label string, nodes []Node) error {
	var first []byte
	if label != "" {
		first = f.entry(labelField(label), attrVolume, 0, 0)
	}
	if f.bits == 32 { // it is a directory like others, in cluster 2
		size := int64(len(first)) + f.dirSize(nodes)
		if size > maxDir {
			return fmt.Errorf("%w: the topmost directory has %d files", ErrFull, len(nodes))
		}
		if _, err := f.allocate(size); err != nil {
			return err
		}
		root, err := f.directory(ctx, nodes, 0, 0)
		if err != nil {
			return err
		}
		whole := make([]byte, size)
		copy(whole[copy(whole, first):], root)
		return f.put(rootCluster, whole)
	}
	root, err := f.directory(ctx, nodes, 0, 0)
	if err != nil {
		return err
	}
	root = append(first, root...)
	if len(root) > rootEntries*entrySize {
		return fmt.Errorf("%w: the topmost directory needs %d entries, it has %d",
			ErrFull, len(root)/entrySize, rootEntries)
	}
	_, err = f.w.WriteAt(root, f.root)
	return err
}

// layout chooses the size of a cluster, and with it the kind of FAT.
func (v Volume) layout() (*writer, error) {
	if v.Sector < 512 || v.Sector > 4096 || v.Sector&(v.Sector-1) != 0 {
		return nil, fmt.Errorf("FAT with sectors of %d bytes, want 512 to 4096", v.Sector)
	}
	if c := v.Cluster; c != 0 && (c < v.Sector || c > maxCluster || c&(c-1) != 0) {
		return nil, fmt.Errorf("FAT with clusters of %d bytes, want a power of two from %d to %d",
			c, v.Sector, maxCluster)
	}
	if v.Size >= minFAT32 {
		return v.layout32(), nil
	}
	f := &writer{sector: v.Sector, reserved: v.Sector, next: 2, cluster: cmp.Or(v.Cluster, max(minCluster, v.Sector))}
	for ; ; f.cluster *= 2 {
		// Two bytes for every cluster there could be: enough for FAT12 too.
		length := (min(v.Size/f.cluster, maxFAT16) + 2) * 2
		length = (length + v.Sector - 1) / v.Sector * v.Sector
		f.root = f.reserved + copies*length
		f.data = f.root + rootEntries*entrySize
		clusters := (v.Size - f.data) / f.cluster
		if clusters < 1 {
			return nil, fmt.Errorf("%w: it has %d bytes", ErrFull, v.Size)
		}
		if clusters > maxFAT16 && f.cluster < maxCluster && v.Cluster == 0 {
			continue
		}
		f.bits, f.clusters = 16, uint32(min(clusters, maxFAT16))
		if clusters <= 4085+16 {
			f.bits, f.clusters = 12, uint32(min(clusters, maxFAT12))
		}
		f.length, f.table = length, make([]byte, length)
		f.set(0, 0xfff8)
		f.set(1, endOfChain)
		return f, nil
	}
}

// set writes an entry of the FAT.
func (f *writer) set(cluster, value uint32) {
	switch f.bits {
	case 32:
		f.table = append(f.table, make([]byte, max(0, int(cluster+1)*4-len(f.table)))...)
		binary.LittleEndian.PutUint32(f.table[cluster*4:], value&0x0fffffff)
		return
	case 16:
		binary.LittleEndian.PutUint16(f.table[cluster*2:], uint16(value))
		return
	}
	at, shift := f.table[cluster+cluster/2:], cluster%2*4
	old := binary.LittleEndian.Uint16(at) &^ (0xfff << shift)
	binary.LittleEndian.PutUint16(at, old|uint16(value&0xfff)<<shift)
}

// allocate allocates clusters for a number of bytes and returns the first; 0 for none.
func (f *writer) allocate(size int64) (uint32, error) {
	if size == 0 {
		return 0, nil
	}
	need, left := (size+f.cluster-1)/f.cluster, int64(f.clusters+2-f.next)
	if size < 0 || need > left {
		return 0, fmt.Errorf("%w: %d bytes are left, %d needed", ErrFull, left*f.cluster, size)
	}
	first := f.next
	for f.next += uint32(need); need > 1; need-- {
		f.set(f.next-uint32(need), f.next-uint32(need)+1)
	}
	f.set(f.next-1, endOfChain)
	return first, nil
}

// put writes content to clusters from first. The last one is padded with zeros.
func (f *writer) put(first uint32, content []byte) error {
	if len(content) == 0 {
		return nil
	}
	at := f.data + int64(first-2)*f.cluster
	if _, err := f.w.WriteAt(content, at); err != nil {
		return err
	}
	if rest := int64(len(content)) % f.cluster; rest != 0 {
		_, err := f.w.WriteAt(make([]byte, f.cluster-rest), at+int64(len(content)))
		return err
	}
	return nil
}

// copy writes the content of a file to clusters from first, as put does.
func (f *writer) copy(ctx context.Context, first uint32, node Node) error {
	at := f.data + int64(first-2)*f.cluster
	to := &limited{w: io.NewOffsetWriter(f.w, at), left: node.Size}
	if err := node.Content.Copy(ctx, to); err != nil {
		return err
	}
	if to.left != 0 {
		return fmt.Errorf("got %d bytes, want %d", node.Size-to.left, node.Size)
	}
	if rest := node.Size % f.cluster; rest != 0 {
		_, err := f.w.WriteAt(make([]byte, f.cluster-rest), at+node.Size)
		return err
	}
	return nil
}

// limited is a writer that rejects more than a number of bytes.
type limited struct {
	w    io.Writer
	left int64
}

func (l *limited) Write(p []byte) (int, error) {
	if int64(len(p)) > l.left {
		return 0, fmt.Errorf("got %d bytes more than the size", int64(len(p))-l.left)
	}
	n, err := l.w.Write(p)
	l.left -= int64(n)
	return n, err
}

// directory writes the content of a directory and returns the directory's entries; above is 0 for the root directory.
func (f *writer) directory(ctx context.Context, nodes []Node, own, above uint32) ([]byte, error) {
	var raw []byte
	if own != 0 {
		raw = append(f.entry(labelField("."), attrDir, own, 0), f.entry(labelField(".."), attrDir, above, 0)...)
	}
	seen := map[string]bool{}
	for i, node := range nodes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		key := strings.ToUpper(node.Name)
		if seen[key] {
			return nil, &NodeError{node.Name, errors.New("another file or directory has this name; FAT ignores case")}
		}
		seen[key] = true
		entries, err := f.node(ctx, node, i, own)
		if err != nil {
			return nil, &NodeError{node.Name, err}
		}
		raw = append(raw, entries...)
	}
	return raw, nil
}

// node writes a file or directory and returns its entries. The number makes its short name unique.
func (f *writer) node(ctx context.Context, node Node, number int, directory uint32) ([]byte, error) {
	short, isWhole := f.shortName(node.Name)
	var entries []byte
	if !isWhole {
		short = shortAlias(node.Name, number)
		var err error
		if entries, err = longEntries(node.Name, short); err != nil {
			return nil, err
		}
	}
	if !node.IsDir {
		if node.Size > math.MaxUint32 {
			return nil, fmt.Errorf("%w: it has %d bytes, FAT allows %d", ErrFull, node.Size, int64(math.MaxUint32))
		}
		first, err := f.allocate(node.Size)
		if err != nil {
			return nil, err
		}
		entries = append(entries, f.entry(short, attrArchive, first, uint32(node.Size))...)
		return entries, f.copy(ctx, first, node)
	}
	size := f.dirSize(node.Nodes)
	if size > maxDir {
		return nil, fmt.Errorf("%w: the directory has %d files", ErrFull, len(node.Nodes))
	}
	first, err := f.allocate(size)
	if err != nil {
		return nil, err
	}
	content, err := f.directory(ctx, node.Nodes, first, directory)
	if err != nil {
		return nil, err
	}
	return append(entries, f.entry(short, attrDir, first, 0)...), f.put(first, content)
}
