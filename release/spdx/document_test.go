package spdx

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/spdxtest"
)

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("x", 3600))

// example returns a document with packages, files and a licence of its own. reverse adds them in another order.
func example(name string, reverse bool) *Document {
	d := New(name, "1.0", strings.Repeat("a", 64), "ARCHIVE")
	steps := []func(){
		func() {
			id := d.AddFile("lib/firmware/x.fw", []byte("firmware"), "LicenseRef-x", "a comment")
			d.Relate(id, "GENERATED_FROM", d.AddPackage(Package{
				Name: "firmware-x", Version: "3:1+2~3", Supplier: "Organization: Debian", Declared: "LicenseRef-x",
			}, strings.Repeat("b", 64), URL("deb", "debian/firmware-x+y", "3:1+2~3", [2]string{"arch", "all"})))
			d.AddLicense(License{ID: "LicenseRef-x", Name: "x", Text: "All <rights> & duties"})
		},
		func() {
			id := d.AddFile("init", []byte("program"), "", "")
			d.Relate(id, "STATIC_LINK", d.AddPackage(Package{Name: "example.com/M", Version: "v1", Declared: "MIT"}, "",
				URL("golang", "example.com/m", "v1")))
			d.AddLicense(License{ID: "LicenseRef-a", Name: "a", Text: "Rights"})
		},
	}
	if reverse {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		step()
	}
	d.SetSource("built from commit 1")
	return d
}

func encode(t *testing.T, d *Document) []byte {
	t.Helper()
	text, err := d.Encode(created, "test-1")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The library of the SPDX project reads the document, and finds in it what was added.
func TestEncode(t *testing.T) {
	text := encode(t, example("a.initramfs", false))
	d := spdxtest.Read(t, text)
	if got, want := d.CreationInfo.Created, "2026-01-02T02:04:05Z"; got != want {
		t.Errorf("date: got %s, want %s", got, want)
	}
	// (printf firmware | sha1sum; printf program | sha1sum) | cut -c-40 | sort | tr -d '\n' | sha1sum
	const code = "30b29e8f62b69fc256f5364ad9a12d39f531078f"
	if got := d.Packages[0]; got.PackageName != "a.initramfs" || got.PackageVerificationCode.Value != code {
		t.Errorf("got package %+v with code %+v, want %s", got, got.PackageVerificationCode, code)
	}
	var urls []string
	for _, p := range d.Packages[1:] {
		urls = append(urls, p.PackageExternalReferences[0].Locator)
	}
	want := []string{"pkg:deb/debian/firmware-x%2By@3:1%2B2~3?arch=all", "pkg:golang/example.com/m@v1"}
	if diff := cmp.Diff(want, urls); diff != "" {
		t.Errorf("package URLs (-want +got):\n%s", diff)
	}
	if got := d.OtherLicenses[1].ExtractedText; got != "All <rights> & duties" {
		t.Errorf("text of the licence: got %q", got)
	}
}

func TestReproducible(t *testing.T) {
	one, two := encode(t, example("a", false)), encode(t, example("a", true))
	if !bytes.Equal(one, two) {
		t.Errorf("another order (-first +second):\n%s", cmp.Diff(string(one), string(two)))
	}
	other := encode(t, example("b", false))
	if namespace(t, other) == namespace(t, one) {
		t.Error("two documents have the same namespace")
	}
}

func namespace(t *testing.T, text []byte) string {
	t.Helper()
	d, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return d.Namespace
}

// A document that includes others has everything of them, and what both have once.
func TestInclude(t *testing.T) {
	parts := []*Document{example("a", false), example("b", false)}
	whole := New("both", "1.0", strings.Repeat("c", 64), "ARCHIVE")
	for _, part := range parts {
		decoded, err := Decode(encode(t, part))
		if err != nil {
			t.Fatal(err)
		}
		whole.Include(decoded)
	}
	d := spdxtest.Read(t, encode(t, whole))
	if len(d.Packages) != 5 || len(d.Files) != 4 || len(d.OtherLicenses) != 2 {
		t.Errorf("got %d packages, %d files and %d licences, want 5, 4 and 2",
			len(d.Packages), len(d.Files), len(d.OtherLicenses))
	}
	ids := map[string]bool{}
	for _, f := range d.Files {
		ids[string(f.FileSPDXIdentifier)] = true
	}
	if len(ids) != 4 {
		t.Errorf("got %d IDs of files, want 4", len(ids))
	}
}

func TestDecodeErrors(t *testing.T) {
	valid := string(encode(t, example("a", false)))
	for name, text := range map[string]string{
		"empty":     "",
		"list":      "[]",
		"version":   strings.Replace(valid, "SPDX-2.3", "SPDX-2.2", 1),
		"artefact":  strings.Replace(valid, `"SPDXRef-Artefact-a"`, `"SPDXRef-Artefact-b"`, 1),
		"no sum":    strings.Replace(valid, `"SHA256"`, `"SHA512"`, 1),
		"truncated": valid[:len(valid)/2],
	} {
		if _, err := Decode([]byte(text)); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestNames(t *testing.T) {
	got := Names("GPL-2.0-only WITH Linux-syscall-note AND (MIT OR (BSD-2-Clause AND MIT))")
	if diff := cmp.Diff([]string{"BSD-2-Clause", "GPL-2.0-only", "MIT"}, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func FuzzDecode(f *testing.F) {
	text, err := example("a", false).Encode(created, "test")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"spdxVersion":"SPDX-2.3","packages":[{"SPDXID":"a"}],"documentDescribes":["a"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Decode(text)
		if err != nil {
			return
		}
		whole := New("whole", "1", strings.Repeat("c", 64), "ARCHIVE")
		whole.Include(d)
		if _, err := whole.Encode(created, "test"); err != nil {
			t.Error(err)
		}
	})
}
