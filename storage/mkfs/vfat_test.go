package mkfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/fat"
)

func TestVfat(t *testing.T) {
	testenv.Programs(t, "fsck.vfat", "blkid")
	dir := tmpfs(t)
	for _, c := range []struct {
		size    int64
		version string
		bytes   int64 // that may be written at most
	}{
		{256 << 10, "FAT12", mib},
		{mib, "FAT12", 2 * mib},
		{32 * mib, "FAT16", 2 * mib},
		{512*mib - 512, "FAT16", 2 * mib},
		{512 * mib, "FAT32", 3 * mib},
		{550 * mib, "FAT32", 3 * mib},
		{100 * gib, "FAT32", 3 * mib},
		{3 * tib, "FAT32", 3 * mib}, // the first 2 TiB of it,
	} {
		t.Run(fmt.Sprint(c.size), func(t *testing.T) {
			path := filepath.Join(dir, "disk")
			sparse(t, path, c.size)
			if err := Make(t.Context(), path, "vfat", Options{Label: "efi-part", UUID: "1234-abcd"}); err != nil {
				t.Fatal(err)
			}
			if got := used(t, path); got > c.bytes {
				t.Errorf("got %d bytes written, want %d at most", got, c.bytes)
			}
			testenv.Run(t, "fsck.vfat", "-n", path)
			mustContain(t, testenv.Run(t, "blkid", "-p", path), ` LABEL="efi-part"`, ` LABEL_FATBOOT="efi-part"`,
				` UUID="1234-ABCD"`, ` VERSION="`+c.version+`"`)
		})
	}
}

// The kernel and mtools keep files in the file system, also on disks with large sectors.
func TestVfatUsed(t *testing.T) {
	testenv.Programs(t, "fsck.vfat", "mcopy")
	file := filepath.Join(t.TempDir(), "file")
	content := strings.Repeat("0123456789abcdef", 10000)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		size   int64
		sector int
	}{{8 * mib, 512}, {550 * mib, 512}, {550 * mib, 4096}, {100 * gib, 4096}} {
		t.Run(fmt.Sprintf("%d MiB in sectors of %d", c.size/mib, c.sector), func(t *testing.T) {
			loop := testenv.Loop(t, testenv.SparseFile(t, c.size), c.sector)
			if err := Make(t.Context(), loop, "vfat", Options{}); err != nil {
				t.Fatal(err)
			}
			testenv.Run(t, "fsck.vfat", "-n", loop)
			if out := testenv.Run(t, "blkid", "-p", loop); strings.Contains(out, "LABEL") {
				t.Errorf("blkid sees a label: %s", out)
			}
			testenv.Run(t, "mcopy", "-i", loop, file, "::/copy")
			testenv.Run(t, "mcopy", "-n", "-i", loop, "::/copy", file+".back")
			if got, err := os.ReadFile(file + ".back"); err != nil || string(got) != content {
				t.Errorf("got %d bytes back, %v, want %d", len(got), err, len(content))
			}
			testenv.Run(t, "fsck.vfat", "-n", loop)
		})
	}
}

// Labels are accepted and rejected as by mkfs.vfat.
func TestVfatLabels(t *testing.T) {
	testenv.Programs(t, "mkfs.vfat")
	path := testenv.SparseFile(t, mib)
	labels := []string{" A", "A ", "eleven char", "twelve chars"}
	for c := rune(0x20); c < 0xa0; c++ {
		labels = append(labels, "A"+string(c)+"b")
	}
	for _, label := range labels {
		err := Check("vfat", Options{Label: label})
		out, mkfsErr := exec.CommandContext(t.Context(), "/usr/sbin/mkfs.vfat", "-n", label, path).CombinedOutput()
		if (err == nil) != (mkfsErr == nil) {
			t.Errorf("label %q: got %v, mkfs.vfat: %v %s", label, err, mkfsErr, out)
		}
	}
}

// "msdos" is another name of vfat, as for mkfs.
func TestVfatMsdos(t *testing.T) {
	var made [][]byte
	for _, name := range []string{"vfat", "msdos"} {
		path := testenv.SparseFile(t, 8*mib)
		if err := Make(t.Context(), path, name, Options{Label: "ephemeral0", UUID: "1234-abcd"}); err != nil {
			t.Fatal(err)
		}
		made = append(made, at(t, path, 0, 8*mib))
	}
	differ(t, "msdos", made[1], made[0])
}

// Only vfat can be made with files.
func TestVfatFiles(t *testing.T) {
	testenv.Programs(t, "mtype")
	path := testenv.SparseFile(t, 600*mib)
	o := Options{Label: "esp", UUID: "1234-ABCD", Files: []fat.Node{{
		Name: "EFI", IsDir: true, Nodes: []fat.Node{{
			Name: "a.efi", Size: 6, Content: fat.Bytes("loader"),
		}},
	}}}
	if err := Make(t.Context(), path, "vfat", o); err != nil {
		t.Fatal(err)
	}
	if got := testenv.Run(t, "mtype", "-i", path, "::EFI/a.efi"); got != "loader" {
		t.Errorf("got content %q, want %q", got, "loader")
	}
	o.UUID = ""
	if err := Check("ext4", o); err == nil || !strings.Contains(err.Error(), "only vfat") {
		t.Errorf("ext4: got %v, want an error", err)
	}
}
