package block

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/siderolabs/go-blockdevice/v2/blkid"
)

// Filesystem describes the file system or volume member on a device.
type Filesystem struct {
	Type  string // "ext4", "vfat", "iso9660", "xfs", "linux_raid_member", "gfs2", …; "" if unknown
	Label string
	UUID  string // as blkid prints it: "6f0d…-…" or, for FAT, "1234-ABCD"
}

// Probe recognises the file system or volume member on a device.
func Probe(ctx context.Context, path string) (Filesystem, error) {
	if err := ctx.Err(); err != nil {
		return Filesystem{}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return Filesystem{}, fmt.Errorf("probe: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	size, sector, err := Geometry(f)
	if err != nil {
		return Filesystem{}, fmt.Errorf("probe %s: %w", path, err)
	}
	sector = max(sector, 512)
	if found, err := probeOwn(f, size); err != nil {
		return Filesystem{}, fmt.Errorf("probe %s: %w", path, err)
	} else if found.Type != "" {
		return found, nil
	}
	if size < blkid.MinProbeSize {
		return Filesystem{}, nil
	}
	target := f
	if headers, err := gptHeaders(f, size, sector); err != nil {
		return Filesystem{}, fmt.Errorf("probe %s: %w", path, err)
	} else if len(headers) > 0 {
		if target, err = withoutGPT(f, size, sector, headers); err != nil {
			return Filesystem{}, fmt.Errorf("probe %s: %w", path, err)
		}
		defer target.Close() //nolint:errcheck // a copy in memory
	}
	info, err := blkid.Probe(target, blkid.WithSkipLocking(true), blkid.WithSectorSize(uint(sector)))
	if err != nil {
		return Filesystem{}, fmt.Errorf("probe %s: %w", path, err)
	}
	result := Filesystem{Type: info.Name}
	if info.Label != nil {
		result.Label = *info.Label
	}
	if info.UUID != nil {
		result.UUID = info.UUID.String()
	}
	if result.Type == "vfat" {
		if result.UUID, err = fatSerial(f); err != nil {
			return Filesystem{}, fmt.Errorf("probe %s: %w", path, err)
		}
	}
	return result, nil
}

// SharedFileSystem returns the type of a file system that several machines can have mounted: "gfs2", or "" if there is
// none. Unlike [Probe], it ignores other superblocks, because the superblock of an array can be older than the file
// system.
func SharedFileSystem(r io.ReaderAt) (string, error) {
	const gfsMagic, gfsOffset = 0x01161970, 65536
	magic, err := magicAt(r, gfsOffset)
	if err != nil || binary.BigEndian.Uint32(magic) != gfsMagic {
		return "", err
	}
	return "gfs2", nil
}

// probeOwn recognises what go-blockdevice does not, or reports under another name: members of md arrays of every
// metadata version, and gfs2.
func probeOwn(f io.ReaderAt, size int64) (Filesystem, error) {
	const mdMagic = 0xa92b4efc
	offsets := []int64{0, 4096} // versions 1.1 and 1.2
	if size >= 8192 {
		offsets = append(offsets, (size/512-16)&^7*512) // 1.0: at least 8 KiB from the end, at a multiple of 4 KiB
	}
	if size >= 65536 {
		offsets = append(offsets, size&^65535-65536) // 0.90
	}
	for _, offset := range offsets {
		magic, err := magicAt(f, offset)
		if err != nil {
			return Filesystem{}, err
		}
		switch {
		case binary.LittleEndian.Uint32(magic) == mdMagic:
			return raidMember(f, offset)
		case binary.BigEndian.Uint32(magic) == mdMagic: // 0.90 in the byte order of its machine
			return Filesystem{Type: "linux_raid_member"}, nil
		}
	}
	kind, err := SharedFileSystem(f)
	return Filesystem{Type: kind}, err
}

// raidMember reads the array's name ("host:name" or "name") and UUID from a superblock of version 1 (struct
// mdp_superblock_1 of Linux). Version 0.90 has no names.
func raidMember(f io.ReaderAt, offset int64) (Filesystem, error) {
	found := Filesystem{Type: "linux_raid_member"}
	superblock := make([]byte, 64)
	if _, err := f.ReadAt(superblock, offset); errors.Is(err, io.EOF) {
		return found, nil
	} else if err != nil {
		return Filesystem{}, err
	}
	if binary.LittleEndian.Uint32(superblock[4:]) != 1 {
		return found, nil
	}
	uuid := superblock[16:32]
	found.UUID = fmt.Sprintf("%x-%x-%x-%x-%x", uuid[:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:])
	name, _, _ := bytes.Cut(superblock[32:64], []byte{0})
	found.Label = strings.TrimSpace(printable(name))
	return found, nil
}

// gptHeaders returns the offsets of sectors with the signature of a GPT header: the first after the MBR, and the last.
func gptHeaders(f io.ReaderAt, size, sector int64) ([]int64, error) {
	var found []int64
	for _, offset := range []int64{sector, (size/sector - 1) * sector} {
		signature := make([]byte, 8)
		if _, err := f.ReadAt(signature, offset); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if string(signature) == "EFI PART" {
			found = append(found, offset)
		}
	}
	return found, nil
}

// withoutGPT returns a memory file of the size of the device, with the start of the device without its GPT.
//
// go-blockdevice would probe every partition of the table. It fails if one is small or outside the disk, and recurses
// if one contains a table again, so that a tenant could prevent the cleaning of a disk. File systems at the front of a
// disk with a GPT, as in hybrid images, are still found.
func withoutGPT(f *os.File, size, sector int64, headers []int64) (*os.File, error) {
	const front = 4 << 20
	data := make([]byte, min(size, front))
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), data); err != nil {
		return nil, err
	}
	for _, offset := range headers {
		if end := offset + sector; end <= int64(len(data)) {
			clear(data[offset:end])
		}
	}
	memory, err := memoryFile("probe")
	if err != nil {
		return nil, fmt.Errorf("memory file: %w", err)
	}
	if _, err := memory.Write(data); err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	if err := memory.Truncate(size); err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	return memory, nil
}

// magicAt reads four bytes. It returns zeros if the device ends before them.
func magicAt(f io.ReaderAt, offset int64) ([]byte, error) {
	magic := make([]byte, 4)
	if _, err := f.ReadAt(magic, offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return magic, nil
}

// fatSerial reads the volume serial number from a FAT boot sector.
func fatSerial(f io.ReaderAt) (string, error) {
	sector := make([]byte, 512)
	if _, err := f.ReadAt(sector, 0); err != nil {
		return "", err
	}
	offset := 39                                      // FAT12, FAT16
	if binary.LittleEndian.Uint16(sector[22:]) == 0 { // no 16-bit FAT size: FAT32
		offset = 67
	}
	serial := binary.LittleEndian.Uint32(sector[offset:])
	return fmt.Sprintf("%04X-%04X", serial>>16, serial&0xffff), nil
}
