// Package osimagetest creates images for tests: the root file system of package osimage as an ext4 image without a boot
// loader, or the whole disk, with the changes that a test requires.
//
// Limits: amd64; requires root, a loop device, and the programs of package osimage.
package osimagetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/debtest"
	"ironroot/internal/test/testenv"
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
	esp, root := table.Partitions[1], table.Partitions[2]
	image := extract(t, system.Raw, root)
	// The free space of a built file system depends on the host's file system.
	testenv.Run(t, "truncate", "-s", "+32M", image)
	testenv.Run(t, "e2fsck", "-fp", image)
	testenv.Run(t, "resize2fs", image)
	files := t.TempDir()
	testenv.Run(t, "mcopy", "-s", "-i", fmt.Sprintf("%s@@%d", system.Raw, esp.Start), "::EFI", files)
	return changed(t, image, func(root string) { change(root, files) })
}

// Disk returns the path of a raw image of the whole disk. It calls change with the mounted root file system.
func Disk(t testing.TB, change func(root string)) string {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "mmdebstrap", "mke2fs", "e2fsck", "mformat", "dd")
	system, err := osimage.Build(t.Context(), osimage.Options{Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	table, err := partition.Read(t.Context(), system.Raw)
	if err != nil {
		t.Fatal(err)
	}
	root := table.Partitions[2]
	file := changed(t, extract(t, system.Raw, root), change)
	testenv.Run(t, "e2fsck", "-fp", file)
	image := filepath.Join(t.TempDir(), "disk.raw")
	testenv.Run(t, "cp", "--sparse=always", "--reflink=auto", system.Raw, image)
	testenv.Run(t, "dd", "if="+file, "of="+image, "bs=1M", "conv=notrunc", "status=none",
		fmt.Sprintf("seek=%d", root.Start/mib))
	return image
}

const mib = 1 << 20

// extract returns the path of a copy of a partition.
func extract(t testing.TB, disk string, p partition.Partition) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "root.ext4")
	testenv.Run(t, "dd", "if="+disk, "of="+file, "bs=1M", "conv=sparse", "status=none",
		fmt.Sprintf("skip=%d", p.Start/mib), fmt.Sprintf("count=%d", p.Size/mib))
	return file
}

// changed calls change with the mounted file system of a file, and returns the path of a copy of the result. The file
// itself can change later: a process that is started in a mount namespace of its own now, by another test, keeps the
// file system mounted.
func changed(t testing.TB, file string, change func(root string)) string {
	t.Helper()
	mount := t.TempDir()
	testenv.Mount(t, testenv.Loop(t, file, 512), mount, "ext4", "")
	defer func() {
		if err := unix.Unmount(mount, 0); err != nil {
			t.Fatal(err)
		}
	}()
	change(mount)
	image := filepath.Join(t.TempDir(), filepath.Base(file))
	whileFrozen(t, mount, func() { testenv.Run(t, "cp", "--sparse=always", "--reflink=auto", file, image) })
	return image
}

// whileFrozen calls f while a mounted file system is frozen: all of it is on its device, as after unmounting.
func whileFrozen(t testing.TB, mount string, f func()) {
	t.Helper()
	const freeze, thaw = 0xc0045877, 0xc0045878 // FIFREEZE and FITHAW of linux/fs.h
	dir, err := os.Open(mount)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close() //nolint:errcheck // only opened
	if err := unix.IoctlSetInt(int(dir.Fd()), freeze, 0); err != nil {
		t.Fatalf("freeze %s: %v", mount, err)
	}
	defer func() {
		if err := unix.IoctlSetInt(int(dir.Fd()), thaw, 0); err != nil {
			t.Errorf("thaw %s: %v", mount, err)
		}
	}()
	f()
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
	unpack(t, root, platform, "grub-common", "grub2-common", "gettext-base", "libdevmapper1.02.1", "libefiboot1",
		"libefivar1")
	text := "GRUB_DEFAULT=0\nGRUB_TIMEOUT=0\nGRUB_TERMINAL=console\n" +
		"GRUB_CMDLINE_LINUX=\"quiet console=ttyS0,115200n8 " +
		qemu.KernelHints + "\"\n"
	if err := os.WriteFile(filepath.Join(root, "etc/default/grub"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// AddRAID unpacks Debian's mdadm into root, so that the initramfs assembles all mirrors, also degraded ones, and the
// report of the system contains what mdadm says of them. Debian's own hook would load the modules of all levels, whose
// tests of algorithms take long without hardware virtualisation.
func AddRAID(t testing.TB, root string) {
	t.Helper()
	testenv.Programs(t, "unshare", "chroot", "dpkg-deb")
	unpack(t, root, "mdadm")
	testenv.Run(t, "sh", "-c", `rm -rf "$0"/usr/share/initramfs-tools/hooks/mdadm `+
		`"$0"/usr/share/initramfs-tools/scripts/*/mdadm`, root)
	const prerequisites = "#!/bin/sh\n[ \"$1\" != prereqs ] || exit 0\n"
	for name, text := range map[string]string{
		"hooks/raid": prerequisites + ". /usr/share/initramfs-tools/hook-functions\n" +
			"copy_exec /sbin/mdadm /sbin\nmanual_add_modules raid1\n",
		// The rules of udev for arrays are not in the initramfs.
		"scripts/local-top/raid": prerequisites + "export MDADM_NO_UDEV=1\nmodprobe raid1\n" +
			"mdadm --assemble --scan --run --homehost=any\n",
	} {
		path := filepath.Join(root, "etc/initramfs-tools", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Run(t, "sed", "-i", `/^echo "INSTANCE-UP/i for array in /dev/md[0-9] /dev/md[0-9][0-9][0-9]; do `+
		`mdadm --detail "$array"; blkid -p "$array"; done`, root+"/usr/local/sbin/instance-report")
	// The mounts end with their namespace.
	testenv.Run(t, "unshare", "--mount", "sh", "-ec",
		`mount --bind /dev "$0/dev"; mount -t proc proc "$0/proc"; chroot "$0" update-initramfs -u -k all`, root)
}

// unpack unpacks Debian's packages into root, without installing them.
func unpack(t testing.TB, root string, packages ...string) {
	t.Helper()
	for _, name := range packages {
		deb := debtest.Packages(t, osimage.DefaultSuite, name)[0]
		tar := filepath.Join(t.TempDir(), "data.tar")
		testenv.Run(t, "sh", "-c", `dpkg-deb --fsys-tarfile "$0" >"$1"`, deb, tar)
		testenv.Run(t, "tar", "-x", "--keep-directory-symlink", "--exclude=./usr/share/locale",
			"--exclude=./usr/share/doc", "-f", tar, "-C", root)
	}
}
