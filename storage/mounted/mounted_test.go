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

	"ironroot/internal/test/testenv"
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
	for name, target := range map[string]string{
		"absolute": "/etc/passwd", "up": "../../../etc/passwd", "magic": "/proc/self/exe",
	} {
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
			err := fs.Mkdir(fmt.Sprintf("writable-%t", writable), 0o755)
			if errors.Is(err, unix.EROFS) == writable || (err == nil) != writable {
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

func TestMkdirAllAndRemove(t *testing.T) {
	path := device(t)
	fs, err := Open(t.Context(), path, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		created bool
		fails   error
	}{
		{"a/b/c", true, nil},
		{"/a/b/c", false, nil},
		{"a/b", false, nil},
		{"a/b/../d/", true, nil},
		{"/", false, nil},
		{"", false, nil},
		{"../etc", false, nil},
		{"etc/passwd/a", false, unix.ENOTDIR},
	} {
		created, err := fs.MkdirAll(c.name, 0o711)
		if created != c.created || !errors.Is(err, c.fails) {
			t.Errorf("%s: got %v and error %v, want %v and %v", c.name, created, err, c.created, c.fails)
		}
	}
	d, err := fs.Open("a/d")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := d.Stat(); err != nil || info.Mode() != os.ModeDir|0o711 {
		t.Errorf("got mode %v and error %v, want a directory of mode 0711", info.Mode(), err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for name, fails := range map[string]error{
		"absolute": nil, "/a/../up": nil, "a": unix.EISDIR, "none": os.ErrNotExist, "none/none": os.ErrNotExist,
	} {
		if err := fs.Remove(name); !errors.Is(err, fails) {
			t.Errorf("%s: got error %v, want %v", name, err, fails)
		}
	}
	// The links were removed, and not what they name.
	if f, err := fs.Open("etc/passwd"); err != nil {
		t.Error(err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := fs.Close(); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "e2fsck", "-fn", path)
}
