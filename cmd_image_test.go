package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"ironroot/internal/testenv"
)

// The OCI layout has the kernel and the initramfs of both architectures, as go-containerregistry reads them, and a
// second build has the same digest. Everything is signed, and verify accepts it.
//
// Parity: T11
func TestImageOCI(t *testing.T) {
	testenv.Programs(t, "minisign", "git", "go")
	keys := t.TempDir()
	testenv.Run(t, "minisign", "-G", "-W", "-p", filepath.Join(keys, "pub"), "-s", filepath.Join(keys, "key"))
	var digests []v1.Hash
	for range 2 {
		out := filepath.Join(t.TempDir(), "release")
		runCommand(t, "image", "--oci", "--module-groups=none", "--no-shell", "--no-firmware", "-o", out,
			"--sign-key", filepath.Join(keys, "key"))
		runCommand(t, "verify", "--public-key", filepath.Join(keys, "pub"), out)
		digests = append(digests, checkLayout(t, out))
	}
	if digests[0] != digests[1] {
		t.Errorf("digests of two builds: %s and %s", digests[0], digests[1])
	}
}

// runCommand runs a command of ironroot.
func runCommand(t *testing.T, args ...string) {
	t.Helper()
	ctx, err := newParser(&cli{}).Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	if err := ctx.Run(); err != nil {
		t.Fatalf("ironroot %s: %v", strings.Join(args, " "), err)
	}
}

// checkLayout checks the OCI layout in a directory against the files next to it, and returns the digest of its images.
func checkLayout(t *testing.T, out string) v1.Hash {
	t.Helper()
	top, err := layout.ImageIndexFromPath(filepath.Join(out, "ipa-ironroot.oci"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(top); err != nil {
		t.Error(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("layout has %d images, want 1 index", len(manifest.Manifests))
	}
	digest := manifest.Manifests[0].Digest
	index, err := top.ImageIndex(digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, d := range manifest.Manifests {
		platforms = append(platforms, d.Platform.String())
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkFiles(t, out, image, "ipa-ironroot-"+d.Platform.Architecture)
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
	return digest
}

// checkFiles compares kernel and initramfs in an image with those in the directory out.
func checkFiles(t *testing.T, out string, image v1.Image, stem string) {
	t.Helper()
	content := mutate.Extract(image)
	defer content.Close()
	found := map[string]bool{}
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(out, header.Name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s in the image differs from the file", header.Name)
		}
		found[header.Name] = true
	}
	for _, suffix := range []string{".kernel", ".initramfs"} {
		if !found[stem+suffix] {
			t.Errorf("image lacks %s: %v", stem+suffix, found)
		}
	}
}

func TestImageFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"--sign-password": {"image", "--sign-password", "main.go"},
		"--name":          {"image", "--oci", "--name", "x"},
		"want one --arch": {"image", "--arch", "amd64,arm64", "--package", "linux-image-amd64"},
		"main.go":         {"image", "--sign-key", "main.go"},
	} {
		ctx, err := newParser(&cli{}).Parse(args)
		if err != nil {
			t.Fatal(err)
		}
		if err := ctx.Run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got error %v, want one with %q", args, err, want)
		}
	}
}
