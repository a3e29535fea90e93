package testenv

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// DebianDisk returns the path of an ext4 image of a minimal Debian of the given release with additional packages. It
// builds the image if it is not in the user's cache.
func DebianDisk(t testing.TB, suite string, packages ...string) string {
	t.Helper()
	Root(t)
	Programs(t, "mmdebstrap", "mke2fs")
	return Cached(t, "debian", suite+"-"+strings.Join(packages, ","), func(path string) {
		root := filepath.Join(t.TempDir(), "root")
		Run(t, "mmdebstrap", "--quiet", "--variant=essential", `--aptopt=APT::Install-Recommends "false"`,
			"--dpkgopt=force-unsafe-io", "--include="+strings.Join(packages, ","),
			"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
			"--dpkgopt=path-exclude=/usr/share/man/*", suite, root)
		Run(t, "mke2fs", "-q", "-t", "ext4", "-d", root, path, "512M")
	})
}

// Cached returns the path of a file or directory in the user's cache, which tests must not change. It calls build with
// the path to create if it does not exist. kind is the directory in the cache, recipe all that build depends on.
func Cached(t testing.TB, kind, recipe string, build func(path string)) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(recipe))
	path := filepath.Join(cache, "ironroot", kind, hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(path + ".lock") // tests of other packages can build the same now
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatalf("lock %s: %v", lock.Name(), err)
	}
	if fileExists(path) {
		return path
	}
	if err := os.RemoveAll(path + ".new"); err != nil { // of a build that failed
		t.Fatal(err)
	}
	build(path + ".new")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}
