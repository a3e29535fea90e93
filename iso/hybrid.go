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
// and pads the image to whole cylinders of 1 MiB, which some BIOSes require. Without code, only UEFI boots the disk.
func makeHybrid(f *os.File, code []byte, espSize int64) error {
	if code != nil && len(code) != codeSize {
		return fmt.Errorf("code of the master boot record has %d bytes, want %d", len(code), codeSize)
	}
	v, _, err := readVolume(f)
	if err != nil {
		return err
	}
	catalog, err := readCatalog(f)
	if err != nil {
		return err
	}
	var isolinux, esp uint32
	if code == nil {
		esp, err = catalog.uefiImage()
	} else {
		isolinux, esp, err = catalog.bothImages()
	}
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
	espEntry := 0
	if code != nil {
		espEntry = 1
		copy(record.Code[:], code)
		le.PutUint64(record.Code[codeSize:], uint64(isolinux)*perBlock)
		// The first entry is the active one, which BIOSes require. It covers the whole image and overlaps the second
		// entry. Because of its type 0, operating systems and UEFI firmware ignore it.
		record.Entries[0] = newBootEntry(0x80, 0, 0, uint32(size/sector))
	}
	record.Entries[espEntry] = newBootEntry(0, typeESP, esp*perBlock, uint32(espSize/sector))
	_, err = f.WriteAt(ondisk.Append(nil, le, record), 0)
	return err
}

// catalog is the first part of the El Torito catalog.
type catalog []byte

// Offsets and values in the catalog (El Torito, section 2).
const (
	entrySize   = 32
	platformID  = 1 // in the validation entry and in a section header
	loadBlock   = 8 // in an entry
	bootable    = 0x88
	lastHeader  = 0x91
	platformEFI = 0xef
)

func readCatalog(f *os.File) (catalog, error) {
	block := make([]byte, blockSize)
	if _, err := f.ReadAt(block, bootBlock*blockSize); err != nil {
		return nil, fmt.Errorf("read boot record: %w", err)
	}
	if block[0] != 0 || string(block[1:6]) != "CD001" || string(block[7:30]) != "EL TORITO SPECIFICATION" {
		return nil, errors.New("sector 17 is not an El Torito boot record")
	}
	start := int64(binary.LittleEndian.Uint32(block[0x47:]))
	if _, err := f.ReadAt(block, start*blockSize); err != nil {
		return nil, fmt.Errorf("read boot catalog: %w", err)
	}
	return block, nil
}

func (c catalog) entry(n int) []byte { return c[n*entrySize : (n+1)*entrySize] }

// bothImages returns the blocks of the two entries of a catalog for BIOS and UEFI.
func (c catalog) bothImages() (bios, uefi uint32, err error) {
	first, header, second := c.entry(1), c.entry(2), c.entry(3)
	if c[0] != 1 || first[0] != bootable || header[0] != lastHeader || header[platformID] != platformEFI ||
		second[0] != bootable {
		return 0, 0, errors.New("boot catalog lacks the BIOS or the UEFI entry")
	}
	return binary.LittleEndian.Uint32(first[loadBlock:]), binary.LittleEndian.Uint32(second[loadBlock:]), nil
}

// uefiImage returns the block of the only entry of a catalog for UEFI.
func (c catalog) uefiImage() (uint32, error) {
	first := c.entry(1)
	if c[0] != 1 || c[platformID] != platformEFI || first[0] != bootable || c.entry(2)[0] != 0 {
		return 0, errors.New("boot catalog has other entries than the one for UEFI")
	}
	return binary.LittleEndian.Uint32(first[loadBlock:]), nil
}

// newBootEntry returns an entry whose cylinder, head and sector numbers mean that the 32-bit numbers apply.
func newBootEntry(status, kind uint8, start, sectors uint32) ondisk.MBREntry {
	none := [3]byte{0xfe, 0xff, 0xff}
	return ondisk.MBREntry{Status: status, StartCHS: none, Type: kind, EndCHS: none, Start: start, Sectors: sectors}
}
