package md

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrInvalid is wrapped by the problems of superblocks that have the magic number but are not valid.
var ErrInvalid = errors.New("invalid md superblock")

// Superblock describes the array that a device is a member of. All sizes and offsets are bytes.
type Superblock struct {
	Version string // "0.90", "1.0", "1.1", "1.2"
	Offset  int64  // of the superblock on the member
	Length  int64  // of the superblock: the bytes that its checksum covers
	// Problem is nil if checksum, offset, level and sizes are valid. Otherwise it wraps [ErrInvalid], and the other
	// fields are not reliable.
	Problem error

	UUID       string
	Name       string // "host:name" or "name"; version 0.90 has none
	Level      string // "raid0", "raid1", "raid4", "raid5", "raid6", "raid10", "linear", "multipath"
	Devices    int    // number of members of a complete array
	DataOffset int64  // start of the array's data on the member
	DataSize   int64  // length of the array's data on the member
	ArraySize  int64
	Chunk      int64 // bytes; 0 for levels without chunks
	// BitmapOffset is the offset of the write-intent bitmap from the superblock, 0 without one and for version 0.90.
	BitmapOffset int64
	// Layout describes level 10: the number of near copies, plus 256 times the number of far copies, plus 0x10000 for
	// an offset.
	Layout uint32
	// Features has the bits MD_FEATURE_* that the kernel must support, 0 for version 0.90.
	Features uint32

	// Number and Role identify this member, from 0. A spare, a faulty member and a journal have the role -1. Events
	// counts changes of the array: the counts of members that were in use together differ by at most [MaxEventsApart].
	// All three are 0 for version 0.90.
	Number int
	Role   int
	Events uint64
	// roles holds the roles of all numbers as this member knows them, two bytes each in little-endian order.
	roles string
}

// MaxEventsApart is the largest difference between the event counts of two members that were in use together: Linux
// updates superblocks one after the other, and does not update a spare's when an array only becomes clean.
const MaxEventsApart = 1

// ShortName returns the name of the array without the host that created it.
func (s Superblock) ShortName() string { return s.Name[strings.LastIndexByte(s.Name, ':')+1:] }

// String describes the array by its level and name.
func (s Superblock) String() string {
	name := s.Name
	if name == "" {
		name = s.UUID
	}
	return fmt.Sprintf("%s array %q", s.Level, name)
}

// Offsets returns the offset of a superblock of each version on a member of size bytes.
func Offsets(size int64) map[string]int64 {
	offsets := map[string]int64{"1.1": 0, "1.2": 4096}
	if size >= 8192 {
		offsets["1.0"] = (size/512 - 16) &^ 7 * 512 // at least 8 KiB before the end, at a multiple of 4 KiB
	}
	if size >= 65536 {
		offsets["0.90"] = size&^65535 - 65536 // the last 64 KiB that are aligned to 64 KiB
	}
	return offsets
}

// Find returns the superblocks of a member of size bytes, sorted by version.
func Find(r io.ReaderAt, size int64) ([]Superblock, error) {
	var found []Superblock
	offsets := Offsets(size)
	for _, version := range []string{"0.90", "1.0", "1.1", "1.2"} {
		offset, ok := offsets[version]
		if !ok || offset < 0 || offset >= size {
			continue
		}
		data := make([]byte, superblockSize)
		n, err := r.ReadAt(data[:min(superblockSize, size-offset)], offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("md superblock at byte %d: %w", offset, err)
		}
		if s, ok := parse(version, data[:n], offset, size); ok {
			found = append(found, s)
		}
	}
	return found, nil
}
