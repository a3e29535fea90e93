package md

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"ironroot/internal/ondisk"
)

// The metadata of IMSM as in mdadm's super-intel.c, all numbers in little endian: a header, the table of disks, the
// volumes and a log of bad blocks. The first sector is the anchor. The other ones precede it on the disk.
const (
	imsmSignature   = "Intel Raid ISM Cfg Sig. " // MPB_SIGNATURE
	imsmHeaderBytes = 216                        // bytes before the table of disks
	imsmDiskBytes   = 48                         // bytes of an entry
	imsmMaxBytes    = 2210 * 512                 // MPB_SECTOR_CNT, the sectors reserved at the end of the disk
)

// Bits of the status in an entry of the table of disks.
const (
	imsmSpare      = 1 << 0
	imsmConfigured = 1 << 1 // member of a volume
	imsmFailed     = 1 << 2
)

// imsmSuper is the beginning of struct imsm_super.
type imsmSuper struct {
	Signature      [32]byte
	Checksum, Size uint32
	_              [16]byte
	Disks, Volumes uint8
}

// imsmDiskEntry is the beginning of struct imsm_disk.
type imsmDiskEntry struct {
	Serial [16]byte
	_      [8]byte
	Status uint32
}

// checkIMSM returns nil if the metadata of a disk with the anchor of IMSM are valid and list one of the serial numbers
// as an active member, and otherwise the reason why not. A disk that cannot be read is the error.
func checkIMSM(r io.ReaderAt, size, sector int64, serials []string) (inactive, err error) {
	data, err := readBlocks(r, size-2*sector, sector)
	if err != nil {
		return nil, err
	}
	super := ondisk.Decode[imsmSuper](data, binary.LittleEndian)
	if super.Size < imsmHeaderBytes || super.Size > imsmMaxBytes {
		return fmt.Errorf("got metadata of %d bytes, want %d to %d", super.Size, imsmHeaderBytes, imsmMaxBytes), nil
	}
	if more := (int64(super.Size) - 1) / sector * sector; more > 0 {
		start := size - 2*sector - more
		if start < 0 {
			return fmt.Errorf("got metadata of %d bytes on a disk of %d bytes", super.Size, size), nil
		}
		rest, err := readBlocks(r, start, more)
		if err != nil {
			return nil, err
		}
		data = append(data, rest...)
	}
	data = data[:super.Size]
	if got, want := super.Checksum, imsmChecksum(data); got != want {
		return fmt.Errorf("got checksum %08x, want %08x", got, want), nil
	}
	if end := imsmHeaderBytes + imsmDiskBytes*int(super.Disks); end > len(data) {
		return fmt.Errorf("got metadata of %d bytes, want at least %d for %d disks", super.Size, end, super.Disks), nil
	}
	return findIMSMDisk(data[imsmHeaderBytes:], super, serials), nil
}

// findIMSMDisk returns nil if a table of disks lists one of the serial numbers as an active member.
func findIMSMDisk(table []byte, super imsmSuper, serials []string) error {
	var names []string
	for _, serial := range serials {
		if name := imsmSerial(serial); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return errors.New("the serial number of this disk is not known")
	}
	inactive := fmt.Errorf("none of the %d disks that they list has the serial number %s", super.Disks,
		strings.Join(names, " or "))
	for i := range int(super.Disks) {
		entry := ondisk.Decode[imsmDiskEntry](table[i*imsmDiskBytes:], binary.LittleEndian)
		serial, _, _ := bytes.Cut(entry.Serial[:], []byte{0})
		if !slices.Contains(names, string(serial)) {
			continue
		}
		what := ""
		switch {
		case entry.Status&imsmFailed != 0:
			what = "failed"
		case entry.Status&imsmConfigured != 0 && super.Volumes > 0: // also if it is marked as a spare, as in mdadm
			return nil
		case entry.Status&imsmSpare != 0:
			what = "a spare"
		default:
			what = "member of no volume"
		}
		inactive = fmt.Errorf("they list disk %s as %s (status %#x)", serial, what, entry.Status)
	}
	return inactive
}

// imsmSerial returns a serial number as the table of disks has it: without spaces and other characters that are not
// printable, with ";" for ":", and at most the last 16 characters.
func imsmSerial(serial string) string {
	var kept []byte
	for _, c := range []byte(serial) {
		switch {
		case c == ':': // in names of disks that are missing
			kept = append(kept, ';')
		case ' ' < c && c < 0x80:
			kept = append(kept, c)
		}
	}
	return string(kept[max(0, len(kept)-len(imsmDiskEntry{}.Serial)):])
}

// imsmChecksum returns the sum of the words without the checksum itself.
func imsmChecksum(data []byte) (sum uint32) {
	const checksumAt = 32
	for i := 0; i+4 <= len(data); i += 4 {
		if i != checksumAt {
			sum += binary.LittleEndian.Uint32(data[i:])
		}
	}
	return sum
}
