package md

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode"
)

const (
	magic          = 0xa92b4efc // MD_SB_MAGIC
	superblockSize = 4096       // maximum size of a superblock in bytes
	header1        = 256        // bytes of version 1 before the roles of the devices
	maxDevices1    = (superblockSize - header1) / 2
	maxRole        = 0xff00  // MD_DISK_ROLE_MAX: higher ones are spares, faulty members and journals
	maxDevices0    = 27      // MD_SB_DISKS
	maxSectors     = 1 << 54 // from here the number of bytes overflows an int64
)

// levels maps the numbers in the superblock to the names of personalities.
var levels = map[int32]string{
	-4: "multipath", -1: "linear", 0: "raid0", 1: "raid1", 4: "raid4", 5: "raid5", 6: "raid6", 10: "raid10",
}

// parse parses the superblock of a version from the bytes at its offset. It reports whether they start with the magic
// number.
func parse(version string, data []byte, offset, size int64) (Superblock, bool) {
	if len(data) < 4 {
		return Superblock{}, false
	}
	var order binary.ByteOrder = binary.LittleEndian
	if binary.LittleEndian.Uint32(data) != magic {
		// Version 0.90 has the byte order of the machine that wrote it.
		if version != "0.90" || binary.BigEndian.Uint32(data) != magic {
			return Superblock{}, false
		}
		order = binary.BigEndian
	}
	s := Superblock{Version: version, Offset: offset}
	switch {
	case len(data) < superblockSize:
		s.Problem = fmt.Errorf("%w: got %d bytes, want %d", ErrInvalid, len(data), superblockSize)
	case version == "0.90":
		s.Problem = s.parse0(data, order)
	default:
		s.Problem = s.parse1(data, size)
	}
	return s, true
}

// parse0 parses struct mdp_superblock_s.
func (s *Superblock) parse0(data []byte, order binary.ByteOrder) error {
	word := func(i int) uint32 { return order.Uint32(data[4*i:]) }
	if major, minor := word(1), word(2); major != 0 || minor != 90 && minor != 91 { // 91 during a reshape
		return fmt.Errorf("%w: got version %d.%d, want 0.90", ErrInvalid, major, minor)
	}
	const checksumWord = 38
	var sum uint64
	for i := range superblockSize / 4 {
		if i != checksumWord {
			sum += uint64(word(i))
		}
	}
	if got, want := word(checksumWord), fold(sum); got != want {
		return fmt.Errorf("%w: got checksum %08x, want %08x", ErrInvalid, got, want)
	}
	uuid := make([]byte, 16)
	for n, i := range []int{5, 13, 14, 15} {
		binary.BigEndian.PutUint32(uuid[4*n:], word(i)) // as printed by mdadm
	}
	s.UUID = uuidText(uuid)
	s.Length, s.Chunk = superblockSize, int64(word(65))
	s.DataSize = int64(word(8)) * 1024
	if s.DataSize == 0 {
		s.DataSize = s.Offset // RAID 0 and linear arrays use all before the superblock
	}
	if s.DataSize > s.Offset {
		return fmt.Errorf("%w: got %d bytes of data, want at most %d", ErrInvalid, s.DataSize, s.Offset)
	}
	return s.setArray(int32(word(7)), word(10), maxDevices0, word(64))
}

// parse1 parses struct mdp_superblock_1 of a device of size bytes.
func (s *Superblock) parse1(data []byte, size int64) error {
	le := binary.LittleEndian
	if major := le.Uint32(data[4:]); major != 1 {
		return fmt.Errorf("%w: got major version %d, want 1", ErrInvalid, major)
	}
	roles := le.Uint32(data[220:])
	if roles > maxDevices1 {
		return fmt.Errorf("%w: got %d device roles, want at most %d", ErrInvalid, roles, maxDevices1)
	}
	if got, want := le.Uint32(data[216:]), checksum1(data[:header1+2*roles]); got != want {
		return fmt.Errorf("%w: got checksum %08x, want %08x", ErrInvalid, got, want)
	}
	if got := le.Uint64(data[144:]); got != uint64(s.Offset/512) {
		return fmt.Errorf("%w: got superblock sector %d, want %d", ErrInvalid, got, s.Offset/512)
	}
	s.Length, s.Chunk = int64(header1+2*roles), int64(le.Uint32(data[88:]))*512
	s.UUID, s.Features = uuidText(data[16:32]), le.Uint32(data[8:])
	if s.Features&FeatureBitmap != 0 {
		s.BitmapOffset = int64(int32(le.Uint32(data[96:]))) * 512 // negative before the superblock
	}
	name, _, _ := bytes.Cut(data[32:64], []byte{0})
	s.Name = printable(name)
	used, start, usable := le.Uint64(data[80:]), le.Uint64(data[128:]), le.Uint64(data[136:])
	if used == 0 {
		used = usable // RAID 0 and linear arrays use all of it
	}
	if used == 0 || used > usable || usable >= maxSectors || start >= maxSectors {
		return fmt.Errorf("%w: got %d sectors of data at sector %d, %d of them used", ErrInvalid, usable, start, used)
	}
	s.DataOffset, s.DataSize = int64(start)*512, int64(used)*512
	first, end := s.Offset+header1, size // the data follow the superblock
	if s.Version == "1.0" {
		first, end = 0, s.Offset // or precede it
	}
	if s.DataOffset < first || s.DataOffset > end || s.DataSize > end-s.DataOffset {
		return fmt.Errorf("%w: got %d bytes of data at byte %d, want them between %d and %d",
			ErrInvalid, s.DataSize, s.DataOffset, first, end)
	}
	number := le.Uint32(data[160:])
	s.Number, s.Events = int(number), le.Uint64(data[200:])
	s.roles = string(data[header1 : header1+2*roles])
	s.Role = s.RoleOf(s.Number)
	return s.setArray(int32(le.Uint32(data[72:])), le.Uint32(data[92:]), maxDevices1, le.Uint32(data[76:]))
}

// RoleOf returns the role of a number as the member knows it, -1 for a number without a role.
func (s Superblock) RoleOf(number int) int {
	if number < 0 || number >= len(s.roles)/2 {
		return -1
	}
	role := int(s.roles[2*number]) | int(s.roles[2*number+1])<<8
	if role > maxRole {
		return -1
	}
	return role
}

// setArray sets level, number of devices and size of the array.
func (s *Superblock) setArray(level int32, devices, maxDevices, layout uint32) error {
	var known bool
	if s.Level, known = levels[level]; !known {
		return fmt.Errorf("%w: got level %d", ErrInvalid, level)
	}
	var redundant, copies int64 = 0, 1
	switch s.Level {
	case "raid4", "raid5":
		redundant = 1
	case "raid6":
		redundant = 2
	case "raid10":
		s.Layout = layout
		copies = max(1, int64(layout&0xff)*int64(layout>>8&0xff)) // near and far copies
	}
	if int64(devices) <= redundant || devices > maxDevices {
		return fmt.Errorf("%w: got %d devices, want %d to %d", ErrInvalid, devices, redundant+1, maxDevices)
	}
	s.Devices = int(devices)
	factor := int64(devices) - redundant
	if s.Level == "raid1" || s.Level == "multipath" {
		factor = 1
	}
	if s.DataSize > math.MaxInt64/factor {
		return fmt.Errorf("%w: got %d devices of %d bytes each", ErrInvalid, devices, s.DataSize)
	}
	s.ArraySize = s.DataSize * factor / copies
	return nil
}

// checksum1 returns the checksum of a superblock of version 1: the sum of its other words.
func checksum1(data []byte) uint32 {
	le := binary.LittleEndian
	var sum uint64
	for i := 0; i+4 <= len(data); i += 4 {
		if i != 216 {
			sum += uint64(le.Uint32(data[i:]))
		}
	}
	if len(data)%4 == 2 {
		sum += uint64(le.Uint16(data[len(data)-2:]))
	}
	return fold(sum)
}

func fold(sum uint64) uint32 { return uint32(sum) + uint32(sum>>32) }

func uuidText(u []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// printable replaces characters that are not printable by "?".
func printable(name []byte) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return '?'
		}
		return r
	}, strings.TrimSpace(string(name)))
}
