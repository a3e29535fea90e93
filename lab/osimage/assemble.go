package osimage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/disk"
	"github.com/diskfs/go-diskfs/partition/gpt"
)

const (
	sector   = 512
	mib      = 1 << 20
	biosSize = 1 * mib // of the BIOS boot partition, which contains GRUB's core image
	biosType = gpt.Type("21686148-6449-6E6F-744E-656564454649")
)

// part is a partition: a file of the work directory and its position on the disk in bytes.
type part struct {
	file        string
	name        string
	kind        gpt.Type
	start, size int64
}

// assemble creates the disk image from the files in work. Images for arm64 have no partition for GRUB for BIOS.
func assemble(work, raw, arch string) error {
	root, err := os.Stat(filepath.Join(work, "root.ext4"))
	if err != nil {
		return err
	}
	parts := []part{
		{"core.img", "bios", biosType, mib, biosSize},
		{"esp.fat", "esp", gpt.EFISystemPartition, 2 * mib, espSize},
		{"root.ext4", "root", gpt.LinuxFilesystem, 2*mib + espSize, root.Size()},
	}
	if arch == "arm64" {
		parts = parts[1:]
	}
	last := parts[len(parts)-1]
	if err := makeFile(raw, last.start+last.size+mib); err != nil {
		return err
	}
	if err := writeTable(raw, parts); err != nil {
		return err
	}
	f, err := os.OpenFile(raw, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err := copyPart(f, filepath.Join(work, p.file), p); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if arch == "arm64" {
		return f.Close()
	}
	return errors.Join(installBIOS(f, filepath.Join(work, "boot.img"), parts[0].start), f.Close())
}

func makeFile(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

func writeTable(raw string, parts []part) error {
	table := &gpt.Table{LogicalSectorSize: sector, PhysicalSectorSize: sector, ProtectiveMBR: true}
	for i, p := range parts {
		table.Partitions = append(table.Partitions, &gpt.Partition{
			Index: i + 1, Name: p.name, Type: p.kind,
			Start: uint64(p.start / sector), End: uint64((p.start+p.size)/sector - 1), Size: uint64(p.size),
		})
	}
	d, err := diskfs.Open(raw, diskfs.WithOpenMode(diskfs.ReadWrite), diskfs.WithSectorSize(diskfs.SectorSize512))
	if err != nil {
		return fmt.Errorf("open %s: %w", raw, err)
	}
	return errors.Join(partition(d, table), d.Close())
}

func partition(d *disk.Disk, table *gpt.Table) error {
	if err := d.Partition(table); err != nil {
		return fmt.Errorf("write the partition table: %w", err)
	}
	return nil
}

// copyPart copies a file to its position and skips zeros, so that the image stays sparse.
func copyPart(to *os.File, from string, p part) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	buf, zero := make([]byte, mib), make([]byte, mib)
	for at := p.start; ; {
		n, err := io.ReadFull(in, buf)
		if at+int64(n) > p.start+p.size {
			return fmt.Errorf("%s does not fit into its partition of %d bytes", from, p.size)
		}
		if string(buf[:n]) != string(zero[:n]) {
			if _, err := to.WriteAt(buf[:n], at); err != nil {
				return fmt.Errorf("write %s: %w", to.Name(), err)
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", from, err)
		}
	}
}

// installBIOS installs GRUB for BIOS. Its boot sector in the first 440 bytes of the disk loads the first sector of
// the core image, which loads the rest. Both contain the location of what they load (GRUB's i386/pc/boot.h and
// diskboot.h).
func installBIOS(disk *os.File, bootImage string, core int64) error {
	const (
		codeSize      = 440  // usable bytes of the first sector; disk id and partition table follow
		kernelSector  = 0x5c // offset in the boot sector of the core image's first sector
		driveCheck    = 0x66 // offset in the boot sector of a jump that skips a workaround for broken BIOSes
		firstBlock    = 0x1f4
		nopInstruct   = 0x90
		sectorsBehind = 1
	)
	boot, err := os.ReadFile(bootImage)
	if err != nil {
		return err
	}
	if len(boot) < codeSize {
		return fmt.Errorf("%s: got %d bytes, want at least %d", bootImage, len(boot), codeSize)
	}
	binary.LittleEndian.PutUint64(boot[kernelSector:], uint64(core/sector))
	boot[driveCheck], boot[driveCheck+1] = nopInstruct, nopInstruct
	if _, err := disk.WriteAt(boot[:codeSize], 0); err != nil {
		return fmt.Errorf("write GRUB's boot sector: %w", err)
	}
	var place [8]byte
	binary.LittleEndian.PutUint64(place[:], uint64(core/sector)+sectorsBehind)
	if _, err := disk.WriteAt(place[:], core+firstBlock); err != nil {
		return fmt.Errorf("write GRUB's block list: %w", err)
	}
	return nil
}
