package md

import (
	"bytes"
	"encoding/binary"
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

// checkIMSM returns "" if the metadata of a disk with the anchor of IMSM are valid and list one of the serial numbers
// as an active member, otherwise the reason. It returns an error if the disk cannot be read.
func checkIMSM(r io.ReaderAt, size, sector int64, serials []string) (reason string, err error) {
	data, err := readBlocks(r, size-2*sector, sector)
	if err != nil {
		return "", err
	}
	super := ondisk.Decode[imsmSuper](data, binary.LittleEndian)
	if super.Size < imsmHeaderBytes || super.Size > imsmMaxBytes {
		return fmt.Sprintf("got metadata of %d bytes, want %d to %d", super.Size, imsmHeaderBytes, imsmMaxBytes), nil
	}
	if more := (int64(super.Size) - 1) / sector * sector; more > 0 {
		start := size - 2*sector - more
		if start < 0 {
			return fmt.Sprintf("got metadata of %d bytes on a disk of %d bytes", super.Size, size), nil
		}
		rest, err := readBlocks(r, start, more)
		if err != nil {
			return "", err
		}
		data = append(data, rest...)
	}
	data = data[:super.Size]
	if got, want := super.Checksum, imsmChecksum(data); got != want {
		return fmt.Sprintf("got checksum %08x, want %08x", got, want), nil
	}
	if end := imsmHeaderBytes + imsmDiskBytes*int(super.Disks); end > len(data) {
		return fmt.Sprintf("got metadata of %d bytes, want at least %d for %d disks", super.Size, end, super.Disks), nil
	}
	return findIMSMDisk(data[imsmHeaderBytes:], super, serials), nil
}

// findIMSMDisk returns "" if a table of disks lists one of the serial numbers as an active member, otherwise the
// reason.
func findIMSMDisk(table []byte, super imsmSuper, serials []string) (reason string) {
	var names []string
	for _, serial := range serials {
		if name := imsmSerial(serial); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "serial number of the disk is unknown"
	}
	reason = fmt.Sprintf("serial number %s is not among the %d listed disks", strings.Join(names, " or "), super.Disks)
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
			return ""
		case entry.Status&imsmSpare != 0:
			what = "a spare"
		default:
			what = "member of no volume"
		}
		reason = fmt.Sprintf("disk %s is listed as %s (status %#x)", serial, what, entry.Status)
	}
	return reason
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
