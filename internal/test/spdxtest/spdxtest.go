// Package spdxtest reads SPDX documents with the library of the SPDX project, and checks their licences with GitHub's.
package spdxtest

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/github/go-spdx/v2/spdxexp"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
)

// Read reads a document and checks it: relationships are between elements of the document, licences are on the list of
// SPDX or have a text in the document, and the fields that the specification requires are there.
func Read(t testing.TB, text []byte) *v2_3.Document {
	t.Helper()
	var d v2_3.Document
	if err := spdxjson.ReadInto(bytes.NewReader(text), &d); err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(&d); err != nil {
		t.Error(err)
	}
	texts := map[string]bool{}
	for _, l := range d.OtherLicenses {
		texts[l.LicenseIdentifier] = l.ExtractedText != ""
	}
	ids := map[string]bool{}
	for _, p := range d.Packages {
		id := string(p.PackageSPDXIdentifier)
		if ids[id] || p.PackageName == "" || p.PackageDownloadLocation == "" {
			t.Errorf("package %s: duplicate, or without name or location", id)
		}
		ids[id] = true
		if p.FilesAnalyzed != (p.PackageVerificationCode != nil) {
			t.Errorf("package %s: verification code %v, files analyzed: %v",
				id, p.PackageVerificationCode, p.FilesAnalyzed)
		}
		checkLicense(t, id, p.PackageLicenseDeclared, texts)
	}
	for _, f := range d.Files {
		id := string(f.FileSPDXIdentifier)
		if ids[id] || !strings.HasPrefix(f.FileName, "./") || len(f.Checksums) != 2 {
			t.Errorf("file %s %s: duplicate, no relative path, or %d checksums, want 2",
				id, f.FileName, len(f.Checksums))
		}
		ids[id] = true
		for _, name := range f.LicenseInfoInFiles {
			checkLicense(t, f.FileName, name, texts)
		}
	}
	return &d
}

// ReadFile reads a document from a file and checks it.
func ReadFile(t testing.TB, path string) *v2_3.Document {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return Read(t, text)
}

func checkLicense(t testing.TB, of, expression string, texts map[string]bool) {
	t.Helper()
	if expression == "NOASSERTION" {
		return
	}
	if valid, invalid := spdxexp.ValidateLicenses([]string{expression}); !valid {
		t.Errorf("%s: invalid licence %q", of, invalid)
		return
	}
	names, err := spdxexp.ExtractLicenses(expression)
	if err != nil {
		t.Errorf("%s: licence %q: %v", of, expression, err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "LicenseRef-") && !texts[name] {
			t.Errorf("%s: licence %s has no text", of, name)
		}
	}
}
