package block

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/siderolabs/go-blockdevice/v2/blkid"
)

// Filesystem is what the first bytes of a device say about its content.
type Filesystem struct {
	Type  string // "ext4", "vfat", "iso9660", "xfs", "linux_raid_member", "gfs2" …, "" where nothing is known
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
	size, _, err := Geometry(f)
	if err != nil {
		return Filesystem{}, fmt.Errorf("probe %s: %w", path, err)
	}
	if found, err := probeOwn(f, size); err != nil {
		return Filesystem{}, fmt.Errorf("probe %s: %w", path, err)
	} else if found.Type != "" {
		return found, nil
	}
	if size < blkid.MinProbeSize {
		return Filesystem{}, nil
	}
	info, err := blkid.Probe(f, blkid.WithSkipLocking(true))
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

// probeOwn looks for what go-blockdevice does not know or names otherwise: members of md arrays with every metadata
// version, and gfs2.
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
		if binary.LittleEndian.Uint32(magic) == mdMagic || binary.BigEndian.Uint32(magic) == mdMagic {
			return Filesystem{Type: "linux_raid_member"}, nil
		}
	}
	const gfsMagic, gfsOffset = 0x01161970, 65536
	magic, err := magicAt(f, gfsOffset)
	if err != nil {
		return Filesystem{}, err
	}
	if binary.BigEndian.Uint32(magic) == gfsMagic {
		return Filesystem{Type: "gfs2"}, nil
	}
	return Filesystem{}, nil
}

// magicAt reads four bytes, zeros where the device ends before them.
func magicAt(f io.ReaderAt, offset int64) ([]byte, error) {
	magic := make([]byte, 4)
	if _, err := f.ReadAt(magic, offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return magic, nil
}

// fatSerial reads the volume serial number out of a FAT boot sector.
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
