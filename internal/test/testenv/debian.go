package testenv

import (
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/cachedir"
)

// DebianDisk returns the path of an ext4 image of a minimal Debian of the given release with additional packages. It
// builds the image if it is not in the user's cache.
func DebianDisk(t testing.TB, suite string, packages ...string) string {
	t.Helper()
	Root(t)
	Programs(t, "mmdebstrap", "mke2fs")
	recipe := strings.Join(append([]string{suite}, packages...), ",")
	disk, err := cachedir.Get("", "debian-"+suite, recipe, func(path string) error {
		root := filepath.Join(t.TempDir(), "root")
		Run(t, "mmdebstrap", "--quiet", "--variant=essential", `--aptopt=APT::Install-Recommends "false"`,
			"--dpkgopt=force-unsafe-io", "--include="+strings.Join(packages, ","),
			"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
			"--dpkgopt=path-exclude=/usr/share/man/*", suite, root)
		Run(t, "mke2fs", "-q", "-t", "ext4", "-d", root, path, "512M")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return disk
}
