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
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	recipe := sha256.Sum256([]byte(strings.Join(packages, ",")))
	disk := filepath.Join(cache, "ironroot", "debian", suite+"-"+hex.EncodeToString(recipe[:6])+".ext4")
	if err := os.MkdirAll(filepath.Dir(disk), 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(disk + ".lock") // tests of other packages can build the same image now
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatalf("lock %s: %v", lock.Name(), err)
	}
	if fileExists(disk) {
		return disk
	}
	root := filepath.Join(t.TempDir(), "root")
	Run(t, "mmdebstrap", "--quiet", "--variant=essential", `--aptopt=APT::Install-Recommends "false"`,
		"--dpkgopt=force-unsafe-io", "--include="+strings.Join(packages, ","),
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/man/*", suite, root)
	Run(t, "mke2fs", "-q", "-t", "ext4", "-d", root, disk+".new", "512M")
	if err := os.Rename(disk+".new", disk); err != nil {
		t.Fatal(err)
	}
	return disk
}
