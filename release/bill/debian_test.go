package bill

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/initramfs/debian"
	"ironroot/internal/test/testenv"
	"ironroot/release/license"
	"ironroot/release/spdx"
)

// deb makes a package with the file usr/bin/NAME and a copyright file in the machine-readable format.
func deb(t *testing.T, name string) string {
	t.Helper()
	testenv.Programs(t, "dpkg-deb")
	root := t.TempDir()
	for path, text := range map[string]string{
		"DEBIAN/control": "Package: " + name + "\nSource: source-of-" + name + "\nVersion: 1.0-1\n" +
			"Architecture: all\nMaintainer: Nobody <nobody@example.com>\nDescription: test\n",
		"DEBIAN/md5sums":  strings.Repeat("0", 32) + "  usr/bin/" + name + "\n",
		"usr/bin/" + name: "program",
		"usr/share/doc/" + name + "/copyright": "Format: " +
			"https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n" +
			"Files: *\nCopyright: Someone\nLicense: ISC\n\nFiles: debian/*\nCopyright: Someone\nLicense: GPL-2\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // dpkg-deb requires the mode
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), name+".deb")
	testenv.Run(t, "dpkg-deb", "--root-owner-group", "--build", root, file)
	return file
}

// A document names the package, its source and its licence: the licence of the files in use if it is known, and
// otherwise of all files except the packaging. The copyright file of a signed program is not about the program.
func TestPackages(t *testing.T) {
	archive, err := debian.Open(debian.Options{Suite: "trixie", CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	const signedName = "grub-efi-amd64-signed"
	debs := []string{deb(t, "first"), deb(t, "second"), deb(t, signedName)}
	packages, err := ReadPackages(archive, debs, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := packages.Of("usr/bin/none"); got != nil {
		t.Errorf("a file of no package: got %v", got)
	}
	d := spdx.New("whole", "1", strings.Repeat("0", 64), "ARCHIVE")
	for name, used := range map[string]license.Found{
		"first": {}, "second": {Expression: "MIT", Licenses: []spdx.License{{ID: "LicenseRef-x"}}}, signedName: {},
	} {
		one := packages.Of("usr/bin/" + name)
		if one == nil {
			t.Fatalf("no package has usr/bin/%s", name)
		}
		for range 2 { // the second time reads no file
			id, err := packages.Add(t.Context(), d, one, used)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(id, name) {
				t.Errorf("got ID %s of %s", id, name)
			}
			if err := os.RemoveAll(one.deb); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := map[string][4]string{}
	for _, p := range d.Packages[1:] {
		source, _, _ := strings.Cut(p.SourceInfo, ";")
		got[p.Name] = [4]string{p.Version, p.Declared, p.LicenseComments, source}
	}
	source := "binary package of the source package source-of-"
	if diff := cmp.Diff(map[string][4]string{
		"first": {
			"1.0-1", "ISC", "the licences of all source files, except those of the packaging", source + "first",
		},
		"second": {"1.0-1", "MIT", "the licence of the files that are in the artefact", source + "second"},
		signedName: {
			"1.0-1", "GPL-3.0-or-later",
			"the licence of the signed program; the copyright file describes its signature", source + signedName,
		},
	}, got); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	if len(d.Licenses) != 1 || d.Licenses[0].ID != "LicenseRef-x" {
		t.Errorf("got licences %v, want that of the used files", d.Licenses)
	}
	if _, err := ReadPackages(archive, debs, ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing package: got %v, want %v", err, fs.ErrNotExist)
	}
}

// A package without a copyright file is an error.
func TestPackageWithoutCopyright(t *testing.T) {
	archive, err := debian.Open(debian.Options{Suite: "trixie", CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	file := deb(t, "first")
	packages, err := ReadPackages(archive, []string{file}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	d := spdx.New("whole", "1", strings.Repeat("0", 64), "ARCHIVE")
	if _, err := packages.Add(t.Context(), d, packages.packages[0], license.Found{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
	if len(d.Packages) != 1 {
		t.Errorf("got packages %v, want none", d.Packages[1:])
	}
}
