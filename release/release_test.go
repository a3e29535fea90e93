package release

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/release/bill"
	"ironroot/release/oci"
	"ironroot/release/provenance"
	"ironroot/release/signature"
	"ironroot/release/spdx"
)

// keys returns a signer and its public key, both made by minisign.
func keys(t *testing.T) (signature.Signer, signature.PublicKey) {
	t.Helper()
	testenv.Programs(t, "minisign")
	dir := t.TempDir()
	testenv.Run(t, "minisign", "-G", "-W", "-p", filepath.Join(dir, "pub"), "-s", filepath.Join(dir, "key"))
	signer, err := signature.LoadSigner(filepath.Join(dir, "key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signature.LoadPublicKey(filepath.Join(dir, "pub"))
	if err != nil {
		t.Fatal(err)
	}
	return signer, key
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// example writes signed artefacts into a new directory and returns it.
func example(t *testing.T, signer signature.Signer) string {
	t.Helper()
	dir := t.TempDir()
	kernel, layout := filepath.Join(dir, "a.kernel"), filepath.Join(dir, "a.oci")
	write(t, kernel, "kernel")
	write(t, kernel+ChecksumSuffix, testenv.Run(t, "sh", "-c", `cd "$0" && sha256sum a.kernel`, dir))
	build := bill.Build{Version: "1.0", Created: time.Unix(1700000000, 0)}
	sum, err := bill.SumFile(kernel)
	if err != nil {
		t.Fatal(err)
	}
	d := spdx.New("a.kernel", "1.0", sum, "OPERATING-SYSTEM")
	write(t, kernel+PredictionSuffix, "{}    ")
	if err := build.Write(kernel, d, provenance.Definition{Command: "image"}, kernel+PredictionSuffix); err != nil {
		t.Fatal(err)
	}
	images := []oci.Image{{Arch: "amd64", Files: []string{kernel}}}
	digest, err := oci.Write(layout, oci.Options{Images: images, Tag: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := build.WriteLayout(layout, digest, []string{kernel}); err != nil {
		t.Fatal(err)
	}
	if err := Sign(signer, []string{kernel, layout}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Artefacts are verified by the key that signed them, and by no other one.
func TestVerifyAcceptsTheSigningKeyOnly(t *testing.T) {
	signer, key := keys(t)
	dir := example(t, signer)
	for _, paths := range [][]string{{dir}, {filepath.Join(dir, "a.kernel"), filepath.Join(dir, "a.oci")}} {
		var log bytes.Buffer
		if err := Verify(key, paths, &log); err != nil {
			t.Error(err)
		}
		if got := strings.Count(log.String(), "verified "); got != 2 {
			t.Errorf("got %d verified artefacts, want 2:\n%s", got, &log)
		}
	}
	_, other := keys(t)
	if err := Verify(other, []string{dir}, &bytes.Buffer{}); err == nil ||
		strings.Count(err.Error(), "made with key") != 2 {
		t.Errorf("another key: got error %v", err)
	}
}

// A changed byte in any file, and a missing or an additional file is an error that names the file.
func TestVerifyChanges(t *testing.T) {
	signer, key := keys(t)
	whole := example(t, signer)
	var names []string
	err := fs.WalkDir(os.DirFS(whole), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 8 {
		t.Fatalf("got files %v, want more", names)
	}
	for _, name := range names {
		for change, apply := range map[string]func(path string, data []byte) error{
			"changed": func(path string, data []byte) error {
				i := len(data) - 4 // not in the untrusted comment of a signature
				data[i]++
				return os.WriteFile(path, data, 0o600)
			},
			"missing": func(path string, _ []byte) error { return os.Remove(path) },
		} {
			if change == "missing" && strings.HasSuffix(name, ChecksumSuffix) {
				continue // the signature suffices
			}
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, name)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := apply(path, data); err != nil {
				t.Fatal(err)
			}
			want := strings.TrimPrefix(strings.TrimSuffix(name, signature.Suffix), "a.oci/")
			if filepath.Base(name) == "oci-layout" && change == "missing" {
				want = "a.oci"
			}
			var log bytes.Buffer
			err = Verify(key, []string{dir}, &log)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: got error %v, want one that names it", change, name, err)
			}
			artefact, _, _ := strings.Cut(name, "/")
			artefact = artefactOf(artefact)
			if strings.Contains(log.String(), artefact+",") || strings.Count(log.String(), "verified ") != 1 {
				t.Errorf("%s %s: got log\n%swant the other artefact alone", change, name, &log)
			}
		}
	}
}

// A file that belongs to an artefact which is not verified is not verified either, and named.
func TestVerifyNamesCompanions(t *testing.T) {
	signer, key := keys(t)
	for artefact, companions := range map[string][]string{
		"a.kernel": {
			"a.kernel.minisig", "a.kernel.sha256", "a.kernel.spdx.json", "a.kernel.spdx.json.minisig",
			"a.kernel.provenance.json", "a.kernel.pcr.json",
		},
		"a.oci": {"a.oci.spdx.json", "a.oci.provenance.json", "a.oci.provenance.json.minisig"},
	} {
		dir := example(t, signer)
		changed := filepath.Join(dir, artefact)
		if artefact == "a.oci" {
			changed = filepath.Join(changed, oci.IndexFile)
		}
		write(t, changed, "changed")
		err := Verify(key, []string{filepath.Join(dir, artefact)}, &bytes.Buffer{})
		if err == nil {
			t.Fatalf("%s: got no error", artefact)
		}
		for _, companion := range companions {
			if want := filepath.Join(dir, companion) + ": not verified"; !strings.Contains(err.Error(), want) {
				t.Errorf("got error %v, want one with %q", err, want)
			}
		}
	}
	// Each document that is not verified is named, not only the first one.
	dir := example(t, signer)
	for _, suffix := range []string{spdx.Suffix, provenance.Suffix, PredictionSuffix} {
		write(t, filepath.Join(dir, "a.kernel"+suffix), "changed")
	}
	err := Verify(key, []string{filepath.Join(dir, "a.kernel")}, &bytes.Buffer{})
	for _, suffix := range []string{spdx.Suffix, provenance.Suffix, PredictionSuffix} {
		if err == nil || !strings.Contains(err.Error(), "a.kernel"+suffix) {
			t.Errorf("got error %v, want one that names a.kernel%s", err, suffix)
		}
	}
}

// Documents that are signed, but belong to another content of the same name, are errors, and so is a missing
// prediction.
func TestVerifyOtherBuild(t *testing.T) {
	signer, key := keys(t)
	for want, change := range map[string]func(prediction string){
		"a.kernel.pcr.json has SHA-256": func(prediction string) {
			write(t, prediction, "{\"older\": 1}")
			if err := signer.Sign(prediction); err != nil {
				t.Fatal(err)
			}
		},
		"is about a.kernel.pcr.json, which is missing": func(prediction string) {
			for _, path := range []string{prediction, prediction + signature.Suffix} {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		dir := example(t, signer)
		change(filepath.Join(dir, "a.kernel"+PredictionSuffix))
		if err := Verify(key, []string{dir}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}

// Signed documents of another artefact do not describe this one.
func TestVerifyOtherDocuments(t *testing.T) {
	signer, key := keys(t)
	build := bill.Build{Version: "1.0", Created: time.Unix(1700000000, 0)}
	for name, tt := range map[string]struct {
		change func(kernel string)
		want   string
	}{
		"new content": {
			func(kernel string) { write(t, kernel, "another kernel") }, "spdx.json: describes a.kernel with SHA-256",
		},
		"document of another file": {
			func(kernel string) {
				sum, err := bill.SumFile(kernel)
				if err != nil {
					t.Fatal(err)
				}
				d := spdx.New("b.kernel", "1.0", sum, "OPERATING-SYSTEM")
				if err := build.Write(kernel, d, provenance.Definition{Command: "image"}); err != nil {
					t.Fatal(err)
				}
			}, "spdx.json: describes b.kernel with SHA-256",
		},
		"new provenance": {
			func(kernel string) {
				statement, err := os.ReadFile(kernel + provenance.Suffix)
				if err != nil {
					t.Fatal(err)
				}
				other := strings.Replace(string(statement), `"a.kernel"`, `"b.kernel"`, 1)
				write(t, kernel+provenance.Suffix, other)
			}, "provenance.json: ",
		},
	} {
		kernel := filepath.Join(example(t, signer), "a.kernel")
		tt.change(kernel)
		if err := os.Remove(kernel + ChecksumSuffix); err != nil {
			t.Fatal(err)
		}
		if err := Sign(signer, []string{kernel}); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		err := Verify(key, []string{kernel}, &log)
		if err == nil || !strings.Contains(err.Error(), tt.want) || log.Len() != 0 {
			t.Errorf("%s: got error %v and log %q, want %q", name, err, &log, tt.want)
		}
	}
}

func TestVerifyDirectory(t *testing.T) {
	signer, key := keys(t)
	for want, add := range map[string]func(dir string){
		"b.kernel.minisig": func(dir string) { write(t, filepath.Join(dir, "b.kernel"), "not signed") },
		"there is no b":    func(dir string) { write(t, filepath.Join(dir, "b.minisig"), "") },
		"there is no c":    func(dir string) { write(t, filepath.Join(dir, "c.sha256"), "") },
		"not an OCI layout": func(dir string) {
			if err := os.Mkdir(filepath.Join(dir, "more"), 0o755); err != nil {
				t.Fatal(err)
			}
		},
	} {
		dir := example(t, signer)
		add(dir)
		if err := Verify(key, []string{dir}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	// No signature covers these.
	for _, name := range []string{
		"a.oci.sha256", "a.oci.minisig", "a.kernel.spdx.json.sha256", "a.kernel.sha256.minisig",
		"a.kernel.minisig.pcr.json", "a.oci.spdx.json.spdx.json", "a.kernel.minisig.minisig",
	} {
		dir := example(t, signer)
		path := filepath.Join(dir, name)
		write(t, path, "")
		err := Verify(key, []string{dir}, &bytes.Buffer{})
		if want := path + ": not verified"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	// The name could clear a line of the terminal, and then claim that a file was verified.
	const unprintable = "x\x1b[2K\rverified a.kernel, SHA-256 0\n\u202e"
	for _, below := range []string{"", "a.oci"} {
		dir := example(t, signer)
		write(t, filepath.Join(dir, below, unprintable), "")
		err := Verify(key, []string{dir}, &bytes.Buffer{})
		if err == nil || strings.Contains(err.Error(), unprintable) ||
			!strings.Contains(err.Error(), strconv.Quote(unprintable)) {
			t.Errorf("in %q: got error %q, want the quoted name", below, err)
		}
	}
	empty := t.TempDir()
	if err := Verify(key, []string{empty}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "no files") {
		t.Errorf("empty directory: got error %v", err)
	}
	if err := Verify(key, []string{filepath.Join(empty, "none")}, &bytes.Buffer{}); err == nil {
		t.Error("missing directory: got no error")
	}
}

func TestFindSource(t *testing.T) {
	testenv.Programs(t, "git")
	dir := t.TempDir()
	find := func() Source {
		t.Helper()
		s, err := FindSource(context.Background(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if got, want := find(), (Source{Date: time.Unix(0, 0).UTC()}); got != want {
		t.Errorf("no checkout: got %v, want %v", got, want)
	}
	git := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(testenv.Run(t, "git", append([]string{
			"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false",
		}, args...)...))
	}
	git("init", "-q")
	if got, want := find(), (Source{Date: time.Unix(0, 0).UTC()}); got != want {
		t.Errorf("another project: got %v, want %v", got, want)
	}
	write(t, filepath.Join(dir, "go.mod"), "module ironroot\n")
	write(t, filepath.Join(dir, ".gitignore"), "go.mod\n.gitignore\n")
	if got := find(); got.Err == nil || got.Commit != "" {
		t.Errorf("no commit: got %v, want an error", got)
	}
	t.Setenv("GIT_COMMITTER_DATE", "1700000000 +0200")
	git("commit", "-q", "--allow-empty", "-m", "first")
	want := Source{Commit: git("rev-parse", "HEAD"), Date: time.Unix(1700000000, 0).UTC()}
	if got := find(); got != want {
		t.Errorf("commit: got %v, want %v", got, want)
	}
	write(t, filepath.Join(dir, "new"), "text")
	want.Modified = true
	if got := find(); got != want {
		t.Errorf("new file: got %v, want %v", got, want)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1234567890")
	want.Date = time.Unix(1234567890, 0).UTC()
	if got := find(); got != want {
		t.Errorf("SOURCE_DATE_EPOCH: got %v, want %v", got, want)
	}
	for _, text := range []string{"", "today", "-1"} {
		t.Setenv("SOURCE_DATE_EPOCH", text)
		if _, err := FindSource(context.Background(), dir); err == nil {
			t.Errorf("SOURCE_DATE_EPOCH=%q: got no error", text)
		}
	}
}
