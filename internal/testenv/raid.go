package testenv

import "encoding/binary"

// RAID describes an array of Linux software RAID of which one device is a member.
type RAID struct {
	Name    string // "host:name" or "name"
	Level   int32  // as in the superblock: 0, 1, 5 …
	Devices uint32 // number of members; 0 means 2
	Size    int64  // bytes of the member
	Data    int64  // bytes of the member that the array uses; 0 means all there are
	// DataOffset is where the array's data begin on the member, for versions 1.1 and 1.2; 0 means 1 MiB.
	DataOffset int64
}

// Superblock returns a superblock of version 1 (struct mdp_superblock_1 of Linux) of the first member, for byte at of
// the member: 0 is version 1.1, 4096 is 1.2, others are 1.0. mdadm --examine accepts it.
func (r RAID) Superblock(at int64) []byte {
	const header, sector = 256, 512
	dataOffset := r.DataOffset
	if dataOffset == 0 {
		dataOffset = 1 << 20
	}
	devices := max(2, r.Devices)
	b := make([]byte, header+2*devices)
	le := binary.LittleEndian
	le.PutUint32(b, 0xa92b4efc)
	le.PutUint32(b[4:], 1)
	copy(b[16:], "0123456789abcdef") // the array's UUID
	copy(b[32:64], r.Name)
	le.PutUint32(b[72:], uint32(r.Level))
	le.PutUint32(b[76:], map[int32]uint32{5: 2, 10: 0x102}[r.Level]) // left-symmetric; two near copies
	start, usable := dataOffset, r.Size-dataOffset
	if at > 4096 {
		start, usable = 0, at
	}
	data := r.Data
	if data == 0 {
		data = usable
	}
	le.PutUint64(b[80:], uint64(data/sector))
	le.PutUint32(b[88:], 128) // chunk of 64 KiB
	le.PutUint32(b[92:], devices)
	le.PutUint64(b[128:], uint64(start/sector))
	le.PutUint64(b[136:], uint64(usable/sector))
	le.PutUint64(b[144:], uint64(at/sector))
	copy(b[168:], "fedcba9876543210") // the member's UUID
	le.PutUint64(b[200:], 1)          // events
	le.PutUint64(b[208:], 1<<64-1)    // in sync as a whole
	le.PutUint32(b[220:], devices)
	for i := range devices {
		le.PutUint16(b[header+2*i:], uint16(i))
	}
	var sum uint64
	for i := 0; i+4 <= len(b); i += 4 {
		sum += uint64(le.Uint32(b[i:]))
	}
	if len(b)%4 == 2 {
		sum += uint64(le.Uint16(b[len(b)-2:]))
	}
	le.PutUint32(b[216:], uint32(sum)+uint32(sum>>32))
	return b
}
