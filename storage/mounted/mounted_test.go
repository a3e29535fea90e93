package mounted

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/testenv"
)

// device makes a loop device with a file system that contains a file and links.
func device(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "mkfs.ext4")
	tree := t.TempDir()
	if err := os.MkdirAll(filepath.Join(tree, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "etc/passwd"), []byte("the disk's"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"absolute": "/etc/passwd", "up": "../../../etc/passwd", "magic": "/proc/self/exe"} {
		if err := os.Symlink(target, filepath.Join(tree, name)); err != nil {
			t.Fatal(err)
		}
	}
	image := testenv.SparseFile(t, 16<<20)
	testenv.Run(t, "mkfs.ext4", "-q", "-d", tree, image)
	return testenv.Loop(t, image, 512)
}

// free reports whether the device is not in use.
func free(t *testing.T, device string) bool {
	t.Helper()
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	return true
}

func TestOpen(t *testing.T) {
	path := device(t)
	for _, writable := range []bool{true, false} {
		fs, err := Open(t.Context(), path, writable)
		if err != nil {
			t.Fatal(err)
		}
		if free(t, path) {
			t.Error("the device is free while it is mounted")
		}
		if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), path+" ") {
			t.Errorf("the mount can be seen (%v):\n%s", err, mounts)
		}
		for _, name := range []string{"etc/passwd", "/etc/passwd", "absolute", "up", "../etc/passwd"} {
			f, err := fs.Regular(name)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if text, err := io.ReadAll(f); err != nil || string(text) != "the disk's" {
				t.Errorf("%s: got %q and %v, want the disk's own file", name, text, err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, name := range []string{"magic", "etc", "none"} {
			if _, err := fs.Regular(name); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: got %v, want %v", name, err, os.ErrNotExist)
			}
		}
		for range 2 {
			if err := fs.Mkdir(fmt.Sprintf("writable-%t", writable), 0o755); errors.Is(err, unix.EROFS) == writable || (err == nil) != writable {
				t.Errorf("writable %t: mkdir: got %v", writable, err)
			}
		}
		if err := fs.Close(); err != nil {
			t.Fatal(err)
		}
		if !free(t, path) {
			t.Error("the device is in use after the end of the mount")
		}
	}
	testenv.Run(t, "wipefs", "-qaf", path)
	if _, err := Open(t.Context(), path, false); !errors.Is(err, ErrNoFilesystem) ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want %v that names the device", err, ErrNoFilesystem)
	}
}
