package oci

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// created is the time of the images.
var created = time.Unix(1700000000, 0)

// files writes files into a directory and returns their paths.
func files(t *testing.T, dir string, content map[string]string) []string {
	t.Helper()
	var paths []string
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// example writes a layout with two images and returns its directory.
func example(t *testing.T, change func(*Options)) string {
	t.Helper()
	in := t.TempDir()
	o := Options{
		Images: []Image{
			{"arm64", files(t, in, map[string]string{"a.kernel": "arm kernel", "a.initramfs": "arm files"})},
			{"amd64", files(t, in, map[string]string{"b.kernel": "x86 kernel", "b.initramfs": "x86 files"})},
		},
		Tag: "1.0", Created: created,
		Annotations: map[string]string{"org.opencontainers.image.title": "x"},
	}
	if change != nil {
		change(&o)
	}
	dir := filepath.Join(t.TempDir(), "layout")
	if _, err := Write(dir, o); err != nil {
		t.Fatal(err)
	}
	return dir
}

// readImages returns the content of each image in a layout by platform and name, as go-containerregistry reads it.
func readImages(t *testing.T, dir string) map[string]map[string]string {
	t.Helper()
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(top); err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("index.json has %d entries, want 1", len(manifest.Manifests))
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	images := map[string]map[string]string{}
	for _, d := range manifest.Manifests {
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != d.Platform.Architecture || config.OS != d.Platform.OS {
			t.Errorf("image of %s is for %s/%s", d.Platform, config.OS, config.Architecture)
		}
		if !config.Created.Equal(created) {
			t.Errorf("image of %s: created at %v, want %v", d.Platform, config.Created, created)
		}
		if m, err := image.Manifest(); err != nil || m.Config.MediaType != types.OCIConfigJSON {
			t.Errorf("image of %s: got manifest %+v, %v, want a configuration of the OCI", d.Platform, m, err)
		}
		images[d.Platform.String()] = readImage(t, image)
	}
	return images
}

func readImage(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	extracted := mutate.Extract(image)
	defer extracted.Close()
	content := map[string]string{}
	for r := tar.NewReader(extracted); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return content
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		content[header.Name] = string(text)
	}
}

func TestWrite(t *testing.T) {
	dir := example(t, nil)
	want := map[string]map[string]string{
		"linux/amd64": {"b.kernel": "x86 kernel", "b.initramfs": "x86 files"},
		"linux/arm64": {"a.kernel": "arm kernel", "a.initramfs": "arm files"},
	}
	if diff := cmp.Diff(want, readImages(t, dir)); diff != "" {
		t.Errorf("content of the images (-want +got):\n%s", diff)
	}
	if _, err := Verify(dir); err != nil {
		t.Error(err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if want := map[bool]fs.FileMode{true: fs.ModeDir | 0o755, false: 0o644}[d.IsDir()]; info.Mode() != want {
			t.Errorf("%s: got mode %v, want %v", path, info.Mode(), want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A blob that cannot be read is a problem.
func TestVerifyDirectoryAsBlob(t *testing.T) {
	dir := example(t, nil)
	blobs, err := filepath.Glob(filepath.Join(dir, blobDir, "*"))
	if err != nil || len(blobs) == 0 {
		t.Fatalf("got blobs %v, %v", blobs, err)
	}
	for _, blob := range blobs {
		content, err := os.ReadFile(blob)
		if err := errors.Join(err, os.Remove(blob), os.Mkdir(blob, 0o700)); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(dir); err == nil || !strings.Contains(err.Error(), filepath.Base(blob)) {
			t.Errorf("%s is a directory: got %v, want an error", blob, err)
		}
		if err := errors.Join(os.Remove(blob), os.WriteFile(blob, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// tree returns mode and content of all files below a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	content := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		content[strings.TrimPrefix(path, dir)] = info.Mode().String() + " " + string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Order of images, time zone and times of files change nothing.
func TestReproducible(t *testing.T) {
	one := tree(t, example(t, nil))
	two := tree(t, example(t, func(o *Options) {
		o.Images[0], o.Images[1] = o.Images[1], o.Images[0]
		o.Created = o.Created.In(time.FixedZone("x", 3600))
		for _, image := range o.Images {
			for _, path := range image.Files {
				if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}))
	if diff := cmp.Diff(one, two); diff != "" {
		t.Errorf("second layout (-first +second):\n%s", diff)
	}
}

func TestReplace(t *testing.T) {
	dir := example(t, nil)
	path := files(t, t.TempDir(), map[string]string{"new.kernel": "new"})
	o := Options{Images: []Image{{Arch: "amd64", Files: path}}, Tag: "2", Created: created}
	if _, err := Write(dir, o); err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]string{"linux/amd64": {"new.kernel": "new"}}
	if diff := cmp.Diff(want, readImages(t, dir)); diff != "" {
		t.Errorf("content of the images (-want +got):\n%s", diff)
	}
	if _, err := Verify(dir); err != nil {
		t.Error(err)
	}
	other := t.TempDir()
	kept := files(t, other, map[string]string{"kept": "text"})
	if _, err := Write(other, Options{Images: []Image{{Arch: "amd64", Files: path}}}); err == nil {
		t.Error("replaced a directory that is not a layout")
	}
	if _, err := os.Stat(kept[0]); err != nil {
		t.Error(err)
	}
	if _, err := Write(dir, Options{Images: []Image{{Arch: "amd64", Files: []string{dir + "/none"}}}}); err == nil {
		t.Error("a missing file is no error")
	}
	if _, err := Verify(dir); err != nil { // the former layout
		t.Error(err)
	}
}

// One changed, missing or added byte anywhere is detected, and the error names the file.
func TestVerifyChanges(t *testing.T) {
	whole := example(t, nil)
	for name := range tree(t, whole) {
		for change, apply := range map[string]func(path string, data []byte) error{
			"flipped": func(path string, data []byte) error {
				data[len(data)/2] ^= 1
				return os.WriteFile(path, data, 0o600)
			},
			"truncated": func(path string, data []byte) error { return os.WriteFile(path, data[:len(data)-2], 0o600) },
			"missing":   func(path string, _ []byte) error { return os.Remove(path) },
		} {
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
			_, err = Verify(dir)
			if name == "/index.json" && change == "flipped" {
				continue // its own content is protected by a signature
			}
			if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(name, "/")) {
				t.Errorf("%s %s: got error %v, want one that names the file", change, name, err)
			}
		}
	}
}

// The file that marks a layout has no signature, so it contains nothing but the version.
func TestVerifyMarker(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"imageLayoutVersion":"1.0.0"}`:             true,
		`{"imageLayoutVersion":"1.0.0","more":"x"}`:  false,
		`{"imageLayoutVersion":"1.0.0"} {"more":""}`: false,
		`{"imageLayoutVersion":"1.0.1"}`:             false,
	} {
		dir := example(t, nil)
		files(t, dir, map[string]string{markerFile: text})
		if _, err := Verify(dir); (err == nil) != ok {
			t.Errorf("%s: got error %v", text, err)
		}
	}
}

func TestVerifyOtherFiles(t *testing.T) {
	dir := example(t, nil)
	files(t, dir, map[string]string{"index.json.minisig": "signature"})
	if _, err := Verify(dir, "index.json.minisig"); err != nil {
		t.Error(err)
	}
	files(t, filepath.Join(dir, "blobs", "sha256"), map[string]string{strings.Repeat("0", 64): "more"})
	_, err := Verify(dir, "index.json.minisig")
	if err == nil || !strings.Contains(err.Error(), strings.Repeat("0", 64)) {
		t.Errorf("blob without reference: got error %v", err)
	}
}

func FuzzVerifyIndex(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json",` +
		`"size":2,"digest":"sha256:` + strings.Repeat("0", 64) + `"}]}`))
	f.Add([]byte(`{"manifests":[{"digest":"sha256:../../x"}]}`))
	f.Add([]byte(`{}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, index []byte) {
		if err := os.WriteFile(filepath.Join(dir, IndexFile), index, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = Verify(dir)
	})
}
