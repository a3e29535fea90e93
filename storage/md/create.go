package md

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"
)

// New describes an array to create. Its superblocks are those that mdadm 4.2 writes with --create --force --run for the
// same members: no member counts as in sync, so that the kernel resyncs arrays with redundancy. Version 1.2 with
// redundancy has a write-intent bitmap of mdadm's default size, as with --bitmap=internal. Version 1.0 has one only for
// members for which mdadm adds one by itself.
type New struct {
	Version string  // "1.0" or "1.2"
	Level   string  // "raid0", "raid1", "raid5", "raid6" or "raid10"
	Name    string  // "host:name" or "name", at most 31 bytes
	Sizes   []int64 // of the members in bytes, in the order of their roles
}

// MaxName is the largest length of an array's name in bytes. mdadm ends it with a zero byte.
const MaxName = 31

// Block is a part of a member's metadata.
type Block struct {
	Offset int64 // on the member
	Data   []byte
}

// levelDefaults are mdadm's defaults of a level: the layout, the size of a chunk, and the least number of members.
type levelDefaults struct {
	level      int32
	layout     uint32
	chunk      int64 // bytes; 0 for levels without chunks
	minDevices int
}

const defaultChunk = 512 << 10

// NearLayout is the layout of level 10 that mdadm creates by default: two near copies.
const NearLayout = 0x102

var creatable = map[string]levelDefaults{
	"raid0":  {0, 1, defaultChunk, 2}, // RAID0_ORIG_LAYOUT
	"raid1":  {1, 0, 0, 2},            // no layout
	"raid5":  {5, 2, defaultChunk, 3}, // left-symmetric
	"raid6":  {6, 2, defaultChunk, 4}, // left-symmetric
	"raid10": {10, NearLayout, defaultChunk, 2},
}

// MinDevices returns the least number of members of a new array of a level, 0 for levels that are not supported.
func MinDevices(level string) int { return creatable[level].minDevices }

// Features of a superblock, MD_FEATURE_BITMAP_OFFSET and MD_FEATURE_RAID0_LAYOUT.
const (
	FeatureBitmap      = 1
	FeatureRAID0Layout = 4096
)

const (
	sectorSize = 512
	// badBlockLog is the size of the log of bad blocks.
	badBlockLog = 4096
	// bitmapMin is the size of a member's data above which mdadm adds a write-intent bitmap by itself.
	bitmapMin     = 100 << 30
	bitmapMagic   = 0x6d746962
	bitmapVersion = 4 // BITMAP_MAJOR_HI
	bitmapHeader  = 256
	bitmapDelay   = 5 // seconds between two flushes
	// minBitmapChunk is the number of bytes that each bit of a bitmap describes, unless the bitmap would be too large.
	minBitmapChunk = 64 << 20
	// maxBitmapChunk is the largest power of two that the field of 32 bits for it holds.
	maxBitmapChunk = 2 << 30
)

// geometry is the layout of the members of a new array, in bytes.
type geometry struct {
	levelDefaults

	dataOffset int64
	size       int64 // of each member's data; 0 for RAID 0, which uses all of each member
	bitmap     int64 // size of the bitmap, 0 for none
	synced     int64 // bytes that the bitmap describes
	perBit     int64 // bytes that each bit of the bitmap describes
}

// plan computes the layout as mdadm does. Its error names the number of the member that is too small, from 1.
func (n New) plan() (geometry, error) {
	defaults, ok := creatable[n.Level]
	switch {
	case !ok || n.Version != "1.0" && n.Version != "1.2":
		return geometry{}, fmt.Errorf("level %q with superblock %q is not supported", n.Level, n.Version)
	case len(n.Sizes) < defaults.minDevices || len(n.Sizes) > maxCreated:
		return geometry{}, fmt.Errorf("got %d members, want %d to %d for %s",
			len(n.Sizes), defaults.minDevices, maxCreated, n.Level)
	case n.Name == "" || len(n.Name) > MaxName:
		return geometry{}, fmt.Errorf("got a name of %d bytes, want 1 to %d", len(n.Name), MaxName)
	}
	g := geometry{levelDefaults: defaults}
	if n.Version == "1.2" {
		g.dataOffset = dataOffset(n.Sizes[0], g.chunk)
	}
	for i, size := range n.Sizes {
		end := size / sectorSize * sectorSize
		if n.Version == "1.0" {
			end = size&^4095 - 8192 - badBlockLog - bitmapSpace(end)
		}
		usable := (end - g.dataOffset) &^ 1023
		if g.chunk > 0 {
			usable &^= g.chunk - 1
		} else {
			usable &^= 64<<10 - 1
		}
		if usable <= 0 {
			return geometry{}, fmt.Errorf("member %d of %d bytes is too small", i+1, size)
		}
		if g.level > 0 && (g.size == 0 || usable < g.size) {
			g.size = usable
		}
	}
	if n.hasBitmap(g) {
		g.synced = g.size
		if n.Level == "raid10" {
			g.synced = g.size * int64(len(n.Sizes)) / 2
		}
		g.perBit = bitmapChunk(g.synced, bitmapSpace(g.size))
		if g.perBit > maxBitmapChunk {
			return geometry{}, fmt.Errorf("array of %d bytes is too large for a bitmap of %d bytes",
				g.synced, bitmapSpace(g.size))
		}
		g.bitmap = bitmapSize(g.synced, g.perBit)
	}
	return g, nil
}

// hasBitmap reports whether the members have a write-intent bitmap. Without one, the kernel does not let a member that
// was removed return to an array that has changed.
func (n New) hasBitmap(g geometry) bool {
	if n.Version == "1.2" {
		return g.level > 0
	}
	return g.size > bitmapMin
}

// bitmapChunk returns the number of bytes that each bit of a bitmap for synced bytes describes: the smallest power of
// two from 64 MiB on with which the bitmap fits into space bytes. As mdadm does, it starts with a bit for each 4 KiB
// and one more, and halves their number until they fit.
func bitmapChunk(synced, space int64) int64 {
	maxBits := (space - bitmapHeader) * 8
	chunk, bits := int64(4<<10), synced/(4<<10)+1
	for ; bits > maxBits && maxBits > 0; bits = (bits + 1) / 2 {
		chunk *= 2
	}
	return max(chunk, minBitmapChunk)
}

// bitmapSize returns the size of a bitmap for synced bytes, if each bit describes chunk bytes.
func bitmapSize(synced, chunk int64) int64 {
	bits := (synced + chunk - 1) / chunk
	return ((bits+7)/8 + bitmapHeader + 4095) &^ 4095
}

// newBitmap is the offset of the bitmap of a new array from a superblock of version 1.2.
const newBitmap = 4096

// Bitmap returns the size of the write-intent bitmap that follows a superblock of version 1.2, 0 if there is none. The
// error is not nil if the bitmap is not as mdadm creates it.
func (s Superblock) Bitmap(member io.ReaderAt) (int64, error) {
	if s.Features&FeatureBitmap == 0 {
		return 0, nil
	}
	synced := s.DataSize
	if s.Level == "raid10" {
		synced = s.ArraySize
	}
	if s.BitmapOffset != newBitmap {
		return 0, fmt.Errorf("%w: the bitmap is %d bytes from the superblock, want %d",
			ErrInvalid, s.BitmapOffset, newBitmap)
	}
	header, le := make([]byte, bitmapHeader), binary.LittleEndian
	if _, err := member.ReadAt(header, s.Offset+newBitmap); err != nil {
		return 0, fmt.Errorf("bitmap: %w", err)
	}
	chunk := bitmapChunk(synced, bitmapSpace(s.DataSize))
	if le.Uint32(header) != bitmapMagic || le.Uint32(header[4:]) != bitmapVersion ||
		int64(le.Uint32(header[52:])) != chunk || le.Uint64(header[40:]) != uint64(synced/sectorSize) ||
		uuidText(header[8:24]) != s.UUID {
		return 0, fmt.Errorf("%w: the bitmap is not that of a new array", ErrInvalid)
	}
	return bitmapSize(synced, chunk), nil
}

// maxCreated is the largest number of members. The table of roles then fits into the sectors that mdadm writes for
// few members.
const maxCreated = 128

// dataOffset returns the offset of the data for superblock 1.2: space for the bitmap, and for a later change of the
// layout about a thousandth of the member, at most 128 MiB.
func dataOffset(size, chunk int64) int64 {
	sectors := size / sectorSize
	headroom := int64(128 * 1024 * 2)
	for headroom<<10 > sectors && (chunk == 0 || headroom/2 >= chunk/1024*4) {
		headroom >>= 1
	}
	const align = 1 << 20
	return ((12*2+headroom)*sectorSize + bitmapSpace(size) + align - 1) / align * align
}

// bitmapSpace returns the space that mdadm reserves for a bitmap on a device or for data of a size.
func bitmapSpace(size int64) int64 {
	switch {
	case size < 64<<10:
		return 0
	case size-64<<10 >= 200<<30:
		return 128 << 10
	case size-4<<10 > 8<<30:
		return 64 << 10
	}
	return 4 << 10
}

// Encode returns the metadata of each member of a new array. The caller must first remove other superblocks of the
// members.
func (n New) Encode(now time.Time) ([][]Block, error) {
	g, err := n.plan()
	if err != nil {
		return nil, err
	}
	var uuid [16]byte
	_, _ = rand.Read(uuid[:]) // never fails
	members := make([][]Block, len(n.Sizes))
	for i := range n.Sizes {
		members[i] = n.encodeMember(g, uuid, i, now)
	}
	return members, nil
}

// encodeMember returns the metadata of one member: struct mdp_superblock_1 of Linux's md_p.h, and the bitmap.
func (n New) encodeMember(g geometry, uuid [16]byte, member int, now time.Time) []Block {
	le := binary.LittleEndian
	size := n.Sizes[member] / sectorSize * sectorSize
	offset := Offsets(size)[n.Version]
	roles := ((header1+2*len(n.Sizes)+511)&^511 - header1) / 2
	b := make([]byte, header1+2*roles)
	le.PutUint32(b, magic)
	le.PutUint32(b[4:], 1)
	le.PutUint32(b[8:], n.features(g))
	copy(b[16:32], uuid[:])
	copy(b[32:63], n.Name)
	le.PutUint64(b[64:], uint64(now.Unix())) // ctime
	le.PutUint32(b[72:], uint32(g.level))
	le.PutUint32(b[76:], g.layout)
	le.PutUint64(b[80:], uint64(g.size/sectorSize))
	le.PutUint32(b[88:], uint32(g.chunk/sectorSize))
	le.PutUint32(b[92:], uint32(len(n.Sizes)))
	le.PutUint64(b[128:], uint64(g.dataOffset/sectorSize))
	le.PutUint64(b[136:], uint64(g.dataLength(n.Version, size, offset)/sectorSize))
	le.PutUint64(b[144:], uint64(offset/sectorSize))
	le.PutUint32(b[160:], uint32(member))
	_, _ = rand.Read(b[168:184]) // UUID of the member
	g.putLogs(b, n.Version)
	le.PutUint64(b[192:], uint64(now.Unix())) // utime
	if g.level == 0 {
		le.PutUint64(b[208:], 1<<64-1) // nothing to resync
	}
	le.PutUint32(b[220:], uint32(roles))
	for i := range roles {
		role := uint16(0xffff) // MD_DISK_ROLE_SPARE
		if i < len(n.Sizes) {
			role = uint16(i)
		}
		le.PutUint16(b[header1+2*i:], role)
	}
	le.PutUint32(b[216:], checksum1(b))
	blocks := []Block{{offset, b}}
	if g.bitmap > 0 {
		start := offset + int64(int32(le.Uint32(b[96:])))*sectorSize
		blocks = append(blocks, Block{start, g.encodeBitmap(uuid)})
	}
	return blocks
}

// features returns the features that the kernel must support. A RAID 0 of members of different sizes has several
// zones, whose layout depends on the kernel otherwise.
func (n New) features(g geometry) uint32 {
	var features uint32
	if g.bitmap > 0 {
		features |= FeatureBitmap
	}
	chunks := func(size int64) int64 { return (size/sectorSize*sectorSize - g.dataOffset) / g.chunk }
	differs := func(size int64) bool { return chunks(size) != chunks(n.Sizes[0]) }
	if g.level == 0 && slices.ContainsFunc(n.Sizes, differs) {
		features |= FeatureRAID0Layout
	}
	return features
}

// dataLength returns the space for data on a member of size bytes with a superblock at an offset.
func (g geometry) dataLength(version string, size, offset int64) int64 {
	if version == "1.2" {
		return size - g.dataOffset
	}
	return offset - min(g.bitmapSpace()+badBlockLog, offset-g.size)
}

func (g geometry) bitmapSpace() int64 {
	if g.bitmap > 0 {
		return g.bitmap
	}
	return bitmapSpace(g.size)
}

// putLogs sets the positions of the bitmap and of the log of bad blocks, in sectors from the superblock.
func (g geometry) putLogs(b []byte, version string) {
	le := binary.LittleEndian
	bitmap, log := int64(newBitmap), newBitmap+g.bitmapSpace()
	if version == "1.0" {
		bitmap, log = -g.bitmap-badBlockLog, -badBlockLog
	}
	if g.bitmap > 0 {
		le.PutUint32(b[96:], uint32(bitmap/sectorSize))
	}
	le.PutUint16(b[186:], badBlockLog/sectorSize)
	le.PutUint32(b[188:], uint32(log/sectorSize))
}

// encodeBitmap returns a bitmap with all bits set: struct bitmap_super_s of Linux, followed by a bit for each chunk.
// Everything has to be resynced.
func (g geometry) encodeBitmap(uuid [16]byte) []byte {
	le := binary.LittleEndian
	b := make([]byte, g.bitmap)
	le.PutUint32(b, bitmapMagic)
	le.PutUint32(b[4:], bitmapVersion)
	copy(b[8:24], uuid[:])
	le.PutUint64(b[40:], uint64(g.synced/sectorSize))
	le.PutUint32(b[52:], uint32(g.perBit))
	le.PutUint32(b[56:], bitmapDelay)
	for i := bitmapHeader; i < len(b); i++ {
		b[i] = 0xff
	}
	return b
}

// Check returns an error if no array can be created.
func (n New) Check() error {
	_, err := n.plan()
	return err
}
