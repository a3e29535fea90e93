package fat

import (
	"encoding/binary"
	"fmt"
)

// boot returns the boot sector.
func (f *writer) boot(v Volume) []byte {
	b := make([]byte, f.sector)
	le := binary.LittleEndian
	copy(b, "\xeb\x3c\x90MSDOS5.0")
	le.PutUint16(b[11:], uint16(f.sector))
	b[13] = byte(f.cluster / f.sector)
	le.PutUint16(b[14:], uint16(f.reserved/f.sector))
	b[16] = copies
	total, end := (f.data+int64(f.clusters)*f.cluster)/f.sector, b[36:] // what comes there differs
	if total < 1<<16 && f.bits != 32 {
		le.PutUint16(b[19:], uint16(total))
	} else {
		le.PutUint32(b[32:], uint32(total))
	}
	b[21] = 0xf8             // not removable, as the FAT's first entry says
	le.PutUint16(b[24:], 32) // sectors of a track and heads: of no use, but not to be 0
	le.PutUint16(b[26:], 64)
	if f.bits == 32 {
		b[1], end = 0x58, b[64:]
		f.boot32(b)
	} else {
		le.PutUint16(b[17:], rootEntries)
		le.PutUint16(b[22:], uint16(f.length/f.sector))
	}
	end[0], end[2] = 0x80, 0x29
	le.PutUint32(end[3:], v.Serial)
	copy(end[7:], "NO NAME    ")
	if v.Label != "" {
		copy(end[7:], labelField(v.Label))
	}
	copy(end[18:], fmt.Sprintf("FAT%d   ", f.bits))
	end[26], end[27] = 0xeb, 0xfe // a machine that starts from it stops here
	b[510], b[511] = 0x55, 0xaa
	return b
}

// boot32 fills what the boot sector of FAT32 has and others have not.
func (f *writer) boot32(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b[36:], uint32(f.length/f.sector))
	le.PutUint32(b[44:], rootCluster)
	le.PutUint16(b[48:], infoSector)
	le.PutUint16(b[50:], spareSector)
}
