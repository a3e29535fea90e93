package iso

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
)

// Paths of the boot loaders in the image.
const (
	isolinuxPath = "isolinux/isolinux.bin"
	espPath      = "boot/grub/efi.img"
	blockSize    = 2048
)

// fillTree writes the files of an image with loaders to a directory and returns their sizes.
func fillTree(ctx context.Context, dir string, o Options, l loaders, esp []byte) ([]Part, error) {
	files := map[string][]byte{
		".disk/info":         []byte(o.Label + "\n"), // GRUB identifies the medium by this file
		"boot/grub/grub.cfg": []byte(grubConfig(o.Cmdline)),
		espPath:              esp,
	}
	if l.isolinux != nil {
		files[isolinuxPath], files["isolinux/ldlinux.c32"] = l.isolinux, l.ldlinux
		files["isolinux/isolinux.cfg"] = []byte(isolinuxConfig(o.Cmdline))
	}
	if err := writeTree(dir, files); err != nil {
		return nil, err
	}
	kernel, err := copyFile(ctx, o.Kernel, filepath.Join(dir, "vmlinuz"))
	if err != nil {
		return nil, err
	}
	initrd, err := copyFile(ctx, o.Initrd, filepath.Join(dir, "initrd"))
	if err != nil {
		return nil, err
	}
	parts := []Part{
		{Name: "initrd", Size: initrd},
		{Name: "kernel", Size: kernel},
		{Name: "UEFI boot loaders (shim, GRUB)", Size: int64(len(esp))},
	}
	if l.isolinux != nil {
		parts = append(parts, Part{Name: "BIOS boot loader (ISOLINUX)", Size: int64(len(l.isolinux) + len(l.ldlinux))})
	}
	return parts, nil
}

// leadingDot replaces the dot at the start of a name while the image is written. The library makes an empty ECMA-119
// identifier of ".disk". Of "~disk" it makes "_DISK", as genisoimage and xorriso make of ".disk". correctRecords
// restores the dot in the Rock Ridge name.
const leadingDot = '~'

// writeTree writes files below dir, by their paths in the image. A leading dot of a name is written as leadingDot.
func writeTree(dir string, files map[string][]byte) error {
	for name, content := range files {
		elements := strings.Split(name, "/")
		for i, e := range elements {
			if rest, found := strings.CutPrefix(e, "."); found {
				elements[i] = string(leadingDot) + rest
			}
		}
		path := filepath.Join(dir, filepath.Join(elements...))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(ctx context.Context, from, to string) (size int64, err error) {
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close(), ctx.Err()) }()
	return io.Copy(out, in)
}

// writeImage writes the file system with its boot catalog, which has an entry for BIOS if bios is true, and one for
// UEFI. Joliet is disabled: with it the boot record would not be in sector 17, where BIOSes search for it.
func writeImage(f *os.File, tree, label string, bios bool) error {
	fs, err := iso9660.Create(file.New(f, false), 0, 0, blockSize, tree)
	if err != nil {
		return err
	}
	var entries []*iso9660.ElToritoEntry
	catalog := "boot/boot.cat"
	if bios {
		catalog = "isolinux/boot.cat"
		entries = append(entries, &iso9660.ElToritoEntry{
			Platform: iso9660.BIOS, Emulation: iso9660.NoEmulation, BootFile: isolinuxPath, BootTable: true,
		})
		entries[0].SetLoadSize(4)
	}
	// The library stores the size 0 for an EFI system partition whose size does not fit into the field. Firmware then
	// reads to the end of the volume.
	entries = append(entries,
		&iso9660.ElToritoEntry{Platform: iso9660.EFI, Emulation: iso9660.NoEmulation, BootFile: espPath})
	err = fs.Finalize(iso9660.FinalizeOptions{
		RockRidge:        true,
		VolumeIdentifier: label,
		ElTorito:         &iso9660.ElTorito{BootCatalog: catalog, HideBootCatalog: true, Entries: entries},
	})
	if err != nil {
		return fmt.Errorf("write ISO 9660: %w", err)
	}
	return nil
}
