package testenv

import (
	"cmp"
	"encoding/binary"
)

// RAID describes a member of an array of Linux software RAID.
type RAID struct {
	Name    string // "host:name" or "name"
	Level   int32  // as in the superblock: 0, 1, 5 …
	Devices uint32 // number of members; 0 means 2
	Size    int64  // bytes of the member
	Data    int64  // bytes of the member that the array uses; 0 means as many as possible
	// DataOffset is the byte of the member at which the array's data begins, for versions 1.1 and 1.2; 0 means 1 MiB.
	DataOffset int64

	UUID   string // 16 bytes of the array; "" means a fixed one
	Member uint32 // number and role of the member, from 0
	Spare  bool   // the member has no role
	Events uint64 // 0 means 1
}

// Superblock returns a superblock of version 1 (struct mdp_superblock_1 of Linux) for the byte offset at of the member:
// 0 is version 1.1, 4096 is 1.2, others are 1.0. mdadm --examine accepts it.
func (r RAID) Superblock(at int64) []byte {
	const header, sector = 256, 512
	dataOffset := r.DataOffset
	if dataOffset == 0 {
		dataOffset = 1 << 20
	}
	devices := max(2, r.Devices)
	roles := max(devices, r.Member+1)
	b := make([]byte, header+2*roles)
	le := binary.LittleEndian
	le.PutUint32(b, 0xa92b4efc)
	le.PutUint32(b[4:], 1)
	copy(b[16:32], cmp.Or(r.UUID, "0123456789abcdef"))
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
	le.PutUint32(b[160:], r.Member)
	copy(b[168:], "fedcba987654321") // the member's UUID
	b[183] = byte('0' + r.Member)    // its last byte
	le.PutUint64(b[200:], max(1, r.Events))
	le.PutUint64(b[208:], 1<<64-1) // in sync as a whole
	le.PutUint32(b[220:], roles)
	for i := range roles {
		role := uint16(i)
		if i == r.Member && r.Spare {
			role = 0xffff // MD_DISK_ROLE_SPARE
		}
		le.PutUint16(b[header+2*i:], role)
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
