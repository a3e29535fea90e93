// Package fat reads FAT12, FAT16 and FAT32 file systems (Microsoft's specification 1.03, with long names) without
// mounting them, and makes new ones. It does not change existing ones. All loops are bounded for any content of the
// disk.
package fat

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf16"

	"ironroot/internal/rofs"
)

// FS is an open file system. It implements [fs.StatFS], [fs.ReadDirFS] and [fs.ReadFileFS]. A name that a directory
// does not contain exactly is compared in upper case, as [Volume.Write] does; of several files that are equal then, the
// first is opened. Times are zero. It is safe for concurrent use if its reader is. After it has listed directories of
// 64 MiB, it fails: damaged directories can contain each other.
type FS struct {
	reader *reader
	files  *rofs.FS
}

// reader reads the directories and files of a file system.
type reader struct {
	r        io.ReaderAt
	bits     int   // 12, 16 or 32
	cluster  int64 // bytes
	table    int64 // offset of the first FAT
	data     int64 // offset of cluster 2
	clusters uint32
	root     rofs.File // as for all files, the start is a cluster
	fixed    []byte    // the root directory of FAT12 and FAT16
	sector   int64     // bytes
	serial   string    // volume serial number, "1234-ABCD"
	label    string    // of the boot sector
}

const (
	maxDir = 2 << 20 // bytes of a directory: 65536 entries

	maxFAT16Clusters = 65524 // clusters; higher numbers have special meanings
)

// ErrNoFAT is returned if there is no FAT file system.
var ErrNoFAT = errors.New("no FAT file system")

// Open reads the boot sector. The error wraps ErrNoFAT if there is no FAT file system.
func Open(r io.ReaderAt) (*FS, error) {
	f, err := newReader(r)
	if err != nil {
		return nil, err
	}
	return &FS{f, rofs.New(f, true)}, nil
}

func newReader(r io.ReaderAt) (*reader, error) {
	b := make([]byte, sectorSize)
	if _, err := r.ReadAt(b, 0); errors.Is(err, io.EOF) {
		return nil, ErrNoFAT
	} else if err != nil {
		return nil, fmt.Errorf("FAT boot sector: %w", err)
	}
	p, p32 := decode[bootSector16](b), decode[bootSector32](b)
	sector, perCluster := int64(p.Parameters.SectorSize), int64(p.Parameters.SectorsPerCluster)
	reserved := int64(p.Parameters.ReservedSectors)
	copies := int64(p.Parameters.FATs)
	rootEntries := int64(p.Parameters.RootEntries)
	total, length := int64(p.Parameters.Sectors16), int64(p.Parameters.FATSectors16)
	if total == 0 {
		total = int64(p.Parameters.Sectors32)
	}
	if length == 0 {
		length = int64(p32.Parameters32.FATSectors32)
	}
	if p.Signature != bootSignature || sector < 512 || sector > 4096 || sector&(sector-1) != 0 || perCluster == 0 ||
		perCluster&(perCluster-1) != 0 || reserved == 0 || copies == 0 || length == 0 {
		return nil, ErrNoFAT
	}
	rootSectors := (rootEntries*32 + sector - 1) / sector
	dataSector := reserved + copies*length + rootSectors
	if total <= dataSector {
		return nil, fmt.Errorf("FAT file system of %d sectors, its data start at %d", total, dataSector)
	}
	f := &reader{
		r: r, sector: sector, cluster: sector * perCluster, table: reserved * sector, data: dataSector * sector,
	}
	f.clusters = uint32((total - dataSector) / perCluster)
	switch { // as in Linux: tools make FAT32 also with fewer clusters than the specification allows
	case p.Parameters.FATSectors16 == 0:
		f.bits = 32
	case f.clusters < 4085:
		f.bits = 12
	default:
		f.bits = 16
	}
	// The FAT cannot describe more clusters than it has entries for, without the first two.
	f.clusters = uint32(min(int64(f.clusters), length*sector*8/int64(f.bits)-2))
	if f.bits == 16 && f.clusters > maxFAT16Clusters {
		return nil, fmt.Errorf("FAT16 file system of %d clusters, want at most %d", f.clusters, maxFAT16Clusters)
	}
	f.root = rofs.File{Name: "/", Mode: rofs.Directory}
	id := p.Identity
	if f.bits == 32 {
		id = p32.Identity
	}
	f.label = labelText(id.Label)
	f.serial = fmt.Sprintf("%04X-%04X", id.Serial>>16, id.Serial&0xffff)
	if f.bits == 32 {
		f.root.Start = int64(p32.Parameters32.RootCluster)
		return f, nil
	}
	f.fixed = make([]byte, rootEntries*32)
	if _, err := r.ReadAt(f.fixed, (dataSector-rootSectors)*sector); err != nil {
		return nil, fmt.Errorf("FAT root directory: %w", err)
	}
	return f, nil
}

// Open opens a file or directory.
func (f *FS) Open(name string) (fs.File, error) { return f.files.Open(name) }

// Stat describes a file or directory.
func (f *FS) Stat(name string) (fs.FileInfo, error) { return f.files.Stat(name) }

// ReadDir returns a directory's entries, sorted by name.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) { return f.files.ReadDir(name) }

// ReadFile returns the content of a file, whose chain of clusters must not have a cycle or end too early.
func (f *FS) ReadFile(name string) ([]byte, error) { return f.files.ReadFile(name) }

// Copy writes the content of a file, in pieces of at most one cluster, until ctx is done.
func (f *FS) Copy(ctx context.Context, w io.Writer, name string) error {
	file, err := f.Open(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, &untilDone{ctx, file})
	return err
}

// untilDone reads until ctx is done.
type untilDone struct {
	ctx  context.Context
	file fs.File
}

func (r *untilDone) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.file.Read(p)
}

// SectorSize returns the size of a sector in bytes. Linux mounts the file system only on devices whose logical sectors
// are not larger.
func (f *FS) SectorSize() int64 { return f.reader.sector }

// Serial returns the volume serial number as printed by blkid, "1234-ABCD".
func (f *FS) Serial() string { return f.reader.serial }

// Label returns the volume label in the root directory, otherwise the one in the boot sector, "" if there is none.
func (f *FS) Label() (string, error) {
	raw, err := f.reader.directory(f.reader.root)
	if err != nil {
		return "", err
	}
	for ; len(raw) >= entrySize && raw[0] != 0; raw = raw[entrySize:] {
		e := decode[shortEntry](raw)
		if e.Name[0] != deleted && e.Attributes&attrMask != attrLong &&
			e.Attributes&(attrVolume|attrDir) == attrVolume {
			return labelText(e.Name), nil
		}
	}
	return f.reader.label, nil
}

// labelText trims a label. Formatting tools write "NO NAME" for none.
func labelText(raw [11]byte) string {
	text := strings.TrimRight(strings.ToValidUTF8(string(raw[:]), "_"), " \x00")
	if text == "NO NAME" {
		return ""
	}
	return text
}

// next follows the chain of clusters; ok is false at its end.
func (f *reader) next(cluster uint32) (next uint32, ok bool, err error) {
	entry := make([]byte, 4)
	width, offset := 4, int64(cluster)*4
	switch f.bits {
	case 12:
		width, offset = 2, int64(cluster)+int64(cluster)/2
	case 16:
		width, offset = 2, int64(cluster)*2
	}
	if _, err := f.r.ReadAt(entry[:width], f.table+offset); err != nil {
		return 0, false, fmt.Errorf("FAT entry %d: %w", cluster, err)
	}
	next = binary.LittleEndian.Uint32(entry) & 0x0fffffff
	if f.bits == 12 {
		if cluster&1 == 1 {
			next >>= 4
		}
		next &= 0xfff
	}
	return next, f.valid(next), nil
}

func (f *reader) valid(cluster uint32) bool { return cluster >= 2 && cluster-2 < f.clusters }

// Root returns the root directory.
func (f *reader) Root() rofs.File { return f.root }

// List returns a directory's entries, sorted by name.
func (f *reader) List(directory rofs.File) ([]rofs.File, int64, error) {
	raw, err := f.directory(directory)
	if err != nil {
		return nil, 0, err
	}
	list := parseDir(raw, f.bits == 32)
	slices.SortStableFunc(list, func(a, b rofs.File) int { return strings.Compare(a.Name, b.Name) })
	return list, int64(len(raw)), nil
}

// directory returns the entries of a directory.
func (f *reader) directory(d rofs.File) ([]byte, error) {
	if d.Start == 0 {
		return f.fixed, nil
	}
	c := f.chain(d, maxDir)
	raw, err := io.ReadAll(c)
	if err == nil && c.ok {
		err = fmt.Errorf("FAT directory %q has more than %d bytes", d.Name, maxDir)
	}
	return raw, err
}

// Content returns a reader of a file.
func (f *reader) Content(file rofs.File) io.Reader { return f.chain(file, file.Size) }

func (f *reader) chain(file rofs.File, limit int64) *chain {
	first := uint32(file.Start)
	return &chain{f: f, file: file, left: limit, cluster: first, ok: f.valid(first)}
}

// chain reads the clusters of a file or directory. A chain that has a cycle, or ends before the file, is an error.
type chain struct {
	f       *reader
	file    rofs.File
	left    int64 // bytes to read, of a directory at most
	cluster uint32
	ok      bool   // there is a cluster
	at      int64  // bytes of it that were read
	visited uint32 // number of clusters before it
}

func (c *chain) Read(p []byte) (int, error) {
	switch {
	case c.left == 0 || !c.ok && c.file.Mode.IsDir():
		return 0, io.EOF
	case !c.ok:
		return 0, fmt.Errorf("FAT file %q has %d bytes, its chain holds %d",
			c.file.Name, c.file.Size, c.file.Size-c.left)
	case c.visited == c.f.clusters:
		return 0, fmt.Errorf("FAT chain of %q runs in a circle", c.file.Name)
	}
	p = p[:min(int64(len(p)), c.left, c.f.cluster-c.at)]
	if _, err := c.f.r.ReadAt(p, c.f.data+int64(c.cluster-2)*c.f.cluster+c.at); err != nil {
		return 0, fmt.Errorf("FAT cluster %d: %w", c.cluster, err)
	}
	c.at, c.left = c.at+int64(len(p)), c.left-int64(len(p))
	if c.at < c.f.cluster {
		return len(p), nil
	}
	var err error
	c.cluster, c.ok, err = c.f.next(c.cluster)
	c.at, c.visited = 0, c.visited+1
	return len(p), err
}

const (
	attrVolume, attrDir = 0x08, 0x10
	attrLong            = 0x0f
	attrMask            = 0x3f // the others are reserved
	deleted             = 0xe5 // first byte of an entry
)

func parseDir(raw []byte, wide bool) []rofs.File {
	var list []rofs.File
	var long longName
	for ; len(raw) >= entrySize && raw[0] != 0; raw = raw[entrySize:] {
		e := decode[shortEntry](raw)
		switch {
		case e.Name[0] == deleted:
			long = longName{}
		case e.Attributes&attrMask == attrLong:
			long.add(decode[longEntry](raw))
		case e.Attributes&attrVolume != 0 || e.Name[0] == '.':
			long = longName{}
		default:
			file := rofs.File{
				Name: long.text(e.Name), Mode: rofs.Regular, Start: int64(e.ClusterLow), Size: int64(e.Size),
			}
			if e.Attributes&attrDir != 0 {
				file.Mode, file.Size = rofs.Directory, 0
			}
			if wide {
				file.Start |= int64(e.ClusterHigh) << 16
			}
			if file.Name == "" {
				file.Name = e.name()
			}
			// A directory without a cluster would be the root again, and other names would lead outside the directory.
			isElement := fs.ValidPath(file.Name) && file.Name != "." && !strings.ContainsAny(file.Name, "/\\\x00")
			if isElement && (!file.Mode.IsDir() || file.Start != 0) {
				list = append(list, file)
			}
			long = longName{}
		}
	}
	return list
}

// name returns the short name.
func (e *shortEntry) name() string {
	base := strings.TrimRight(string(e.Name[:8]), " ")
	extension := strings.TrimRight(string(e.Name[8:]), " ")
	if e.Case&0x08 != 0 {
		base = strings.ToLower(base)
	}
	if e.Case&0x10 != 0 {
		extension = strings.ToLower(extension)
	}
	if extension != "" {
		base += "." + extension
	}
	return strings.ToValidUTF8(base, "_")
}

// longName collects the parts of a long name, which precede the short entry in reverse order.
type longName struct {
	units    []uint16
	next     byte // number of the part that must come next
	checksum byte
}

func (l *longName) add(e longEntry) {
	number := e.Order & partNumber
	if e.Order&lastPart != 0 {
		*l = longName{next: number, checksum: e.Checksum}
	}
	if number == 0 || number > 20 || number != l.next || e.Checksum != l.checksum {
		*l = longName{}
		return
	}
	l.next--
	l.units = append(e.units(), l.units...)
}

// text returns the long name, "" if it is incomplete or belongs to another short name.
func (l *longName) text(short [11]byte) string {
	if l.next != 0 || len(l.units) == 0 {
		return ""
	}
	if aliasSum(short) != l.checksum {
		return ""
	}
	units := l.units
	for i, unit := range units {
		if unit == 0 || unit == 0xffff {
			units = units[:i]
			break
		}
	}
	return string(utf16.Decode(units))
}
