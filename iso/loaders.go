package iso

import (
	"context"
	"fmt"

	"ironroot/initramfs/debian"
)

// loaders contains the files of the boot loaders of an architecture.
type loaders struct {
	arch     string // GOARCH
	isolinux []byte // BIOS boot loader for El Torito; nil on arm64, as ldlinux and mbr
	ldlinux  []byte // second part of ISOLINUX
	mbr      []byte // code of a master boot record that starts isolinux from a disk
	shim     []byte // first UEFI loader, signed by Microsoft
	grub     []byte // second UEFI loader, signed by Debian; its variant for CDs searches for /.disk/info

	debs []string // packages that the files are from
}

// Names of UEFI loaders, by GOARCH: the one that firmware starts from removable media (UEFI 2.10, section 3.5.1.1), and
// GRUB's, which shim starts.
var (
	removableNames = map[string]string{"amd64": "BOOTX64.EFI", "arm64": "BOOTAA64.EFI"}
	grubNames      = map[string]string{"amd64": "GRUBX64.EFI", "arm64": "GRUBAA64.EFI"}
)

// loaderFile is a file of a boot loader.
type loaderFile struct {
	pkg, path string  // Debian package, and the path in it
	name      string  // path in the image, or the part of the image that contains it
	content   *[]byte // where it is in loaders
}

// files returns the files of the loaders of the architecture.
func (l *loaders) files() []loaderFile {
	const uefi = espPath + "/EFI/BOOT/"
	first, second := uefi+removableNames[l.arch], uefi+grubNames[l.arch]
	if l.arch == "arm64" {
		return []loaderFile{
			{"shim-signed", "usr/lib/shim/shimaa64.efi.signed", first, &l.shim},
			{"grub-efi-arm64-signed", "usr/lib/grub/arm64-efi-signed/gcdaa64.efi.signed", second, &l.grub},
		}
	}
	const modules = "usr/lib/syslinux/modules/bios/"
	return []loaderFile{
		{"isolinux", "usr/lib/ISOLINUX/isolinux.bin", isolinuxPath, &l.isolinux},
		{"isolinux", "usr/lib/ISOLINUX/isohdpfx.bin", "master boot record", &l.mbr},
		{"syslinux-common", modules + "ldlinux.c32", "isolinux/ldlinux.c32", &l.ldlinux},
		{"shim-signed", "usr/lib/shim/shimx64.efi.signed", first, &l.shim},
		{"grub-efi-amd64-signed", "usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed", second, &l.grub},
	}
}

// packages returns Debian's packages with the loaders of the architecture, NAME:ARCH.
func (l *loaders) packages() []string {
	var names []string
	for _, f := range l.files() {
		if name := f.pkg + ":" + l.arch; len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	return names
}

// Packages returns Debian's packages with the loaders for an architecture, amd64 or arm64, in the form NAME:ARCH.
func Packages(arch string) []string { return (&loaders{arch: arch}).packages() }

// fetchLoaders reads the loaders of an architecture from Debian's packages.
func fetchLoaders(ctx context.Context, archive *debian.Archive, arch string) (loaders, error) {
	l := loaders{arch: arch}
	for _, pkg := range l.packages() {
		files := map[string]*[]byte{}
		for _, f := range l.files() {
			if f.pkg+":"+arch == pkg {
				files[f.path] = f.content
			}
		}
		deb, err := archive.ReadFiles(ctx, pkg, files)
		if err != nil {
			return loaders{}, fmt.Errorf("boot loader: %w", err)
		}
		l.debs = append(l.debs, deb)
	}
	return l, nil
}

// used returns the files of the loaders with their packages.
func (l *loaders) used(archive *debian.Archive) *debian.Used {
	used := &debian.Used{Archive: archive, Debs: l.debs}
	for _, f := range l.files() {
		used.Files = append(used.Files, debian.UsedFile{Name: f.name, Path: f.path, Content: *f.content})
	}
	return used
}
