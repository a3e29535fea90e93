//go:build linux

package ironic

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"ironroot/internal/cachedir"
)

// The releases of Debian that provide Ironic.
const (
	Bookworm = "bookworm" // Ironic 21.4, without inspection by the ramdisk
	Trixie   = "trixie"   // Ironic 29.0
	Sid      = "sid"      // the newest Ironic, 39.0 in November 2026
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
		if err := debootstrap(ctx, progress, suite, dir, packages()); err != nil {
			return err
		}
		const path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
		for _, script := range []string{finish, "ironic-dbsync --version"} { // the second fails if Ironic cannot start
			if err := run(ctx, progress, "chroot", dir, "env", "-i", path, "sh", "-ec", script); err != nil {
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

// debootstrap installs packages of a release of Debian into a directory, without documentation. options are further
// arguments of mmdebstrap.
func debootstrap(
	ctx context.Context, progress io.Writer, suite, dir string, packages []string, options ...string,
) error {
	args := append([]string{
		"--variant=minbase", `--aptopt=APT::Install-Recommends "false"`,
		"--dpkgopt=force-unsafe-io", // a directory that is not complete is not used
		"--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/man/*",
		"--include=" + strings.Join(packages, ","),
	}, options...)
	if suite == Sid {
		// An expired index of sid is accepted, because mirrors can be older than it allows. Its signature is verified.
		args = append(args, `--aptopt=Acquire::Check-Valid-Until "false"`)
	}
	args = append(args, suite, dir)
	if mirror := mirror(ctx); mirror != "" {
		args = append(args, mirror)
	}
	return run(ctx, progress, "mmdebstrap", args...)
}

// mirror returns the package mirror of this machine if it runs Debian, or "" for mmdebstrap's default.
func mirror(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)",
		"Created-By: Packages").Output()
	if err != nil {
		return "" // apt-get is missing or fails
	}
	for line := range strings.Lines(string(out)) {
		if uri, ok := strings.CutPrefix(strings.TrimSpace(line), "Debian|Debian|"); ok {
			return uri
		}
	}
	return ""
}

// run runs a program. Its output is written to progress, and the error contains the end of it.
func run(ctx context.Context, progress io.Writer, name string, args ...string) error {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout = io.MultiWriter(progress, &output)
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, output.Bytes()[max(0, output.Len()-2000):])
	}
	return nil
}
