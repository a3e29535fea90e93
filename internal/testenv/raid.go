package testenv

import "encoding/binary"

// RAIDSuperblock is a superblock of version 1 (struct mdp_superblock_1 of Linux) for a byte of a member at which it stands:
// 0 for version 1.1, 4096 for 1.2, near the end for 1.0. The name is the array's, "host:name" or "name".
func RAIDSuperblock(name string, at int64) []byte {
	b := make([]byte, 256)
	le := binary.LittleEndian
	le.PutUint32(b, 0xa92b4efc)
	le.PutUint32(b[4:], 1)
	copy(b[16:], "0123456789abcdef") // the array's UUID
	copy(b[32:64], name)
	le.PutUint64(b[144:], uint64(at/512))
	var sum uint64
	for i := 0; i < len(b); i += 4 {
		sum += uint64(le.Uint32(b[i:]))
	}
	le.PutUint32(b[216:], uint32(sum)+uint32(sum>>32))
	return b
}
