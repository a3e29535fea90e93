package bootloader

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/storage/mounted"
)

func directory(t *testing.T, name string) *mounted.FS {
	t.Helper()
	root, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := mounted.New(name, root)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// The ESP is a plain directory here, so that the test also runs on kernels without FAT.
func TestCopyAssets(t *testing.T) {
	root, esp := t.TempDir(), t.TempDir()
	outside := t.TempDir()
	write(t, outside, "secret", "of the ramdisk")
	write(t, root, "boot/efi/EFI/BOOT/BOOTX64.EFI", "shim")
	write(t, root, "boot/efi/EFI/debian/grubx64.efi", strings.Repeat("grub", 600<<10))
	write(t, root, "boot/efi/EFI/debian/fw/fwupd.efi", "fw")
	write(t, root, "boot/efi/EFI/fedora/grub.cfg", "its own")
	write(t, root, "boot/grub2/grub.cfg", "menu")
	write(t, root, "boot/grub/grub.cfg", "the other menu")
	write(t, root, "boot/grub/grubenv", "saved_entry=0")
	write(t, root, "usr/lib/shim.efi", "shim by a link")
	write(t, esp, "EFI/BOOT/BOOTX64.EFI", "what an attempt before left behind")
	for link, target := range map[string]string{
		"boot/efi/EFI/debian/shimx64.efi": "/usr/lib/shim.efi",         // absolute, inside the image
		"boot/efi/EFI/debian/outside.efi": outside + "/secret",         // absolute, outside
		"boot/efi/EFI/debian/up.efi":      "../../../../../../../etc/", // stays at the image's root
		"boot/efi/EFI/debian/gone.efi":    "nowhere",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(root, "boot/efi/EFI/debian/pipe.efi"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := copier{from: directory(t, root), to: directory(t, esp)}
	if err := c.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"EFI/BOOT/BOOTX64.EFI":   "shim",
		"EFI/BOOT/grub.cfg":      "menu",
		"EFI/BOOT/grubenv":       "saved_entry=0",
		"EFI/debian/grubx64.efi": strings.Repeat("grub", 600<<10), "EFI/debian/fw/fwupd.efi": "fw",
		"EFI/debian/shimx64.efi": "shim by a link",
		"EFI/debian/grub.cfg":    "menu",
		"EFI/debian/grubenv":     "saved_entry=0",
		"EFI/fedora/grub.cfg":    "its own",
		"EFI/fedora/grubenv":     "saved_entry=0",
	}
	if diff := cmp.Diff(want, files(t, esp)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if c.kept.Files != len(want) || c.kept.Bytes < 2400<<10 {
		t.Errorf("got %+v, want %d files", c.kept, len(want))
	}
}

func TestCopyAssetsHasBounds(t *testing.T) {
	root := t.TempDir()
	write(t, root, "boot/efi/EFI/BOOT/BOOTX64.EFI", "shim")
	if err := os.Symlink(".", filepath.Join(root, "boot/efi/EFI/BOOT/loop")); err != nil {
		t.Fatal(err)
	}
	c := copier{from: directory(t, root), to: directory(t, t.TempDir())}
	if err := c.run(t.Context()); err == nil || !strings.Contains(err.Error(), "directories deep") {
		t.Errorf("a directory in itself: got %v, want an error that tells the depth", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	c = copier{from: directory(t, root), to: directory(t, t.TempDir())}
	if err := c.run(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: got %v, want %v", err, context.Canceled)
	}
}
