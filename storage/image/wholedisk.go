package image

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"ironroot/internal/ondisk"
)

// NoDiskError means that an image for a whole disk cannot boot: it has no boot sector, or its GPT is for another sector
// size.
type NoDiskError struct {
	URL    string // of the image, without credentials and query
	Reason string // what the image begins with instead
}

func (e *NoDiskError) Error() string {
	return fmt.Sprintf("image %s cannot be written to a whole disk: %s", e.URL, e.Reason)
}

// contents lists the kinds of file that an image can be by mistake, with their signatures. Boot sectors are not among
// them: FAT and NTFS can boot without a partition table.
var contents = []struct {
	off   int
	magic string
	name  string
}{
	{257, "ustar", "a tar archive"},
	{0, "PK\x03\x04", "a zip archive"},
	{0, "070701", "a cpio archive"},
	{0, "070702", "a cpio archive"},
	{0, "070707", "a cpio archive"},
	{0, "7z\xbc\xaf\x27\x1c", "a 7z archive"},
	{0, "Rar!\x1a\x07", "a rar archive"},
	{0, "!<arch>\n", "an ar archive or a Debian package"},
	{0, "\xed\xab\xee\xdb", "an RPM package"},
	{0, "MSWIM\x00\x00\x00", "a Windows image (WIM)"},
	{0, "LZIP", "a file compressed by lzip"},
	{0, "\x89LZO\x00\r\n\x1a\n", "a file compressed by lzop"},
	{0, "\x1f\x9d", "a file compressed by compress"},
	{0, "\x7fELF", "a program (ELF)"},
	{0, "<!DOCTYPE", "an HTML document"},
	{0, "<html", "an HTML document"},
	{0, "hsqs", "a squashfs file system"},
	{0x438, "\x53\xef", "an ext2, ext3 or ext4 file system"},
	{0, "XFSB", "an XFS file system"},
	{0x10040, "_BHRfS_M", "a btrfs file system"},
	{0x400, "\x10\x20\xf5\xf2", "an F2FS file system"},
	{0x400, "\xe2\xe1\xf5\xe0", "an EROFS file system"},
	{0x8001, "CD001", "an ISO 9660 file system"},
	{0x200, "LABELONE", "an LVM physical volume"},
	{0, "LUKS\xba\xbe", "a LUKS volume"},
	{0xff6, "SWAPSPACE2", "swap space"},
}

// sectorSizes are the sizes in bytes of the sectors of disks.
var sectorSizes = []int{512, 1024, 2048, 4096}

// checkDisk returns a *NoDiskError if no firmware can boot an image from url on a disk with sectors of sector bytes:
// its first sector has no boot signature, its protective MBR has a GPT for another sector size only, or its MBR has
// protective entries but none that starts at LBA 1: kernels find no partition then. It accepts partitions, file systems
// and boot code without a table. head is the image's first MiB or less.
func checkDisk(url string, head []byte, sector int64) error {
	if len(head) < 512 || sector == 0 {
		return nil // the rest has not arrived, or no disk is written to
	}
	if !at(510, "\x55\xaa")(head) {
		return &NoDiskError{url, "it has no partition table, but " + describe(head)}
	}
	if first, ok := protectiveStart(head); ok && first != 1 {
		return &NoDiskError{url, fmt.Sprintf("the protective entry of its MBR starts at sector %d, want 1", first)}
	}
	if !onlyProtective(head) || int64(len(head)) < sector+8 || at(int(sector), "EFI PART")(head) {
		return nil
	}
	for _, other := range sectorSizes {
		if at(other, "EFI PART")(head) {
			return &NoDiskError{url, fmt.Sprintf(
				"its GPT is for sectors of %d bytes, those of the disk have %d", other, sector)}
		}
	}
	return nil
}

// describe returns what an image without a partition table is.
func describe(head []byte) string {
	for _, c := range contents {
		if at(c.off, c.magic)(head) {
			return "is " + c.name
		}
	}
	if found := detect(head); len(found) > 0 {
		return fmt.Sprintf("is a file of format %s, which was declared as raw", found[0])
	}
	if len(bytes.Trim(head, "\x00")) == 0 {
		return fmt.Sprintf("begins with %d zeros", len(head))
	}
	return "is of no known format"
}

// onlyProtective reports whether all entries of an MBR that are used are those that protect a GPT.
func onlyProtective(head []byte) bool {
	protective := false
	for _, entry := range ondisk.Decode[ondisk.MBR](head, binary.LittleEndian).Entries {
		switch entry.Type {
		case 0:
		case 0xee:
			protective = true
		default:
			return false
		}
	}
	return protective
}

// protectiveStart returns the first sector of the entry of an MBR that protects a GPT. Of several, one that starts at
// sector 1 counts.
func protectiveStart(head []byte) (first uint32, ok bool) {
	for _, entry := range ondisk.Decode[ondisk.MBR](head, binary.LittleEndian).Entries {
		isEntry := entry.Type == 0xee && entry.Status&0x7f == 0 && entry.Sectors > 0 // not boot code
		if isEntry && (!ok || entry.Start == 1) {
			first, ok = entry.Start, true
		}
	}
	return first, ok
}
