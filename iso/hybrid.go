package iso

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"ironroot/internal/ondisk"
)

const sector = 512 // bytes of a sector of disks, as opposed to a block of CDs

const (
	typeESP  = 0xef
	perBlock = blockSize / sector

	// isohdpfx contains the first sector of isolinux.bin behind its code.
	codeSize = 432
)

// makeHybrid makes the image bootable as a disk: it writes a master boot record into the image's unused first sector
// and pads the image to whole cylinders of 1 MiB, which some BIOSes require.
func makeHybrid(f *os.File, code []byte, espSize int64) error {
	if len(code) != codeSize {
		return fmt.Errorf("code of the master boot record has %d bytes, want %d", len(code), codeSize)
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
	le := binary.LittleEndian
	record := ondisk.MBR{DiskID: crc32.ChecksumIEEE(le.AppendUint32(nil, v.blocks)), Signature: 0xaa55}
	copy(record.Code[:], code)
	le.PutUint64(record.Code[codeSize:], uint64(isolinux)*perBlock)
	// The first entry is the active one, which BIOSes require. It covers the whole image and overlaps the second entry.
	// Because of its type 0, operating systems and UEFI firmware ignore it.
	record.Entries[0] = newBootEntry(0x80, 0, 0, uint32(size/sector))
	record.Entries[1] = newBootEntry(0, typeESP, esp*perBlock, uint32(espSize/sector))
	_, err = f.WriteAt(ondisk.Append(nil, le, record), 0)
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

// newBootEntry returns an entry whose cylinder, head and sector numbers mean that the 32-bit numbers apply.
func newBootEntry(status, kind uint8, start, sectors uint32) ondisk.MBREntry {
	none := [3]byte{0xfe, 0xff, 0xff}
	return ondisk.MBREntry{Status: status, StartCHS: none, Type: kind, EndCHS: none, Start: start, Sectors: sectors}
}
