package fat

import "fmt"

// boot returns the boot sector.
func (f *writer) boot(v Volume) []byte {
	p := parameters{
		Jump: [3]byte{0xeb, 0x3c, 0x90}, OEMName: [8]byte([]byte("MSDOS5.0")), SectorSize: uint16(f.sector),
		SectorsPerCluster: uint8(f.cluster / f.sector), ReservedSectors: uint16(f.reserved / f.sector), FATs: copies,
		Media: fixedMedia, SectorsPerTrack: 32, Heads: 64, // unused, but they must not be 0
	}
	total := (f.data + int64(f.clusters)*f.cluster) / f.sector
	if total < 1<<16 && f.bits != 32 {
		p.Sectors16 = uint16(total)
	} else {
		p.Sectors32 = uint32(total)
	}
	id := identity{
		Drive: fixedDisk, Signature: extended, Serial: v.Serial, Label: [11]byte([]byte("NO NAME    ")),
		Type: [8]byte(fmt.Appendf(nil, "FAT%d   ", f.bits)),
	}
	if v.Label != "" {
		id.Label = labelField(v.Label)
	}
	// A machine that boots from this volume stops in this loop.
	loop := []byte{0xeb, 0xfe}
	if f.bits == 32 {
		p.Jump[1] = 0x58
		b := bootSector32{Parameters: p, Identity: id, Signature: bootSignature, Parameters32: parameters32{
			FATSectors32: uint32(f.length / f.sector), RootCluster: rootCluster, InfoSector: infoAt,
			BackupSector: backupAt,
		}}
		copy(b.Code[:], loop)
		return encode(b, int(f.sector))
	}
	p.RootEntries, p.FATSectors16 = rootEntries, uint16(f.length/f.sector)
	b := bootSector16{Parameters: p, Identity: id, Signature: bootSignature}
	copy(b.Code[:], loop)
	return encode(b, int(f.sector))
}
