// Package osimagetest creates partition images for tests: the root file system of package osimage as an ext4 image
// without a boot loader, with the changes that a test requires.
//
// Limits: amd64; requires root, a loop device, and the programs of package osimage.
package osimagetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/debtest"
	"ironroot/internal/testenv"
	"ironroot/lab/osimage"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

// Root returns the path of a raw image of the root file system. It calls change with the mounted root file system and
// with a directory that holds the files of the system's EFI system partition.
func Root(t testing.TB, change func(root, esp string)) string {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "mmdebstrap", "mke2fs", "e2fsck", "resize2fs", "mformat", "mcopy", "dd")
	system, err := osimage.Build(t.Context(), osimage.Options{Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	table, err := partition.Read(t.Context(), system.Raw)
	if err != nil {
		t.Fatal(err)
	}
	const mib = 1 << 20
	esp, root := table.Partitions[1], table.Partitions[2]
	image := filepath.Join(t.TempDir(), "root.ext4")
	testenv.Run(t, "dd", "if="+system.Raw, "of="+image, "bs=1M", "conv=sparse", "status=none",
		fmt.Sprintf("skip=%d", root.Start/mib), fmt.Sprintf("count=%d", root.Size/mib))
	// The free space of a built file system depends on the host's file system.
	testenv.Run(t, "truncate", "-s", "+32M", image)
	testenv.Run(t, "e2fsck", "-fp", image)
	testenv.Run(t, "resize2fs", image)
	files, mount := t.TempDir(), t.TempDir()
	testenv.Run(t, "mcopy", "-s", "-i", fmt.Sprintf("%s@@%d", system.Raw, esp.Start), "::EFI", files)
	testenv.Mount(t, testenv.Loop(t, image, 512), mount, "ext4", "")
	defer func() {
		if err := unix.Unmount(mount, 0); err != nil {
			t.Fatal(err)
		}
	}()
	change(mount, files)
	return image
}

// AddLoaders copies the loaders of the EFI system partition to /boot/efi, where partition images keep them and boot
// loader installers look for them.
func AddLoaders(t testing.TB, root, esp string) {
	t.Helper()
	testenv.Run(t, "mkdir", "-p", root+"/boot/efi")
	testenv.Run(t, "cp", "-r", esp+"/EFI", root+"/boot/efi/")
}

// AddGRUB unpacks Debian's GRUB into root, without installing it, and configures it for the serial console. platform
// is the GRUB package for the firmware.
func AddGRUB(t testing.TB, root, platform string) {
	t.Helper()
	for _, name := range []string{
		platform, "grub-common", "grub2-common", "gettext-base", "libdevmapper1.02.1", "libefiboot1", "libefivar1",
	} {
		deb := debtest.Packages(t, osimage.DefaultSuite, name)[0]
		tar := filepath.Join(t.TempDir(), "data.tar")
		testenv.Run(t, "sh", "-c", `dpkg-deb --fsys-tarfile "$0" >"$1"`, deb, tar)
		testenv.Run(t, "tar", "-x", "--keep-directory-symlink", "--exclude=./usr/share/locale",
			"--exclude=./usr/share/doc", "-f", tar, "-C", root)
	}
	text := "GRUB_DEFAULT=0\nGRUB_TIMEOUT=0\nGRUB_TERMINAL=console\n" +
		"GRUB_CMDLINE_LINUX=\"quiet console=ttyS0,115200n8 " +
		qemu.KernelHints + "\"\n"
	if err := os.WriteFile(filepath.Join(root, "etc/default/grub"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
