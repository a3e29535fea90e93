package spdx

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func decode(t *testing.T, text []byte) *Document {
	t.Helper()
	d, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A document contains the source, checksums and licences that were added. Values that are not known are NOASSERTION:
// nobody may conclude from it that there is no licence.
func TestContent(t *testing.T) {
	d := decode(t, encode(t, example("a.initramfs", false)))
	artefact, firmware, program := d.Packages[0], d.Packages[1], d.Packages[2]
	if artefact.SourceInfo != "built from commit 1" {
		t.Errorf("got source %q", artefact.SourceInfo)
	}
	want := []string{"LicenseRef-x", Unknown} // sorted, each once
	if diff := cmp.Diff(want, artefact.LicensesInFiles); diff != "" {
		t.Errorf("licences in files (-want +got):\n%s", diff)
	}
	if got := []string{firmware.Concluded, firmware.Declared, firmware.Copyright, firmware.Download}; !slices.Equal(got,
		[]string{Unknown, "LicenseRef-x", Unknown, Unknown}) {
		t.Errorf("package: got concluded and declared licence, copyright and download %q", got)
	}
	if firmware.FilesAnalyzed || firmware.Code != nil || !artefact.FilesAnalyzed {
		t.Errorf("got files analyzed of a package %t with code %v, of the artefact %t, want false, none, true",
			firmware.FilesAnalyzed, firmware.Code, artefact.FilesAnalyzed)
	}
	if diff := cmp.Diff([]checksum{{"SHA256", strings.Repeat("b", 64)}}, firmware.Checksums); diff != "" {
		t.Errorf("checksums (-want +got):\n%s", diff)
	}
	if len(program.Checksums) > 0 {
		t.Errorf("got checksums %v of a package whose sum is not known, want none", program.Checksums)
	}
	if got := d.Files[0]; got.Name != "./init" || !slices.Equal(got.Licenses, []string{Unknown}) {
		t.Errorf("got file %s with licences %q, want ./init, %s", got.Name, got.Licenses, Unknown)
	}
}

// The package URL and the digests of a package are those that in-toto statements name.
func TestPackage(t *testing.T) {
	url := URL("golang", "example.com/m", "v1", [2]string{"a", ""}, [2]string{"b", "1"}, [2]string{"c", "2"})
	if want := "pkg:golang/example.com/m@v1?b=1&c=2"; url != want {
		t.Errorf("got package URL %s, want %s", url, want)
	}
	d := New("a", "1.0", strings.Repeat("a", 64), "ARCHIVE")
	d.AddPackage(Package{Name: "m", DirHash: "cafe"}, strings.Repeat("b", 64), url)
	p := d.Packages[1]
	if p.URL() != url || d.Packages[0].URL() != "" {
		t.Errorf("got package URLs %q and %q, want %q and none", p.URL(), d.Packages[0].URL(), url)
	}
	want := map[string]string{"sha256": strings.Repeat("b", 64), "dirHash": "cafe"}
	if diff := cmp.Diff(want, p.Digests()); diff != "" {
		t.Errorf("digests (-want +got):\n%s", diff)
	}
	want = map[string]string{"sha256": strings.Repeat("a", 64)}
	if diff := cmp.Diff(want, d.Packages[0].Digests()); diff != "" {
		t.Errorf("digests without a hash of a directory (-want +got):\n%s", diff)
	}
}

// An included document keeps its relationships, and its artefact is part of the other. Only the outer artefact is
// described.
func TestIncludeRelationships(t *testing.T) {
	part := example("a", false)
	whole := New("both", "1.0", strings.Repeat("c", 64), "ARCHIVE")
	whole.Include(decode(t, encode(t, part)))
	encoded := encode(t, whole)
	got := decode(t, encoded).Relationships
	count := map[relationship]int{}
	for _, r := range got {
		count[r]++
		if count[r] > 1 {
			t.Errorf("relationship %v is there twice", r)
		}
		if r.From == documentID && r.To != whole.Artefact() {
			t.Errorf("got a description of %s", r.To)
		}
	}
	if count[relationship{whole.Artefact(), "CONTAINS", part.Artefact()}] != 1 {
		t.Errorf("the artefact of the included document is not contained: %v", got)
	}
	for _, r := range part.Relationships {
		if r.From != documentID && count[r] != 1 {
			t.Errorf("relationship %v is missing", r)
		}
	}
}

// Encoding again gives the same bytes, also if a relationship was added again.
func TestEncodeAgain(t *testing.T) {
	d := example("a", false)
	first := encode(t, d)
	d.Relate(d.Artefact(), "CONTAINS", d.Files[0].ID)
	if again := encode(t, d); !bytes.Equal(first, again) {
		t.Errorf("(-first +second):\n%s", cmp.Diff(string(first), string(again)))
	}
	if !bytes.Contains(first, []byte("All <rights> & duties")) || !bytes.Contains(first, []byte("\n \"SPDXID\"")) {
		t.Errorf("the document is not indented text without escapes:\n%s", first)
	}
}

// A document that is too large, or has a file without a checksum, is rejected by name.
func TestDecodeLimits(t *testing.T) {
	if _, err := Decode(make([]byte, maxDocument+1)); err == nil || !strings.Contains(err.Error(), "67108865 bytes") {
		t.Errorf("large document: got error %v", err)
	}
	d := example("a", false)
	d.Files[0].Checksums = nil
	text, err := d.marshal()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Decode(text)
	if err == nil || !strings.Contains(err.Error(), "file ./lib/firmware/x.fw has no checksum") {
		t.Errorf("file without a checksum: got error %v", err)
	}
}

// The package verification code does not depend on the order of the files.
func TestVerificationCode(t *testing.T) {
	d := New("a", "1.0", strings.Repeat("a", 64), "ARCHIVE")
	for _, name := range []string{"1", "2", "3", "4", "5", "6"} {
		d.AddFile(name, []byte(name), "", "")
	}
	// for i in 1 2 3 4 5 6; do printf $i | sha1sum; done | cut -c-40 | sort | tr -d '\n' | sha1sum
	const want = "17f56c5658b7f3e291b6658be506bfb61c95df5b"
	if got := decode(t, encode(t, d)).Packages[0].Code; got == nil || got.Value != want {
		t.Errorf("got package verification code %v, want %s", got, want)
	}
}
