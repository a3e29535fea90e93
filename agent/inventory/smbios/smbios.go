package smbios

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Types of structures.
const (
	TypeBIOS         = 0
	TypeSystem       = 1
	TypeBaseboard    = 2
	TypeProcessor    = 4
	TypeMemoryArray  = 16
	TypeMemoryDevice = 17
	typeEnd          = 127
)

const (
	headerSize = 4
	// maxStructures limits the number of structures of a malformed table.
	maxStructures = 1 << 16
)

// Table is a parsed SMBIOS table.
type Table struct {
	Major, Minor byte // version of the specification that the firmware follows
	Structures   []Structure
}

// Structure is an entry of the table.
type Structure struct {
	Type    byte
	Handle  uint16
	Data    []byte // the formatted area with its header, so that offsets equal the specification's
	Strings []string
}

// Parse parses an entry point (2.1 or 3.0) and its table. If a structure is malformed or truncated, Parse returns an
// error together with the structures before it.
func Parse(entry, table []byte) (*Table, error) {
	t := &Table{}
	switch {
	case bytes.HasPrefix(entry, []byte("_SM3_")) && len(entry) >= 9:
		t.Major, t.Minor = entry[7], entry[8]
	case bytes.HasPrefix(entry, []byte("_SM_")) && len(entry) >= 8:
		t.Major, t.Minor = entry[6], entry[7]
	case bytes.HasPrefix(entry, []byte("_DMI_")) && len(entry) >= 15:
		t.Major, t.Minor = entry[14]>>4, entry[14]&0xf
	default:
		return nil, errors.New("parse SMBIOS entry point: unknown anchor")
	}
	for len(table) > 0 && len(t.Structures) < maxStructures {
		s, rest, err := next(table)
		if err != nil {
			return t, fmt.Errorf("SMBIOS structure %d: %w", len(t.Structures), err)
		}
		if s.Type == typeEnd {
			break
		}
		t.Structures = append(t.Structures, s)
		table = rest
	}
	return t, nil
}

// next returns the first structure and the rest of the table.
func next(table []byte) (Structure, []byte, error) {
	if len(table) < headerSize {
		return Structure{}, nil, fmt.Errorf("got %d bytes, want a header of %d", len(table), headerSize)
	}
	if table[0] == typeEnd { // some firmware gives it a wrong length, or omits its strings
		return Structure{Type: typeEnd}, nil, nil
	}
	length := int(table[1])
	if length < headerSize || length > len(table) {
		return Structure{}, nil, fmt.Errorf("type %d: got a length of %d, want %d to %d",
			table[0], length, headerSize, len(table))
	}
	s := Structure{Type: table[0], Handle: binary.LittleEndian.Uint16(table[2:]), Data: table[:length]}
	rest := table[length:]
	end := bytes.Index(rest, []byte{0, 0})
	if end < 0 {
		return Structure{}, nil, fmt.Errorf("type %d: unterminated strings", s.Type)
	}
	if end > 0 {
		for text := range bytes.SplitSeq(rest[:end], []byte{0}) {
			s.Strings = append(s.Strings, string(text))
		}
	}
	return s, rest[end+2:], nil
}

// All returns the structures of a type.
func (t *Table) All(kind byte) []Structure {
	var list []Structure
	for _, s := range t.Structures {
		if s.Type == kind {
			list = append(list, s)
		}
	}
	return list
}

// LacksUEFI reports whether the firmware declares that it does not support UEFI (type 0; 7.1.2.2, bit 3 of BIOS
// characteristics extension byte 2). Firmware without the byte can support UEFI.
func (t *Table) LacksUEFI() bool {
	bios := t.All(TypeBIOS)
	return len(bios) > 0 && bios[0].has(0x14) && bios[0].u8(0x13)&(1<<3) == 0
}

// has reports whether the formatted area reaches up to and excluding offset end.
func (s Structure) has(end int) bool { return len(s.Data) >= end }

// Numbers at an offset, 0 if the structure is too short.
func (s Structure) u8(offset int) byte {
	if !s.has(offset + 1) {
		return 0
	}
	return s.Data[offset]
}

func (s Structure) u16(offset int) uint16 {
	if !s.has(offset + 2) {
		return 0
	}
	return binary.LittleEndian.Uint16(s.Data[offset:])
}

func (s Structure) u32(offset int) uint32 {
	if !s.has(offset + 4) {
		return 0
	}
	return binary.LittleEndian.Uint32(s.Data[offset:])
}

func (s Structure) u64(offset int) uint64 {
	if !s.has(offset + 8) {
		return 0
	}
	return binary.LittleEndian.Uint64(s.Data[offset:])
}

// Text returns the string that the byte at offset refers to, as Clean returns it, "" without one.
func (s Structure) Text(offset int) string {
	if n := int(s.u8(offset)); n > 0 && n <= len(s.Strings) {
		return Clean(s.Strings[n-1])
	}
	return ""
}

// Clean returns a string of the firmware without control characters, bytes that are not UTF-8, and surrounding space.
// The specification allows only printable ASCII (6.1.3), but strings that a manufacturer did not set can consist of
// 0xff, the content of erased memory, and others contain control characters. Like lshw, Clean keeps valid UTF-8.
func Clean(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "")))
}

// MemorySize returns the bytes of a memory device (type 17; 7.18.4 and 7.18.5): 0 is an empty slot, 0xffff an unknown
// size, 0x7fff refers to the extended size in MiB, and bit 15 changes the unit from MiB to KiB.
func (s Structure) MemorySize() int64 {
	switch size := s.u16(0x0c); {
	case size == 0xffff:
		return 0
	case size == 0x7fff && s.has(0x20):
		return int64(s.u32(0x1c)&0x7fffffff) << 20
	case size&0x8000 != 0:
		return int64(size&0x7fff) << 10
	default:
		return int64(size) << 20
	}
}
