package md

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math"
	"slices"

	"ironroot/internal/ondisk"
)

// The metadata of DDF as in SNIA DDF 2.0 and mdadm's super-ddf.c, all numbers in big endian. The anchor names two
// copies of the metadata. A copy consists of a header and sections, in blocks of 512 bytes.
const (
	ddfBlock        = 512
	ddfMaxBlocks    = 1024       // of a section: mdadm reads no larger one
	ddfHeaderMagic  = 0xde11de11 // DDF_Header
	ddfDisksMagic   = 0x22222222 // Physical_Disk_Records
	ddfVirtualMagic = 0xdddddddd // Virtual_Disk_Records
	ddfDiskMagic    = 0x33333333 // Physical_Disk_Data
	ddfPrimary      = 1
	ddfSecondary    = 2
	ddfRecordBytes  = 64 // size of the header of a section, and of each record
	ddfUnused       = math.MaxUint32
)

// Bits of PD_Type and PD_State.
const (
	ddfActive     = 1 << 1 // member of a virtual disk
	ddfSpare      = 1<<2 | 1<<3
	ddfOnline     = 1 << 0
	ddfFailed     = 1 << 1
	ddfRebuilding = 1 << 2
	ddfMissing    = 1 << 6
)

// ddfHeader is the anchor, or the header of a copy.
type ddfHeader struct {
	Magic, CRC                       uint32
	GUID                             [24]byte
	Revision                         [8]byte
	Sequence, Time                   uint32
	Open                             uint8
	_                                [47]byte
	Primary, Secondary               uint64 // first blocks of the copies
	Type                             uint8
	_                                [3]byte
	WorkspaceLength                  uint32
	Workspace                        uint64
	_                                [64]byte
	Controllers, Disks, VirtualDisks ddfSection
	Configurations, Disk             ddfSection
}

// start returns the first block of the copy that has the header.
func (h ddfHeader) start() uint64 {
	if h.Type == ddfSecondary {
		return h.Secondary
	}
	return h.Primary
}

// ddfSection is the place of a section after the header of its copy, in blocks.
type ddfSection struct{ Offset, Length uint32 }

// ddfDisk is Physical_Disk_Data: it identifies the disk that it is on.
type ddfDisk struct {
	Magic, CRC uint32
	GUID       [24]byte
	Reference  uint32
}

// ddfRecord is an entry of Physical_Disk_Records.
type ddfRecord struct {
	GUID        [24]byte
	Reference   uint32
	Type, State uint16
}

// checkDDF returns "" if the metadata of a disk with the anchor of DDF are valid and list the disk as an active member,
// otherwise the reason. A damaged copy is ignored if the other one is valid. It returns an error if the anchor cannot
// be read.
func checkDDF(r io.ReaderAt, size int64) (reason string, err error) {
	data, err := readBlocks(r, size-ddfBlock, ddfBlock)
	if err != nil {
		return "", err
	}
	copies, damaged := readDDFHeaders(r, size, ondisk.Decode[ddfHeader](data, binary.BigEndian))
	for _, header := range copies {
		reason, err := checkDDFCopy(r, size, header)
		if err == nil {
			return reason, nil
		}
		damaged = errors.Join(damaged, fmt.Errorf("copy at block %d: %w", header.start(), err))
	}
	return damaged.Error(), nil
}

// readDDFHeaders returns the valid headers that an anchor names, the one that mdadm prefers first, and what is wrong
// with the others.
func readDDFHeaders(r io.ReaderAt, size int64, anchor ddfHeader) ([]ddfHeader, error) {
	primary, primaryErr := readDDFHeader(r, size, anchor, ddfPrimary)
	secondary, secondaryErr := readDDFHeader(r, size, anchor, ddfSecondary)
	damaged := errors.Join(primaryErr, secondaryErr)
	switch {
	case primaryErr != nil && secondaryErr != nil:
		return nil, damaged
	case primaryErr != nil:
		return []ddfHeader{secondary}, damaged
	case secondaryErr != nil:
		return []ddfHeader{primary}, damaged
	case secondary.Open == 0 && secondary.Sequence > primary.Sequence,
		secondary.Open == 0 && secondary.Sequence == primary.Sequence && primary.Open != 0:
		return []ddfHeader{secondary, primary}, nil
	}
	return []ddfHeader{primary, secondary}, nil
}

// readDDFHeader reads the header of a copy and compares it with the anchor.
func readDDFHeader(r io.ReaderAt, size int64, anchor ddfHeader, kind uint8) (ddfHeader, error) {
	anchor.Type = kind
	data, err := readDDF(r, size, anchor.start(), 1, ddfHeaderMagic)
	if err != nil {
		return ddfHeader{}, fmt.Errorf("header: %w", err)
	}
	header := ondisk.Decode[ddfHeader](data, binary.BigEndian)
	if header.Type != kind || header.GUID != anchor.GUID || header.Revision != anchor.Revision ||
		header.Primary != anchor.Primary || header.Secondary != anchor.Secondary {
		return ddfHeader{}, fmt.Errorf("header at block %d: differs from the anchor", anchor.start())
	}
	return header, nil
}

// checkDDFCopy returns "" if a copy lists the disk as an active member, otherwise the reason. It returns an error if
// the copy is damaged or cannot be read.
func checkDDFCopy(r io.ReaderAt, size int64, header ddfHeader) (reason string, err error) {
	read := func(s ddfSection, blocks, magic uint32) []byte {
		data, readErr := readDDF(r, size, header.start()+uint64(s.Offset), blocks, magic)
		err = errors.Join(err, readErr)
		return data
	}
	data := read(header.Disk, 1, ddfDiskMagic)
	disks := read(header.Disks, header.Disks.Length, ddfDisksMagic)
	virtual := read(header.VirtualDisks, header.VirtualDisks.Length, ddfVirtualMagic)
	if err != nil {
		return "", err
	}
	if reason := findDDFDisk(ondisk.Decode[ddfDisk](data, binary.BigEndian), disks); reason != "" {
		return reason, nil
	}
	for record := range ddfRecords(virtual) {
		if !slices.Contains([]byte{0, ' ', 0xff}, record[0]) { // the GUID of a virtual disk begins with none of these
			return "", nil
		}
	}
	return "no virtual disk listed", nil // mdadm does not change the disks of one that it deletes
}

// ddfRecords yields the records of a section.
func ddfRecords(section []byte) iter.Seq[[]byte] {
	return slices.Chunk(section[ddfRecordBytes:], ddfRecordBytes)
}

// findDDFDisk returns "" if a record lists the disk as an active member, otherwise the reason. mdadm compares the GUIDs
// of disks. The configurations of virtual disks name disks by their references.
func findDDFDisk(disk ddfDisk, section []byte) (reason string) {
	used := 0
	for data := range ddfRecords(section) {
		record := ondisk.Decode[ddfRecord](data, binary.BigEndian)
		if record.Reference == ddfUnused {
			continue
		}
		used++
		if record.GUID != disk.GUID && record.Reference != disk.Reference {
			continue
		}
		what := ""
		switch {
		case record.State&ddfFailed != 0:
			what = "failed"
		case record.State&ddfMissing != 0:
			what = "missing"
		case record.Type&ddfActive == 0 && record.Type&ddfSpare != 0:
			what = "a spare"
		case record.Type&ddfActive == 0:
			what = "member of no virtual disk"
		case record.State&(ddfOnline|ddfRebuilding) == 0:
			what = "offline"
		default:
			return ""
		}
		reason = fmt.Sprintf("disk %08x is listed as %s (type %#x, state %#x)",
			record.Reference, what, record.Type, record.State)
	}
	if reason == "" {
		return fmt.Sprintf("disk %08x is not among the %d listed disks", disk.Reference, used)
	}
	return reason
}

// readDDF reads a structure at a block. It returns an error if the magic number or the checksum is wrong.
func readDDF(r io.ReaderAt, size int64, block uint64, blocks, magic uint32) ([]byte, error) {
	last := uint64(size / ddfBlock)
	if blocks == 0 || blocks > ddfMaxBlocks || block >= last || uint64(blocks) > last-block {
		return nil, fmt.Errorf("got %d blocks at block %d, want 1 to %d on a disk of %d", blocks, block, ddfMaxBlocks,
			last)
	}
	data, err := readBlocks(r, int64(block)*ddfBlock, int64(blocks)*ddfBlock)
	if err != nil {
		return nil, err
	}
	if err := checkDDFBlock(data, magic); err != nil {
		return nil, fmt.Errorf("%d blocks at block %d: %w", blocks, block, err)
	}
	return data, nil
}

// checkDDFBlock returns an error unless a structure has the magic number and a valid checksum. The magic number of four
// bytes alone can be in the data of a tenant by chance. The checksum is the CRC-32 of the structure with its own field
// as ones, as mdadm computes it: without the inversions before and after, which [crc32.Update] adds.
func checkDDFBlock(data []byte, magic uint32) error {
	if got := binary.BigEndian.Uint32(data); got != magic {
		return fmt.Errorf("got magic number %08x, want %08x", got, magic)
	}
	sum := ^uint32(0)
	for _, part := range [][]byte{data[:4], {0xff, 0xff, 0xff, 0xff}, data[8:]} {
		sum = crc32.Update(sum, crc32.IEEETable, part)
	}
	if got := binary.BigEndian.Uint32(data[4:]); got != ^sum {
		return fmt.Errorf("got checksum %08x, want %08x", got, ^sum)
	}
	return nil
}
