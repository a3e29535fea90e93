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
	"sort"
	"strings"
	"unicode/utf16"
)

// FS is an open file system. It is not safe for concurrent use.
type FS struct {
	r        io.ReaderAt
	bits     int   // 12, 16 or 32
	cluster  int64 // bytes
	table    int64 // offset of the first FAT
	data     int64 // offset of cluster 2
	clusters uint32
	root     File
	fixed    []byte // the root directory of FAT12 and FAT16
	listed   int64  // bytes of the directories listed so far
	sector   int64  // bytes
	serial   string // volume serial number, "1234-ABCD"
	label    string // of the boot sector
}

// File is a file or directory. The zero value is neither. [FS.Root] is the root directory.
type File struct {
	Name  string
	IsDir bool
	Size  int64  // bytes; 0 for directories
	first uint32 // cluster
}

const (
	maxDir    = 2 << 20  // bytes of a directory: 65536 entries
	maxListed = 64 << 20 // bytes of all directories that are listed

	maxFAT16Clusters = 65524 // clusters; higher numbers have special meanings
)

// ErrNoFAT is returned if there is no FAT file system.
var ErrNoFAT = errors.New("no FAT file system")

// Open reads the boot sector. The error wraps ErrNoFAT if there is no FAT file system.
func Open(r io.ReaderAt) (*FS, error) {
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
	f := &FS{r: r, sector: sector, cluster: sector * perCluster, table: reserved * sector, data: dataSector * sector}
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
	f.root = File{Name: "/", IsDir: true}
	id := p.Identity
	if f.bits == 32 {
		id = p32.Identity
	}
	f.label = labelText(id.Label)
	f.serial = fmt.Sprintf("%04X-%04X", id.Serial>>16, id.Serial&0xffff)
	if f.bits == 32 {
		f.root.first = p32.Parameters32.RootCluster
		return f, nil
	}
	f.fixed = make([]byte, rootEntries*32)
	if _, err := r.ReadAt(f.fixed, (dataSector-rootSectors)*sector); err != nil {
		return nil, fmt.Errorf("FAT root directory: %w", err)
	}
	return f, nil
}

// Root returns the root directory.
func (f *FS) Root() File { return f.root }

// SectorSize returns the size of a sector in bytes. Linux mounts the file system only on devices whose logical sectors
// are not larger.
func (f *FS) SectorSize() int64 { return f.sector }

// Serial returns the volume serial number as printed by blkid, "1234-ABCD".
func (f *FS) Serial() string { return f.serial }

// Label returns the volume label: that of the root directory, otherwise that of the boot sector, "" if there is none.
func (f *FS) Label() (string, error) {
	raw, err := f.Read(f.root, maxDir)
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
	return f.label, nil
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
func (f *FS) next(cluster uint32) (next uint32, ok bool, err error) {
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

func (f *FS) valid(cluster uint32) bool { return cluster >= 2 && cluster-2 < f.clusters }

// Read returns the first limit bytes of a file, or the whole file if it is shorter. A directory that is larger than
// limit is an error, and so is a chain of clusters that has a cycle or ends too early.
func (f *FS) Read(file File, limit int64) ([]byte, error) {
	if file.IsDir && file.first == 0 {
		return f.fixed, nil
	}
	var content []byte
	err := f.each(file, limit, func(cluster []byte) error {
		content = append(content, cluster...)
		return nil
	})
	return content, err
}

// Copy writes the content of a file, whose chain of clusters must not have a cycle or end too early. It reads one
// cluster at a time.
func (f *FS) Copy(ctx context.Context, w io.Writer, file File) error {
	if file.IsDir {
		return fmt.Errorf("FAT file %q is a directory", file.Name)
	}
	return f.each(file, file.Size, func(cluster []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := w.Write(cluster)
		return err
	})
}

// each calls do for each cluster of a file or directory, up to limit bytes. The errors are those of [FS.Read].
func (f *FS) each(file File, limit int64, do func(cluster []byte) error) error {
	if !file.IsDir {
		limit = min(limit, file.Size)
	}
	length := int64(0)
	buffer := make([]byte, min(f.cluster, limit))
	cluster, ok := file.first, f.valid(file.first)
	for visited := uint32(0); ok && length < limit; visited++ {
		if visited == f.clusters {
			return fmt.Errorf("FAT chain of %q runs in a circle", file.Name)
		}
		part := buffer[:min(f.cluster, limit-length)]
		if _, err := f.r.ReadAt(part, f.data+int64(cluster-2)*f.cluster); err != nil {
			return fmt.Errorf("FAT cluster %d: %w", cluster, err)
		}
		if err := do(part); err != nil {
			return err
		}
		length += int64(len(part))
		var err error
		if cluster, ok, err = f.next(cluster); err != nil {
			return err
		}
	}
	switch {
	case file.IsDir && ok:
		return fmt.Errorf("FAT directory %q has more than %d bytes", file.Name, limit)
	case !file.IsDir && length < limit:
		return fmt.Errorf("FAT file %q has %d bytes, its chain holds %d", file.Name, file.Size, length)
	}
	return nil
}

// List returns a directory's entries, sorted by name.
func (f *FS) List(directory File) ([]File, error) {
	raw, err := f.Read(directory, maxDir)
	if err != nil {
		return nil, err
	}
	if f.listed += int64(len(raw)); f.listed > maxListed {
		return nil, fmt.Errorf("the directories have more than %d bytes", maxListed)
	}
	list := parseDir(raw, f.bits == 32)
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, nil
}

const (
	attrVolume, attrDir = 0x08, 0x10
	attrLong            = 0x0f
	attrMask            = 0x3f // the others are reserved
	deleted             = 0xe5 // first byte of an entry
)

func parseDir(raw []byte, wide bool) []File {
	var list []File
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
			file := File{
				Name: long.text(e.Name), IsDir: e.Attributes&attrDir != 0, first: uint32(e.ClusterLow),
				Size: int64(e.Size),
			}
			if file.IsDir {
				file.Size = 0
			}
			if wide {
				file.first |= uint32(e.ClusterHigh) << 16
			}
			if file.Name == "" {
				file.Name = e.name()
			}
			// A directory without a cluster would be the root again, and a slash would lead outside the directory.
			if !strings.ContainsAny(file.Name, "/\\\x00") && (!file.IsDir || file.first != 0) {
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
