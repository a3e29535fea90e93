package image

import (
	"encoding/binary"
	"fmt"

	"ironroot/internal/ondisk"
	"ironroot/storage/image/qcow2"
)

// checkQcow2 refuses an image whose header is invalid or refers to other files.
func checkQcow2(head []byte) error {
	_, err := qcow2.ParseHeader(head)
	return qcow2Refusal(err)
}

// checkQED refuses all images.
func checkQED([]byte) error { return security("qed", "images of format qed are never allowed") }

// checkLUKS refuses all versions but 1.
func checkLUKS(head []byte) error {
	if len(head) < 8 || binary.BigEndian.Uint16(head[6:]) != 1 {
		return security("luks", "luks image: the version is not 1")
	}
	return nil
}

// detectISO reports whether a file is an ISO 9660 or UDF file system.
func detectISO(head []byte) bool {
	return at(0x8001, "CD001")(head) || at(0x8001, "NSR02")(head) || at(0x8001, "NSR03")(head)
}

// detectGPT reports whether a file begins with an MBR, protective or not.
func detectGPT(head []byte) bool { return at(510, "\x55\xaa")(head) && !isFAT(head) }

// isFAT reports whether a sector that ends like an MBR is the boot sector of a FAT file system.
func isFAT(head []byte) bool {
	jump := head[0] == 0xe9 || head[0] == 0xeb && head[2] == 0x90
	sector := binary.LittleEndian.Uint16(head[11:])
	return jump && sector >= 512 && sector <= 4096 && sector&(sector-1) == 0 &&
		(head[16] == 1 || head[16] == 2) && head[21] >= 0xf0
}

// checkGPT refuses a suspicious partition table.
func checkGPT(head []byte) error {
	if reason := checkMBR(head); reason != "" {
		return security(formatGPT, "partition table of the image: %s", reason)
	}
	return nil
}

// checkMBR returns what is suspicious about the partition table in the first sector.
func checkMBR(head []byte) string {
	partitions := 0
	entries := ondisk.Decode[ondisk.MBR](head, binary.LittleEndian).Entries
	for i, entry := range entries {
		if entry.Type == 0 {
			continue
		}
		partitions++
		if entry.Status != 0 && entry.Status != 0x80 {
			return fmt.Sprintf("entry %d has a boot flag that is neither 0 nor 0x80", i+1)
		}
		if entry.Type != 0xee {
			continue
		}
		if i != 0 {
			return fmt.Sprintf("the protective entry is entry %d, want 1", i+1)
		}
		if entry.Start != 1 { // kernels and firmware ignore its CHS address, and not all tools write the same
			return fmt.Sprintf("the protective entry begins at block %d, want 1", entry.Start)
		}
		if [3]ondisk.MBREntry(entries[1:]) != [3]ondisk.MBREntry{} {
			return "there are more entries beside the protective one"
		}
	}
	if partitions == 0 {
		return "it has no partition"
	}
	return ""
}

// The footer of a VHD, and its copy at the beginning of a dynamic one (Microsoft, "Virtual Hard Disk Image Format
// Specification" 1.0, "Hard Disk Footer Format").
const (
	vhdCookie     = "conectix"
	vhdFooterSize = 512 // bytes
)

// fixedVHD is the format of a raw image that is followed by the footer of a VHD. Without the footer, programs take it
// for what it begins with.
func fixedVHD() format {
	vhd := findFormat("vhd")
	vhd.refusal = "cannot be written to a disk, and this one ends with the footer of a fixed VHD: convert it by " +
		vhd.conversion() + ", or declare it as raw to have it copied as it is"
	return vhd
}

// endsFixedVHD reports whether a file with these last bytes ends with the footer of a VHD. Versions before Virtual PC
// 2004 wrote footers of 511 bytes.
func endsFixedVHD(end []byte) bool {
	for _, size := range []int{vhdFooterSize, vhdFooterSize - 1} {
		if off := len(end) - size; off >= 0 && at(off, vhdCookie)(end) {
			return true
		}
	}
	return false
}
