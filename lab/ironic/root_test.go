package ironic

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/testenv"
	"ironroot/lab/osimage"
	"ironroot/storage/partition"
)

// partitionImage makes a partition image of a system and returns its path: the root file system alone, raw, with the
// loaders that the disk has on its EFI system partition below /boot/efi/EFI, where installers of boot loaders look for them.
func partitionImage(t *testing.T, system *osimage.Image) string {
	t.Helper()
	testenv.Programs(t, "dd", "mcopy", "debugfs", "e2fsck")
	table, err := partition.Read(t.Context(), system.Raw)
	if err != nil {
		t.Fatal(err)
	}
	esp, root := table.Partitions[1], table.Partitions[2]
	dir := t.TempDir()
	image, loaders := filepath.Join(dir, "root.ext4"), filepath.Join(dir, "loaders")
	const mib = 1 << 20
	testenv.Run(t, "dd", "if="+system.Raw, "of="+image, "bs=1M", "conv=sparse", "status=none",
		fmt.Sprintf("skip=%d", root.Start/mib), fmt.Sprintf("count=%d", root.Size/mib))
	if err := os.Mkdir(loaders, 0o755); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "mcopy", "-s", "-n", "-i", fmt.Sprintf("%s@@%d", system.Raw, esp.Start), "::EFI", loaders)
	testenv.Run(t, "debugfs", "-w", "-R", "mkdir boot/efi", image)
	err = filepath.WalkDir(loaders, func(path string, entry fs.DirEntry, err error) error {
		switch name := "boot/efi" + strings.TrimPrefix(path, loaders); {
		case err != nil:
			return err
		case path == loaders:
		case entry.IsDir():
			testenv.Run(t, "debugfs", "-w", "-R", "mkdir "+name, image)
		default:
			writeInto(t, image, path, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "e2fsck", "-fn", image)
	return image
}

// writeInto writes a file into an ext4 image, and reads it back, as debugfs succeeds whatever becomes of its commands.
func writeInto(t *testing.T, image, path, name string) {
	t.Helper()
	testenv.Run(t, "debugfs", "-w", "-R", fmt.Sprintf("write %s %s", path, name), image)
	back := filepath.Join(t.TempDir(), "back")
	testenv.Run(t, "debugfs", "-R", fmt.Sprintf("dump %s %s", name, back), image)
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s in %s: got %d bytes and %v, want %d", name, image, len(got), err, len(want))
	}
}
