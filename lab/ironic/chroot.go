//go:build linux

package ironic

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"ironroot/internal/cachedir"
	"ironroot/lab/debootstrap"
)

// The releases of Debian that provide Ironic.
const (
	Bookworm = "bookworm"      // Ironic 21.4, without inspection by the ramdisk
	Trixie   = "trixie"        // Ironic 29.0
	Sid      = debootstrap.Sid // the newest Ironic, 39.0 in November 2026
)

// espImage is the path in the chroot of the boot loader for virtual media: an image of an EFI system partition.
const espImage = "/srv/esp.img"

// grubConfig is the path of GRUB's configuration in the ISOs that Ironic builds.
const grubConfig = "boot/grub/ironroot.cfg"

func packages() []string {
	return []string{
		"ca-certificates", "python3-ironic", "ironic-common", "python3-sushy", "qemu-utils", "ipxe", "genisoimage",
		"mtools", "dosfstools", "grub-efi-amd64-bin", "grub-common", "pxelinux", "syslinux-common", "dnsmasq-base",
	}
}

// Paths in the chroot of the PXE boot loaders. Ironic copies them to its TFTP directory.
const (
	pxeLoaderUEFI = "/srv/netboot.efi"
	pxeLoaderBIOS = "/usr/lib/PXELINUX/pxelinux.0"
	pxeModuleBIOS = "/usr/lib/syslinux/modules/bios/ldlinux.c32"
)

// finish builds two GRUBs: the boot loader for virtual media, which loads the configuration that Ironic writes, and
// the one for PXE with UEFI.
const finish = `
mkdir -p ` + inside + `
cd /srv
cat >early.cfg <<'END'
search --no-floppy --file --set=root /` + grubConfig + `
configfile /` + grubConfig + `
END
grub-mkimage -O x86_64-efi -p /boot/grub -c early.cfg -o BOOTX64.EFI normal linux iso9660 fat part_gpt part_msdos \
    search search_fs_file configfile echo test serial terminal boot reboot halt
rm -f esp.img
truncate -s 8M esp.img
mkfs.vfat -n ESP esp.img
mmd -i esp.img ::/EFI ::/EFI/BOOT
mcopy -i esp.img BOOTX64.EFI ::/EFI/BOOT/BOOTX64.EFI
grub-mkimage -O x86_64-efi -p /grub -o netboot.efi normal linux configfile echo test serial terminal boot reboot halt \
    efinet net tftp sleep
`

// chroot returns the directory of an installed Ironic, and builds it if it is not in the cache. progress receives the
// output of the programs that build it; nil discards it.
func chroot(ctx context.Context, cache, suite string, progress io.Writer) (string, error) {
	if progress == nil {
		progress = io.Discard
	}
	dir, err := cachedir.Get(cache, "ironic-"+suite, recipe(suite, time.Now()), func(dir string) error {
		_, _ = fmt.Fprintf(progress, "installing Ironic from Debian %s into %s\n", suite, dir)
		if err := debootstrap.Install(ctx, progress, suite, dir, packages()); err != nil {
			return err
		}
		const path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
		for _, script := range []string{finish, "ironic-dbsync --version"} { // the second fails if Ironic cannot start
			err := debootstrap.Run(ctx, progress, "chroot", dir, "env", "-i", path, "sh", "-ec", script)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("chroot of Ironic: %w", err)
	}
	return dir, nil
}

// recipe returns the recipe of an installed Ironic. Stable releases of Debian keep their version of Ironic. The recipe
// of sid contains the month of now, so that its newest Ironic is installed once a month. The directories of earlier
// months remain in the cache.
func recipe(suite string, now time.Time) string {
	parts := append(packages(), suite, finish)
	if suite == Sid {
		parts = append(parts, now.UTC().Format("2006-01"))
	}
	return strings.Join(parts, "\n")
}
