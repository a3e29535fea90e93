package iso

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
)

// Offsets in the master boot record that isohdpfx expects.
const (
	mbrCodeSize  = 432
	mbrIsolinux  = 432 // 64 bits: first 512-byte sector of isolinux.bin
	mbrDiskID    = 440
	mbrTable     = 446
	mbrEntrySize = 16
	typeESP      = 0xef
	perBlock     = blockSize / sector
)

// makeHybrid makes the image bootable as a disk: it writes a master boot record into the image's unused first sector
// and pads the image to whole cylinders of 1 MiB, which some BIOSes require.
func makeHybrid(f *os.File, code []byte, espSize int64) error {
	if len(code) != mbrCodeSize {
		return fmt.Errorf("code of the master boot record has %d bytes, want %d", len(code), mbrCodeSize)
	}
	v, _, err := readVolume(f)
	if err != nil {
		return err
	}
	isolinux, esp, err := bootImages(f)
	if err != nil {
		return err
	}
	const cylinder = 1 << 20
	size := (int64(v.blocks)*blockSize + cylinder - 1) / cylinder * cylinder
	// Truncated first: the library leaves bytes behind the end of the volume.
	if err := errors.Join(f.Truncate(int64(v.blocks)*blockSize), f.Truncate(size)); err != nil {
		return err
	}
	mbr := make([]byte, sector)
	copy(mbr, code)
	binary.LittleEndian.PutUint64(mbr[mbrIsolinux:], uint64(isolinux)*perBlock)
	binary.LittleEndian.PutUint32(mbr[mbrDiskID:], crc32.ChecksumIEEE(binary.LittleEndian.AppendUint32(nil, v.blocks)))
	// The first entry is the active one that BIOSes look for. It spans the whole image and so overlaps the second one:
	// of type 0 it is no partition for operating systems and UEFI firmware.
	putPartition(mbr[mbrTable:], true, 0, 0, uint32(size/sector))
	putPartition(mbr[mbrTable+mbrEntrySize:], false, typeESP, esp*perBlock, uint32(espSize/sector))
	mbr[510], mbr[511] = 0x55, 0xaa
	_, err = f.WriteAt(mbr, 0)
	return err
}

// bootImages returns the blocks of the two entries of the El Torito catalog.
func bootImages(f *os.File) (bios, uefi uint32, err error) {
	block := make([]byte, blockSize)
	if _, err := f.ReadAt(block, bootBlock*blockSize); err != nil {
		return 0, 0, fmt.Errorf("read boot record: %w", err)
	}
	if block[0] != 0 || string(block[1:6]) != "CD001" || string(block[7:30]) != "EL TORITO SPECIFICATION" {
		return 0, 0, errors.New("sector 17 is not an El Torito boot record")
	}
	catalog := int64(binary.LittleEndian.Uint32(block[0x47:]))
	if _, err := f.ReadAt(block, catalog*blockSize); err != nil {
		return 0, 0, fmt.Errorf("read boot catalog: %w", err)
	}
	const (
		entry    = 32
		lba      = 8
		bootable = 0x88
		lastHead = 0x91
		efi      = 0xef
	)
	first, header, second := block[entry:2*entry], block[2*entry:3*entry], block[3*entry:4*entry]
	if block[0] != 1 || first[0] != bootable || header[0] != lastHead || header[1] != efi || second[0] != bootable {
		return 0, 0, errors.New("boot catalog lacks the BIOS or the UEFI entry")
	}
	return binary.LittleEndian.Uint32(first[lba:]), binary.LittleEndian.Uint32(second[lba:]), nil
}

// putPartition writes one entry of the partition table, with cylinders, heads and sectors that say "use the 32-bit
// numbers".
func putPartition(b []byte, active bool, kind byte, start, sectors uint32) {
	if active {
		b[0] = 0x80
	}
	copy(b[1:], []byte{0xfe, 0xff, 0xff})
	b[4] = kind
	copy(b[5:], []byte{0xfe, 0xff, 0xff})
	binary.LittleEndian.PutUint32(b[8:], start)
	binary.LittleEndian.PutUint32(b[12:], sectors)
}
