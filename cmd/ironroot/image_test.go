package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"ironroot/internal/test/spdxtest"
	"ironroot/internal/test/testenv"
	"ironroot/release/bill"
	"ironroot/release/provenance"
	"ironroot/release/signature"
	"ironroot/release/spdx"
)

// The OCI layout has the kernel and the initramfs of both architectures, as go-containerregistry reads them, and a
// second build has the same digest. Everything is described and signed, verify accepts it, and a second build has the
// same bytes.
//
// Parity: T11
func TestImageOCI(t *testing.T) {
	testenv.Programs(t, "minisign", "git", "go")
	t.Chdir(testenv.Top(t))
	keys := t.TempDir()
	testenv.Run(t, "minisign", "-G", "-W", "-p", filepath.Join(keys, "pub"), "-s", filepath.Join(keys, "key"))
	var digests []v1.Hash
	var builds []map[string]string
	for range 2 {
		out := filepath.Join(t.TempDir(), "release")
		sign := []string{"-o", out, "--sign-key", filepath.Join(keys, "key")}
		image := []string{"image", "--oci", "--module-groups=none", "--no-shell", "--no-firmware"}
		runCommand(t, append(image, sign...)...)
		stem := filepath.Join(out, "ipa-ironroot-amd64")
		sign[1] = stem + ".iso"
		runCommand(t, append([]string{"iso", "-k", stem + ".kernel", "-i", stem + ".initramfs"}, sign...)...)
		sign[1] = stem + ".efi"
		runCommand(t, append([]string{
			"uki", "-k", stem + ".kernel", "-i", stem + ".initramfs", "--cmdline=ipa-api-url=mdns", "--unsigned",
		}, sign...)...)
		sign[1] = stem + "-efi.iso"
		runCommand(t, append([]string{"iso", "--uki", stem + ".efi"}, sign...)...)
		runCommand(t, "verify", "--public-key", filepath.Join(keys, "pub"), out)
		digests = append(digests, checkLayout(t, out))
		builds = append(builds, sums(t, out))
		checkDocuments(t, out)
	}
	if digests[0] != digests[1] {
		t.Errorf("digests of two builds: %s and %s", digests[0], digests[1])
	}
	if diff := cmp.Diff(builds[0], builds[1]); diff != "" {
		t.Errorf("files of two builds (-first +second):\n%s", diff)
	}
}

// sums returns the SHA-256 of all files below a directory, except signatures.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, signature.Suffix) {
			return err
		}
		sum, err := bill.SumFile(path)
		all[strings.TrimPrefix(path, dir)] = sum
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// checkDocuments checks the bills of materials of all artefacts in a directory, and what the ISO and the layout have of
// the others.
func checkDocuments(t *testing.T, out string) {
	t.Helper()
	packages := map[string][]string{}
	for _, name := range []string{
		"ipa-ironroot-amd64.kernel", "ipa-ironroot-amd64.initramfs", "ipa-ironroot-amd64.tar.gz",
		"ipa-ironroot-arm64.kernel", "ipa-ironroot-arm64.initramfs", "ipa-ironroot-arm64.tar.gz",
		"ipa-ironroot-amd64.iso", "ipa-ironroot-amd64.efi", "ipa-ironroot-amd64-efi.iso", "ipa-ironroot.oci",
	} {
		for _, p := range spdxtest.ReadFile(t, filepath.Join(out, name+spdx.Suffix)).Packages {
			packages[name] = append(packages[name], p.PackageName)
			if p.PackageName == "grub-efi-amd64-signed" && p.PackageLicenseDeclared != "GPL-3.0-or-later" {
				t.Errorf("licence of GRUB: got %s", p.PackageLicenseDeclared)
			}
		}
		checkProvenance(t, filepath.Join(out, name+provenance.Suffix))
	}
	for name, parts := range map[string][]string{
		"ipa-ironroot-amd64.iso": {
			"ipa-ironroot-amd64.kernel", "ipa-ironroot-amd64.initramfs", "golang.org/x/sys", "shim-signed",
			"grub-efi-amd64-signed", "isolinux", "syslinux-common",
		},
		"ipa-ironroot-amd64.efi": {
			"ipa-ironroot-amd64.kernel", "ipa-ironroot-amd64.initramfs", "golang.org/x/sys", "systemd-boot-efi",
		},
		"ipa-ironroot-amd64-efi.iso": {"ipa-ironroot-amd64.efi", "ipa-ironroot-amd64.kernel", "systemd-boot-efi"},
		"ipa-ironroot.oci": {
			"ipa-ironroot-amd64.kernel", "ipa-ironroot-arm64.kernel", "ipa-ironroot-arm64.initramfs",
			"golang.org/x/sys",
		},
	} {
		for _, part := range parts {
			if !slices.Contains(packages[name], part) {
				t.Errorf("bill of %s lacks %s: %v", name, part, packages[name])
			}
		}
	}
}

// checkProvenance checks the fields that in-toto and SLSA require, with types of its own.
func checkProvenance(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type resource struct {
		Name, URI string
		Digest    map[string]string
	}
	var s struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []resource
		Predicate     struct {
			BuildDefinition struct {
				BuildType            string
				ExternalParameters   map[string]any
				ResolvedDependencies []resource
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	definition := s.Predicate.BuildDefinition
	subjects := 2
	if strings.HasSuffix(path, ".efi"+provenance.Suffix) {
		subjects = 3 // with predicted PCR values
	}
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" ||
		len(s.Subject) != subjects || definition.BuildType == "" || definition.ExternalParameters == nil ||
		s.Predicate.RunDetails.Builder.ID == "" || len(definition.ResolvedDependencies) == 0 {
		t.Errorf("%s: incomplete: %+v", path, s)
	}
	for _, r := range append(s.Subject, definition.ResolvedDependencies...) {
		if r.URI == "" && len(r.Digest) == 0 {
			t.Errorf("%s: resource %s has neither URI nor digest", path, r.Name)
		}
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
