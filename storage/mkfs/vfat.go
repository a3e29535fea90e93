package mkfs

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"ironroot/storage/fat"
)

const minVfat = 256 << 10 // bytes

// makeVfat makes FAT12, FAT16 or FAT32, as the size says. What lies behind 2^32 sectors is not used.
func makeVfat(ctx context.Context, d *device, v volume) error {
	volume := fat.Volume{Size: d.size, Sector: d.sector, Label: v.label, Serial: binary.BigEndian.Uint32(v.uuid)}
	return volume.Write(ctx, d, nil, d.sync)
}

// vfatLabel refuses labels that mkfs.vfat refuses, and those that are written otherwise on every system: small letters
// stay as they are.
func vfatLabel(label string) error {
	forbidden := func(r rune) bool { return r < 0x20 || r > 0x7f || strings.ContainsRune(`"*+,./:;<=>?[\]|`, r) }
	if strings.ContainsFunc(label, forbidden) || strings.HasPrefix(label, " ") {
		return fmt.Errorf("label %q: FAT takes letters and digits of ASCII", label)
	}
	return nil
}
