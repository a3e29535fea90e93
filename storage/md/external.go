package md

import (
	"errors"
	"fmt"
	"io"
)

// External is a format of RAID metadata that firmware or a controller writes, and that is no superblock of md. The
// kernel needs mdadm to run such arrays ("external metadata"). This package identifies the metadata, and reads whether
// they list the disk that they are on.
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

// Membership describes what external metadata say about the disk that they are on.
type Membership struct {
	Format External // "" if there are none
	// Reason says why the disk is not active: damaged metadata, a spare, a failed disk or one that is not listed.
	Reason string
}

// IsActive reports whether there are valid metadata that list the disk as an active member of an array.
func (m Membership) IsActive() bool { return m.Format != "" && m.Reason == "" }

// FindExternal returns the format of external metadata on a disk of size bytes with sectors of sector bytes, and "" if
// there are none. IMSM has its anchor in the last sector but one, DDF in the last 512 bytes of the disk.
func FindExternal(r io.ReaderAt, size, sector int64) (External, error) {
	for _, format := range []External{IMSM, DDF} {
		found, err := format.isOn(r, size, sector)
		if err != nil {
			return "", err
		}
		if found {
			return format, nil
		}
	}
	return "", nil
}

// FindMembership returns what external metadata say about a disk of size bytes with sectors of sector bytes. IMSM names
// disks by their serial numbers; serials has every known one of this disk. DDF also records on each disk which of the
// listed ones it is. A disk can have metadata of both formats, for instance old ones: those that list it as an active
// member have precedence.
func FindMembership(r io.ReaderAt, size, sector int64, serials []string) (Membership, error) {
	var first Membership
	for _, format := range []External{IMSM, DDF} {
		found, err := format.isOn(r, size, sector)
		if err != nil {
			return Membership{}, err
		}
		if !found {
			continue
		}
		m := Membership{Format: format}
		switch format {
		case IMSM:
			m.Reason, err = checkIMSM(r, size, sector, serials)
		case DDF:
			m.Reason, err = checkDDF(r, size)
		}
		if err != nil {
			return Membership{}, err
		}
		if m.IsActive() {
			return m, nil
		}
		if first.Format == "" {
			first = m
		}
	}
	return first, nil
}

// isOn reports whether a disk has the anchor of the format.
func (e External) isOn(r io.ReaderAt, size, sector int64) (bool, error) {
	if size < max(2*sector, ddfBlock) {
		return false, nil
	}
	switch e {
	case IMSM:
		anchor, err := readBlocks(r, size-2*sector, int64(len(imsmSignature)))
		return string(anchor) == imsmSignature, err
	case DDF:
		anchor, err := readBlocks(r, size-ddfBlock, ddfBlock)
		return err == nil && checkDDFBlock(anchor, ddfHeaderMagic) == nil, err
	}
	return false, nil
}

// readBlocks reads bytes of a disk. Bytes beyond the end of the disk are zero.
func readBlocks(r io.ReaderAt, offset, length int64) ([]byte, error) {
	data := make([]byte, length)
	n, err := r.ReadAt(data, offset)
	if n == len(data) || errors.Is(err, io.EOF) {
		return data, nil
	}
	return nil, fmt.Errorf("%d bytes at byte %d: %w", length, offset, err)
}
