package iso9660

import (
	"encoding/binary"
	"fmt"
	"strings"

	"ironroot/internal/rofs"
)

const (
	maxAreas = 16   // continuation areas of a record
	maxName  = 1024 // bytes of a Rock Ridge name
)

// entry is a system use entry (SUSP, 4.1).
type entry struct {
	signature string
	data      []byte // after signature, length and version
}

// findRockRidge looks for the entry SP in the root directory's first record. It marks that there are system use
// entries, and contains their offset in all other records.
func (f *reader) findRockRidge() error {
	records, err := f.records(f.root)
	if err != nil {
		return err
	}
	if len(records) == 0 || !records[0].dots {
		return nil
	}
	use := records[0].use
	if len(use) >= 7 && string(use[:2]) == "SP" && use[4] == 0xbe && use[5] == 0xef {
		f.rockRidge, f.skip = true, int(use[6])
	}
	return nil
}

// named returns a record's file with its Rock Ridge name, and with the mode rofs.Other for other kinds of files.
func (f *reader) named(r record) (rofs.File, error) {
	file := r.file
	if !f.rockRidge {
		return file, nil
	}
	entries, err := f.entries(r.use)
	if err != nil {
		return rofs.File{}, fmt.Errorf("record %q: %w", file.Name, err)
	}
	var name strings.Builder
	for _, e := range entries {
		switch e.signature {
		case "NM":
			if len(e.data) > 1 && e.data[0]&^1 == 0 { // not ".", ".." or the host's name
				name.Write(e.data[1:])
			}
		case "PX":
			if len(e.data) < 4 {
				return rofs.File{}, fmt.Errorf("record %q: entry PX of %d bytes", file.Name, len(e.data))
			}
			const typeMask, typeDir, typeFile = 0o170000, 0o040000, 0o100000
			kind := binary.LittleEndian.Uint32(e.data) & typeMask
			if file.Mode.IsDir() && kind != typeDir || file.Mode.IsRegular() && kind != typeFile {
				file.Mode = rofs.Other
			}
		case "SL", "CL", "RE", "PN", "ZF", "SF":
			// A symbolic link, a relocated directory, a device, a compressed or sparse file.
			file.Mode = rofs.Other
		}
		if name.Len() > maxName {
			return rofs.File{}, fmt.Errorf("record %q: name of more than %d bytes", file.Name, maxName)
		}
	}
	if name.Len() > 0 {
		file.Name = name.String()
	}
	return file, nil
}

// entries reads the system use entries of a record with their continuation areas.
func (f *reader) entries(area []byte) ([]entry, error) {
	area = area[min(f.skip, len(area)):]
	var list []entry
	for range maxAreas {
		part, next, err := parseEntries(area)
		if err != nil {
			return nil, err
		}
		list = append(list, part...)
		if next == nil {
			return list, nil
		}
		if area, err = f.continuation(next); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("more than %d continuation areas", maxAreas)
}

// parseEntries parses one area. next is the data of its entry CE, nil if it has none.
func parseEntries(area []byte) (list []entry, next []byte, err error) {
	for len(area) >= 4 && area[0] != 0 {
		length := int(area[2])
		if length < 4 || length > len(area) {
			return nil, nil, fmt.Errorf("system use entry %q of %d bytes in %d bytes", area[:2], length, len(area))
		}
		e := entry{signature: string(area[:2]), data: area[4:length]}
		switch e.signature {
		case "ST":
			return list, next, nil
		case "CE":
			next = e.data
		default:
			list = append(list, e)
		}
		area = area[length:]
	}
	return list, next, nil
}

// continuation reads the area that an entry CE names.
func (f *reader) continuation(data []byte) ([]byte, error) {
	if len(data) < 24 {
		return nil, fmt.Errorf("entry CE: got %d bytes, want 24", len(data))
	}
	le := binary.LittleEndian
	block, offset, length := int64(le.Uint32(data)), int64(le.Uint32(data[8:])), int64(le.Uint32(data[16:]))
	if offset+length > sectorSize {
		return nil, fmt.Errorf("continuation area at byte %d of %d bytes crosses the end of a sector", offset, length)
	}
	area := make([]byte, length)
	if n, err := f.r.ReadAt(area, block*f.block+offset); int64(n) < length {
		return nil, fmt.Errorf("continuation area: %w", err)
	}
	return area, nil
}
