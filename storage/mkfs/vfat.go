package mkfs

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"ironroot/storage/fat"
)

const minVfat = 256 << 10 // bytes

// makeVfat makes FAT12, FAT16 or FAT32, depending on the size. Sectors after the 2^32nd are not used.
func makeVfat(ctx context.Context, d *device, v volume) error {
	volume := fat.Volume{Size: d.size, Sector: d.sector, Label: v.label, Serial: binary.BigEndian.Uint32(v.uuid)}
	return volume.Write(ctx, d, v.files, d.sync)
}

// vfatLabel rejects the labels that mkfs.vfat rejects, and those that systems encode differently. Lower-case letters
// are kept.
func vfatLabel(label string) error {
	forbidden := func(r rune) bool { return r < 0x20 || r > 0x7f || strings.ContainsRune(`"*+,./:;<=>?[\]|`, r) }
	if strings.ContainsFunc(label, forbidden) || strings.HasPrefix(label, " ") {
		return fmt.Errorf("label %q: want letters and digits of ASCII for FAT", label)
	}
	return nil
}
