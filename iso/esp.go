package iso

import (
	"context"
	"fmt"
	"hash/crc32"

	"ironroot/storage/fat"
)

// espImage returns an EFI system partition with the two UEFI loaders at the place for removable media.
func espImage(ctx context.Context, l loaders) ([]byte, error) {
	// With small clusters it is FAT16. Firmware may read FAT12 as well, which was not tried.
	return esp(ctx, sector, loader(removableNames[l.arch], l.shim), loader(grubNames[l.arch], l.grub))
}

// ukiESP returns an EFI system partition with a unified kernel image at that place. Its clusters are larger if needed.
func ukiESP(ctx context.Context, arch string, image []byte) ([]byte, error) {
	const largest = 30 << 20 // bytes of a file with small clusters
	name := removableNames[arch]
	if len(image) > largest {
		return esp(ctx, 0, loader(name, image))
	}
	return esp(ctx, sector, loader(name, image))
}

// esp returns an EFI system partition with files for removable media. A cluster of 0 bytes chooses one by the size.
func esp(ctx context.Context, cluster int64, files ...fat.Node) ([]byte, error) {
	content, serial := int64(0), crc32.NewIEEE()
	for _, f := range files {
		if err := f.Content.Copy(ctx, serial); err != nil {
			return nil, err
		}
		content += f.Size
	}
	image := make(memory, espSize(content))
	volume := fat.Volume{
		Size: int64(len(image)), Sector: sector, Cluster: cluster, Label: "IRONROOT", Date: epoch, Short: true,
		Serial: serial.Sum32(),
	}
	err := volume.Write(ctx, image, []fat.Node{directory("EFI", directory("BOOT", files...))}, nil)
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
	return fat.Node{Name: name, Size: int64(len(content)), Content: fat.Bytes(content)}
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
