package initramfs

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ironroot/initramfs/debian"
	"ironroot/internal/test/testenv"
)

// Two builds with different source directories, caches, home directories, umasks, time zones and settings of Go are
// identical. They share only the downloaded packages.
func TestReproducibleImage(t *testing.T) {
	first := testenv.Top(t)
	second := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.MkdirAll(second, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"go.mod", "go.sum", "tools.go", "agent", "initramfs", "internal", "netboot", "storage", "uinit",
	} {
		if _, err := os.Stat(filepath.Join(first, part)); err == nil {
			testenv.Run(t, "cp", "-r", filepath.Join(first, part), filepath.Join(second, part))
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cache = filepath.Join(cache, "ironroot")
	one := sumImage(t, Options{Dir: first, CacheDir: cache})

	cold := t.TempDir()
	for _, part := range []string{"packages", "kernel-trees", "firmware"} {
		if err := os.Symlink(filepath.Join(cache, part), filepath.Join(cold, part)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"GOMODCACHE", "GOCACHE"} { // otherwise both follow HOME
		t.Setenv(name, strings.TrimSpace(testenv.Run(t, "go", "env", name)))
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("TZ", "Pacific/Kiritimati")
	t.Setenv("LC_ALL", "C")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("GOFLAGS", "-ldflags=-X=main.x=y")
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	if two := sumImage(t, Options{Dir: second, CacheDir: cold}); one != two {
		t.Errorf("two builds of the same source differ: %s and %s", one, two)
	}
}

// sumImage builds an image with shell, modules and firmware, and returns the SHA-256 of its files.
func sumImage(t *testing.T, o Options) string {
	t.Helper()
	o.ModuleGroups, o.Shell, o.Debian = []string{"virtual", "network"}, true, debian.Options{Locked: true}
	report := build(t, func(changed *Options) {
		o.Out = changed.Out
		*changed = o
	})
	hash := sha256.New()
	for _, path := range []string{report.Initramfs, report.Kernel, report.Tarball} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		t.Logf("%x %s", sum, filepath.Base(path))
		_, _ = hash.Write(data)
	}
	return hex.EncodeToString(hash.Sum(nil))
}
