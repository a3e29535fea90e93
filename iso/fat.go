package iso

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"path"
	"slices"
	"strings"
)

// espImage returns an EFI system partition with the two UEFI loaders at the place for removable media (UEFI 2.10,
// section 3.5.1.1).
func espImage(l loaders) ([]byte, error) {
	return fat16([]fatFile{
		{name: "EFI/BOOT/BOOTX64.EFI", content: l.shim},
		{name: "EFI/BOOT/GRUBX64.EFI", content: l.grub},
	})
}

// fatFile is a file of a FAT file system. All parts of its name are upper case and 8.3.
type fatFile struct {
	name    string // with slashes
	content []byte
}

// Layout of the file systems made here: one sector is one cluster.
const (
	sector       = 512
	rootEntries  = 512
	rootSectors  = rootEntries * 32 / sector
	reserved     = 1
	fats         = 2
	minClusters  = 4085 + 16 // fewer would make it FAT12; some readers are off by a few
	maxClusters  = 65524 - 16
	endOfChain   = 0xffff
	attrVolume   = 0x08
	attrFolder   = 0x10
	attrArchive  = 0x20
	mediaFixed   = 0xf8
	firstCluster = 2
)

// fatWriter fills a FAT16 file system (Microsoft FAT specification, 2005) from its first cluster on.
type fatWriter struct {
	table []uint16
	data  []byte
	full  bool // something did not fit
}

// fat16 returns a file system with the given files, just large enough.
func fat16(files []fatFile) ([]byte, error) {
	w := &fatWriter{table: []uint16{0xff00 | mediaFixed, endOfChain}}
	root := newFolder()
	for _, f := range files {
		if err := root.add(strings.Split(f.name, "/"), f.content); err != nil {
			return nil, fmt.Errorf("file %s: %w", f.name, err)
		}
	}
	entries := append(dirEntry("IRONROOT   ", attrVolume, 0, 0), root.write(w, 0)...)
	if len(entries) > rootEntries*32 {
		return nil, fmt.Errorf("root folder has %d entries, want at most %d", len(entries)/32, rootEntries)
	}
	if w.full {
		return nil, fmt.Errorf("files take more than %d clusters of %d bytes", maxClusters, sector)
	}
	clusters := max(len(w.table)-firstCluster, minClusters)
	tableSectors := ((clusters+firstCluster)*2 + sector - 1) / sector
	table := make([]byte, tableSectors*sector)
	for i, next := range w.table {
		binary.LittleEndian.PutUint16(table[2*i:], next)
	}
	rootArea := make([]byte, rootSectors*sector)
	copy(rootArea, entries)
	data := make([]byte, clusters*sector)
	copy(data, w.data)
	total := reserved + fats*tableSectors + rootSectors + clusters
	boot := bootSector(total, tableSectors, crc32.ChecksumIEEE(w.data))
	return slices.Concat(boot, table, table, rootArea, data), nil
}

// bootSector returns the BIOS parameter block of FAT16.
func bootSector(sectors, tableSectors int, serial uint32) []byte {
	b := make([]byte, sector)
	copy(b, []byte{0xeb, 0x3c, 0x90})
	copy(b[3:], "IRONROOT")
	binary.LittleEndian.PutUint16(b[11:], sector)
	b[13] = 1 // sectors of a cluster
	binary.LittleEndian.PutUint16(b[14:], reserved)
	b[16] = fats
	binary.LittleEndian.PutUint16(b[17:], rootEntries)
	if sectors <= math.MaxUint16 {
		binary.LittleEndian.PutUint16(b[19:], uint16(sectors))
	} else {
		binary.LittleEndian.PutUint32(b[32:], uint32(sectors))
	}
	b[21] = mediaFixed
	binary.LittleEndian.PutUint16(b[22:], uint16(tableSectors))
	binary.LittleEndian.PutUint16(b[24:], 32) // sectors of a track
	binary.LittleEndian.PutUint16(b[26:], 64) // heads
	b[36] = 0x80
	b[38] = 0x29
	binary.LittleEndian.PutUint32(b[39:], serial)
	copy(b[43:], "IRONROOT   FAT16   ")
	b[510], b[511] = 0x55, 0xaa
	return b
}

// folder is a folder of the file system to be written.
type folder struct {
	names   []string // in the order in which they were added
	folders map[string]*folder
	files   map[string][]byte
}

func newFolder() *folder {
	return &folder{folders: map[string]*folder{}, files: map[string][]byte{}}
}

func (f *folder) add(parts []string, content []byte) error {
	name := parts[0]
	if _, err := shortName(name); err != nil {
		return err
	}
	if len(parts) == 1 {
		f.names = append(f.names, name)
		f.files[name] = content
		return nil
	}
	child, ok := f.folders[name]
	if !ok {
		child = newFolder()
		f.folders[name] = child
		f.names = append(f.names, name)
	}
	return child.add(parts[1:], content)
}

// write stores the folder's contents and returns its entries. own is the folder's own first cluster, 0 for the root.
func (f *folder) write(w *fatWriter, own uint16) []byte {
	var entries []byte
	for _, name := range f.names {
		short, _ := shortName(name) // add checked it
		if content, ok := f.files[name]; ok {
			entries = append(entries, dirEntry(short, attrArchive, w.store(content), uint32(len(content)))...)
			continue
		}
		child := f.folders[name]
		// The folder's clusters come first, so that its entry "." can name them: 16 entries fit into each.
		first := w.reserve((len(child.names) + 2) * 32)
		if first == 0 {
			return entries
		}
		inner := slices.Concat(
			dirEntry(".          ", attrFolder, first, 0), dirEntry("..         ", attrFolder, own, 0), child.write(w, first))
		copy(w.data[int(first-firstCluster)*sector:], inner)
		entries = append(entries, dirEntry(short, attrFolder, first, 0)...)
	}
	return entries
}

// reserve takes clusters in a row for size bytes and returns the first; 0 when they do not fit.
func (w *fatWriter) reserve(size int) uint16 {
	count := (size + sector - 1) / sector
	first := len(w.table)
	if first+count > maxClusters+firstCluster {
		w.full = true
		return 0
	}
	for i := range count {
		next := first + i + 1
		if i == count-1 {
			next = endOfChain
		}
		w.table = append(w.table, uint16(next))
	}
	w.data = append(w.data, make([]byte, count*sector)...)
	return uint16(first)
}

func (w *fatWriter) store(content []byte) uint16 {
	if len(content) == 0 {
		return 0
	}
	first := w.reserve(len(content))
	if first != 0 {
		copy(w.data[int(first-firstCluster)*sector:], content)
	}
	return first
}

// dirEntry returns a directory entry with the image's time stamp.
func dirEntry(name string, attributes byte, cluster uint16, size uint32) []byte {
	b := make([]byte, 32)
	copy(b, name)
	b[11] = attributes
	date := uint16((epoch.Year()-1980)<<9 | int(epoch.Month())<<5 | epoch.Day())
	binary.LittleEndian.PutUint16(b[16:], date)
	binary.LittleEndian.PutUint16(b[18:], date)
	binary.LittleEndian.PutUint16(b[24:], date)
	binary.LittleEndian.PutUint16(b[26:], cluster)
	binary.LittleEndian.PutUint32(b[28:], size)
	return b
}

// shortName returns a name as FAT stores it: eight and three characters, filled up with blanks.
func shortName(name string) (string, error) {
	extension := strings.TrimPrefix(path.Ext(name), ".")
	base := strings.TrimSuffix(name, path.Ext(name))
	if base == "" || len(base) > 8 || len(extension) > 3 || name != strings.ToUpper(name) || strings.ContainsAny(name, " /\\") {
		return "", fmt.Errorf("name %q is not an upper-case 8.3 name", name)
	}
	return fmt.Sprintf("%-8s%-3s", base, extension), nil
}
