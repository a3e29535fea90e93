package efivarfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

const noDump = 0x40 // FS_NODUMP_FL

// ext4 is an empty file system with flags.
func ext4(t *testing.T) string {
	t.Helper()
	testenv.Programs(t, "mkfs.ext4")
	image := testenv.SparseFile(t, 4<<20)
	testenv.Run(t, "mkfs.ext4", "-q", image)
	dir := t.TempDir()
	if err := unix.Mount(testenv.Loop(t, image, 512), dir, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestMakeMutable(t *testing.T) {
	path := filepath.Join(ext4(t), "dump")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, immutable|noDump); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err == nil {
		t.Fatal("an immutable file was removed")
	}
	for range 2 {
		if err := MakeMutable(path); err != nil {
			t.Fatal(err)
		}
	}
	if flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS); err != nil ||
		flags&(immutable|noDump) != noDump {
		t.Errorf("got flags 0x%x and %v, want no-dump alone of the two", flags, err)
	}
	if err := os.Remove(path); err != nil {
		t.Error(err)
	}
}

func TestMakeMutableWithoutFlags(t *testing.T) {
	if err := MakeMutable(filepath.Join(t.TempDir(), "missing")); err != nil {
		t.Errorf("missing file: got %v, want no error", err)
	}
	if err := MakeMutable("/proc/version"); err != nil {
		t.Errorf("file system without flags: got %v, want no error", err)
	}
	if err := MakeMutable(filepath.Join("/proc/version", "below")); err == nil {
		t.Error("file that cannot be opened: got no error")
	}
}

// The empty directory of sysfs, on which efivarfs is mounted, is not taken for efivarfs without variables.
func TestCheckMounted(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]error{
		dir: nil, "/sys/kernel": ErrNotMounted, filepath.Join(dir, "missing"): ErrNotMounted,
	} {
		if err := CheckMounted(path); !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
	}
}
