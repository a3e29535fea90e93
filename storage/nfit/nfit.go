package nfit

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// TableFile is the path of the table below /sys.
const TableFile = "firmware/acpi/tables/NFIT"

const (
	headerBytes = 40 // of the table: the header of all ACPI tables, and four reserved bytes
	rangeType   = 0  // of a structure that describes a range
	rangeBytes  = 48 // of that structure at least, up to the size of the range
	maxTable    = 1 << 20
)

// Types of ranges (ACPI 6.5, table 5.132).
var (
	VirtualDisk = uuid.MustParse("77ab535a-45fc-624b-5560-f7b281d1f96e") // volatile
	VirtualCD   = uuid.MustParse("3d5abd30-4175-87ce-6d64-d2ade523c4bb") // volatile
)

// Range is a range of physical memory.
type Range struct {
	Index uint16 // the kernel's range_index; OVMF describes its RAM disks with 0
	Type  uuid.UUID
	Base  uint64
	Size  uint64 // bytes
}

// IsRAMDisk reports whether the range is a disk or CD that the firmware has created in volatile memory since the
// machine was started. Ranges of persistent memory keep what a former user of the machine wrote.
func (r Range) IsRAMDisk() bool { return r.Type == VirtualDisk || r.Type == VirtualCD }

// Parse returns the ranges of a table in the order in which they are described.
func Parse(table []byte) ([]Range, error) {
	le := binary.LittleEndian
	if len(table) < headerBytes || len(table) > maxTable || string(table[:4]) != "NFIT" {
		return nil, fmt.Errorf("parse NFIT: got %d bytes that begin with %q, want %d to %d with NFIT",
			len(table), table[:min(4, len(table))], headerBytes, maxTable)
	}
	if size := le.Uint32(table[4:]); uint64(size) != uint64(len(table)) {
		return nil, fmt.Errorf("parse NFIT: got %d bytes, want %d", len(table), size)
	}
	var sum byte
	for _, b := range table {
		sum += b
	}
	if sum != 0 {
		return nil, errors.New("parse NFIT: wrong checksum")
	}
	var ranges []Range
	for at := headerBytes; at < len(table); {
		rest := table[at:]
		if len(rest) < 4 {
			return nil, fmt.Errorf("parse NFIT: got %d bytes at %d, want a structure", len(rest), at)
		}
		kind, length := le.Uint16(rest), int(le.Uint16(rest[2:]))
		if length < 4 || length > len(rest) || kind == rangeType && length < rangeBytes {
			return nil, fmt.Errorf("parse NFIT: structure %d at %d has %d bytes of %d", kind, at, length, len(rest))
		}
		if kind == rangeType {
			ranges = append(ranges, Range{
				Index: le.Uint16(rest[4:]), Type: guid(rest[16:32]),
				Base: le.Uint64(rest[32:]), Size: le.Uint64(rest[40:]),
			})
		}
		at += length
	}
	return ranges, nil
}

// guid converts the form of ACPI tables, in which the first three fields are little-endian.
func guid(b []byte) uuid.UUID {
	return uuid.UUID{
		b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15],
	}
}
