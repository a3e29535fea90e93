package iso

import (
	"context"
	"fmt"
	"hash/crc32"

	"ironroot/storage/fat"
)

// espImage returns an EFI system partition with the two UEFI loaders at the place for removable media (UEFI 2.10,
// section 3.5.1.1).
func espImage(ctx context.Context, l loaders) ([]byte, error) {
	image := make(memory, espSize(int64(len(l.shim)+len(l.grub))))
	volume := fat.Volume{
		// With small clusters it is FAT16. Firmware may read FAT12 as well, which was not tried.
		Size: int64(len(image)), Sector: sector, Cluster: sector, Label: "IRONROOT", Date: epoch, Short: true,
		Serial: crc32.Update(crc32.ChecksumIEEE(l.shim), crc32.IEEETable, l.grub),
	}
	err := volume.Write(ctx, image, []fat.Node{directory("EFI", directory("BOOT",
		loader("BOOTX64.EFI", l.shim), loader("GRUBX64.EFI", l.grub)))}, nil)
	if err != nil {
		return nil, fmt.Errorf("EFI system partition: %w", err)
	}
	return image, nil
}

// espSize returns the size of an EFI system partition for files of content bytes in total.
func espSize(content int64) int64 {
	const (
		smallest = 4 << 20  // less could become FAT12
		fixed    = 64 << 10 // boot sector, directories, ends of files
	)
	tables := 2 * content / sector * 2 // two tables with two bytes for each cluster
	return max(smallest, (content+tables+fixed+sector-1)/sector*sector)
}

func directory(name string, nodes ...fat.Node) fat.Node {
	return fat.Node{Name: name, IsDir: true, Nodes: nodes}
}

func loader(name string, content []byte) fat.Node {
	return fat.Node{Name: name, Size: int64(len(content)), Content: func() ([]byte, error) { return content, nil }}
}

// memory is a device in memory.
type memory []byte

// WriteAt implements [io.WriterAt].
func (m memory) WriteAt(p []byte, offset int64) (int, error) {
	if offset+int64(len(p)) > int64(len(m)) {
		return 0, fmt.Errorf("write %d bytes at byte %d of %d", len(p), offset, len(m))
	}
	return copy(m[offset:], p), nil
}
