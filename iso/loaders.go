package iso

import (
	"context"
	"fmt"

	"ironroot/initramfs/debian"
)

// loaders contains the files of the boot loaders.
type loaders struct {
	isolinux []byte // BIOS boot loader for El Torito
	ldlinux  []byte // second part of ISOLINUX
	mbr      []byte // code of a master boot record that starts isolinux from a disk
	shim     []byte // first UEFI loader, signed by Microsoft
	grub     []byte // second UEFI loader, signed by Debian; its variant for CDs searches for /.disk/info

	debs []string // packages that the files are from
}

// Packages are Debian's packages with the loaders.
var Packages = []string{"isolinux", "syslinux-common", "shim-signed", "grub-efi-amd64-signed"}

// fetchLoaders reads the loaders from Debian's packages.
func fetchLoaders(ctx context.Context, archive *debian.Archive) (loaders, error) {
	var l loaders
	for _, source := range []struct {
		pkg   string
		files map[string]*[]byte
	}{
		{"isolinux", map[string]*[]byte{
			"usr/lib/ISOLINUX/isolinux.bin": &l.isolinux, "usr/lib/ISOLINUX/isohdpfx.bin": &l.mbr,
		}},
		{"syslinux-common", map[string]*[]byte{"usr/lib/syslinux/modules/bios/ldlinux.c32": &l.ldlinux}},
		{"shim-signed", map[string]*[]byte{"usr/lib/shim/shimx64.efi.signed": &l.shim}},
		{"grub-efi-amd64-signed", map[string]*[]byte{"usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed": &l.grub}},
	} {
		deb, err := archive.ReadFiles(ctx, source.pkg+":amd64", source.files)
		if err != nil {
			return loaders{}, fmt.Errorf("boot loader: %w", err)
		}
		l.debs = append(l.debs, deb)
	}
	return l, nil
}
