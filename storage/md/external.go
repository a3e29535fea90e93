package md

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"ironroot/storage/block"
)

// External is a format of RAID metadata that firmware or a controller writes, and that is no superblock of md. The
// kernel needs mdadm to run such arrays ("external metadata"). This package identifies them only.
type External string

// The formats that mdadm calls imsm and ddf.
const (
	// IMSM is the format of Intel Matrix Storage Manager, which Intel RST and VROC use.
	IMSM External = "imsm"
	// DDF is the Common RAID Disk Data Format of SNIA.
	DDF External = "ddf"
)

// String names the format and those who use it.
func (e External) String() string {
	switch e {
	case IMSM:
		return "Intel RST or VROC (imsm)"
	case DDF:
		return "SNIA DDF (ddf)"
	}
	return string(e)
}

const (
	imsmSignature = "Intel Raid ISM Cfg Sig. " // MPB_SIGNATURE in mdadm's super-intel.c
	ddfMagic      = 0xde11de11                 // DDF_Header signature, SNIA DDF 2.0, table "DDF Header"
	ddfLength     = 512
)

// ReadExternal returns the format of external metadata on a disk or image file, and "" if there are none.
func ReadExternal(ctx context.Context, path string) (External, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read external RAID metadata: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	size, sector, err := block.Geometry(f)
	if err != nil {
		return "", fmt.Errorf("read external RAID metadata of %s: %w", path, err)
	}
	found, err := FindExternal(f, size, max(sector, 512))
	if err != nil {
		return "", fmt.Errorf("read external RAID metadata of %s: %w", path, err)
	}
	return found, nil
}

// FindExternal returns the format of external metadata on a disk of size bytes with sectors of sector bytes, and "" if
// there are none. IMSM has its anchor in the last sector but one, DDF in the last 512 bytes of the disk.
func FindExternal(r io.ReaderAt, size, sector int64) (External, error) {
	if size < max(2*sector, ddfLength) {
		return "", nil
	}
	anchor := make([]byte, ddfLength)
	read := func(offset int64) error {
		n, err := r.ReadAt(anchor, offset)
		if n == len(anchor) || errors.Is(err, io.EOF) {
			clear(anchor[n:])
			return nil
		}
		return fmt.Errorf("%d bytes at byte %d: %w", len(anchor), offset, err)
	}
	if err := read(size - 2*sector); err != nil {
		return "", err
	}
	if string(anchor[:len(imsmSignature)]) == imsmSignature {
		return IMSM, nil
	}
	if err := read(size - ddfLength); err != nil {
		return "", err
	}
	if isDDF(anchor) {
		return DDF, nil
	}
	return "", nil
}

// isDDF reports whether a block of 512 bytes is a DDF header with a valid checksum. The magic number of four bytes
// alone can be in the data of a tenant by chance. The checksum is the CRC-32 of the header with its own field as ones,
// as mdadm computes it: without the inversions before and after, which [crc32.Update] adds.
func isDDF(header []byte) bool {
	if binary.BigEndian.Uint32(header) != ddfMagic {
		return false
	}
	sum := ^uint32(0)
	for _, part := range [][]byte{header[:4], {0xff, 0xff, 0xff, 0xff}, header[8:]} {
		sum = crc32.Update(sum, crc32.IEEETable, part)
	}
	return binary.BigEndian.Uint32(header[4:]) == ^sum
}
