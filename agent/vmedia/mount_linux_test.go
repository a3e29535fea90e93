package vmedia

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

// Unmount removes all mounts on a directory, up to a limit. A directory without mounts is no error.
func TestUnmount(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	mount := func(n int) {
		t.Helper()
		for range n {
			testenv.Mount(t, "tmpfs", dir, "tmpfs", "size=64k")
		}
	}
	t.Cleanup(func() {
		for unix.Unmount(dir, unix.MNT_DETACH) == nil { //nolint:revive // until nothing is mounted
		}
	})
	mounted := func() bool {
		t.Helper()
		var here, above unix.Stat_t
		if err := errors.Join(unix.Stat(dir, &here), unix.Stat(filepath.Dir(dir), &above)); err != nil {
			t.Fatal(err)
		}
		return here.Dev != above.Dev
	}
	for _, n := range []int{0, 1, 3} {
		mount(n)
		if err := Unmount(dir); err != nil || mounted() {
			t.Errorf("%d mounts: got %v, still mounted: %v", n, err, mounted())
		}
	}
	mount(maxMounts + 1)
	if err := Unmount(dir); err == nil || !strings.Contains(err.Error(), "64 mounts") {
		t.Errorf("got %v, want an error that names the bound", err)
	}
	if err := Unmount(filepath.Join(dir, "missing")); err != nil {
		t.Errorf("no such directory: got %v, want nil", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Unmount(filepath.Join(file, "x")); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("below a file: got %v, want ENOTDIR", err)
	}
}
