package license

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/github/go-spdx/v2/spdxexp"
	"github.com/google/go-cmp/cmp"
	"github.com/google/licensecheck"

	"ironroot/internal/test/testenv"
)

// Each module that this one requires has a licence of the list of SPDX, and those that have no file with one are known.
func TestModules(t *testing.T) {
	testenv.Programs(t, "go")
	without := map[string]bool{
		"github.com/mattn/go-localereader": true, // no part of a program: gosh has another line editor
	}
	cmd := exec.Command("go", "list", "-m", "-f", "{{if .Dir}}{{.Path}} {{.Dir}}{{end}}", "all")
	cmd.Dir = testenv.Top(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		found, err := OfModule(name, dir)
		if err != nil {
			t.Error(err)
			continue
		}
		seen[name] = found.Expression
		if found.Expression == "" {
			if !without[name] {
				t.Errorf("%s: no licence in %s", name, dir)
			}
			continue
		}
		if valid, invalid := spdxexp.ValidateLicenses([]string{found.Expression}); !valid {
			t.Errorf("%s: licence %q is not one of SPDX", name, invalid)
		}
		for _, l := range found.Licenses {
			t.Errorf("%s: licence %s is not on the list of SPDX", name, l.ID)
		}
	}
	// As the modules' authors declare them.
	for name, want := range map[string]string{
		"ironroot":                                "Apache-2.0",
		"github.com/klauspost/compress":           "Apache-2.0 AND BSD-3-Clause AND MIT",
		"github.com/siderolabs/go-blockdevice/v2": "MPL-2.0",
		"github.com/mdlayher/packet":              "MIT",
		"golang.org/x/sys":                        "BSD-3-Clause",
	} {
		if seen[name] != want {
			t.Errorf("%s: got licence %q, want %q", name, seen[name], want)
		}
	}
	root := strings.TrimSpace(testenv.Run(t, "go", "env", "GOROOT"))
	if found, err := OfModule("stdlib", root); err != nil || found.Expression != "BSD-3-Clause" {
		t.Errorf("standard library: got licence %q (%v), want BSD-3-Clause", found.Expression, err)
	}
}

// Each ID of licensecheck is on the list of SPDX, or known not to be.
func TestNotListed(t *testing.T) {
	var invalid []string
	for _, l := range licensecheck.BuiltinLicenses() {
		if valid, _ := spdxexp.ValidateLicenses([]string{l.ID}); !valid && !slices.Contains(invalid, l.ID) {
			invalid = append(invalid, l.ID)
		}
	}
	slices.Sort(invalid)
	if diff := cmp.Diff(slices.Sorted(slices.Values(notListed)), invalid); diff != "" {
		t.Errorf("IDs that are not on the list (-want +got):\n%s", diff)
	}
}

func TestUnknownText(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE": "You may use this on Mondays.\n", "LICENSE.docs": "ignored", "license_test.go": "package x",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := OfModule("example.com/a_b", dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := "LicenseRef-example.com-a-b"; found.Expression != want || len(found.Licenses) != 1 ||
		found.Licenses[0].ID != want || found.Licenses[0].Text != "You may use this on Mondays.\n" {
		t.Errorf("got %+v", found)
	}
	if err := os.WriteFile(filepath.Join(dir, "COPYING"), make([]byte, maxLicense+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OfModule("x", dir); err == nil {
		t.Error("a licence of 1 MiB is no error")
	}
	if found, err := OfModule("x", t.TempDir()); err != nil || found.Expression != "" {
		t.Errorf("no file: got %+v, %v", found, err)
	}
}

func TestOfKernelModule(t *testing.T) {
	for name, want := range map[string]string{
		"GPL": "GPL-2.0-only", "GPL v2": "GPL-2.0-only", "Dual MIT/GPL": "MIT OR GPL-2.0-only",
		"Dual BSD/GPL": "LicenseRef-modinfo-Dual-BSD-GPL", "Proprietary": "LicenseRef-modinfo-Proprietary", "": "",
	} {
		found := OfKernelModule(name)
		if found.Expression != want {
			t.Errorf("%q: got %q, want %q", name, found.Expression, want)
		}
		if strings.HasPrefix(want, "LicenseRef-") && !strings.Contains(found.Licenses[0].Text, name) {
			t.Errorf("%q: text %q does not name it", name, found.Licenses[0].Text)
		}
	}
}

const copyright = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Files-Excluded:
# a comment
 a/*

Files: *
Copyright: 2000 A
License: GPL-2+

Files: debian/*
License: GPL-3

Files: firmware/*.bin
 other\*name ab?
Copyright: 2001 B
  2002 C
License: binary-redist
 You may copy it.
 .
  Indented.

Files: firmware/free.bin
License: Expat or GPL-2 and BSD-3-clause

Files: odd
License: GPL-2+ with OpenSSL exception

Files: listed
License: named-elsewhere

License: named-elsewhere
 The text.
`

func TestCopyright(t *testing.T) {
	c := ParseCopyright("pkg", []byte(copyright))
	for name, want := range map[string]string{
		"any": "GPL-2.0-or-later", "debian/rules": "GPL-3.0-only", "firmware/a/b.bin": "LicenseRef-pkg-binary-redist",
		"other*name": "LicenseRef-pkg-binary-redist", "otherXname": "GPL-2.0-or-later",
		"abc": "LicenseRef-pkg-binary-redist", "ab": "GPL-2.0-or-later",
		"firmware/free.bin": "MIT OR GPL-2.0-only AND BSD-3-Clause",
		"odd":               "LicenseRef-pkg-GPL-2-with-OpenSSL-exception", "listed": "LicenseRef-pkg-named-elsewhere",
	} {
		if got := c.OfFile(name).Expression; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	texts := map[string]string{}
	whole := c.OfPackage()
	for _, l := range whole.Licenses {
		texts[l.ID] = l.Text
	}
	want := map[string]string{
		"LicenseRef-pkg-binary-redist":   "You may copy it.\n\n Indented.",
		"LicenseRef-pkg-named-elsewhere": "The text.",
		"LicenseRef-pkg-GPL-2-with-OpenSSL-exception": "The copyright file of the Debian package names the " +
			"licence as: GPL-2+ with OpenSSL exception",
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
	if want := "GPL-2.0-or-later AND LicenseRef-pkg-GPL-2-with-OpenSSL-exception AND " +
		"LicenseRef-pkg-binary-redist AND LicenseRef-pkg-named-elsewhere AND " +
		"(MIT OR GPL-2.0-only AND BSD-3-Clause)"; whole.Expression != want {
		t.Errorf("package: got %q, want %q", whole.Expression, want)
	}
	if got := ParseCopyright("x", []byte("Just text.\n\nMore text.")).OfPackage().Expression; got != "" {
		t.Errorf("another format: got %q, want none", got)
	}
}

func FuzzParseCopyright(f *testing.F) {
	f.Add([]byte(copyright), "firmware/a.bin")
	f.Add([]byte("Files: *a*a*a*a*a*b\nLicense: x or y,\n"), strings.Repeat("a", 100))
	f.Add([]byte("Files: \\\nLicense: and\n"), "\\")
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		c := ParseCopyright("pkg", text)
		c.OfPackage()
		c.OfFile(name)
	})
}
