package initramfs

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/u-root/mkuimage/cpio"

	"ironroot/internal/test/spdxtest"
	"ironroot/internal/test/testenv"
	"ironroot/release/spdx"
)

// checkBill compares the bills of materials with the files of the initramfs, with the modules that Go finds in /init,
// and with what dpkg says about the packages.
func checkBill(t *testing.T, report Report, records []cpio.Record) {
	t.Helper()
	d := spdxtest.ReadFile(t, report.Initramfs+spdx.Suffix)
	checkBillFiles(t, d, records)
	checkBillModules(t, d, records)
	names := checkBillPackages(t, d)
	for _, want := range []string{
		AuthoritiesPackage, "firmware-bnx2", "firmware-qlogic", "linux-image-" + report.KernelRelease,
	} {
		if !names[want] {
			t.Errorf("the bill lacks package %s", want)
		}
	}
	kernel := spdxtest.ReadFile(t, report.Kernel+spdx.Suffix)
	if names := checkBillPackages(t, kernel); len(names) != 1 || !names["linux-image-"+report.KernelRelease] {
		t.Errorf("packages of the kernel: got %v, want its own", names)
	}
	both := spdxtest.ReadFile(t, report.Tarball+spdx.Suffix)
	if len(both.Files) != len(d.Files) || len(both.Packages) != len(d.Packages)+2 {
		t.Errorf("bill of the tarball: got %d files and %d packages, want %d and %d",
			len(both.Files), len(both.Packages), len(d.Files), len(d.Packages)+2)
	}
	for path, document := range map[string]*v2_3.Document{
		report.Initramfs: d, report.Kernel: kernel, report.Tarball: both,
	} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		artefact := document.Packages[0]
		if got := artefact.PackageChecksums[0].Value; got != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: the bill has SHA-256 %s, want %x", path, got, sum)
		}
		if artefact.PackageVersion != "1.2.3" || artefact.PackageSourceInfo != "built from commit abc" {
			t.Errorf("%s: got version %s %q", path, artefact.PackageVersion, artefact.PackageSourceInfo)
		}
	}
}

func checkBillFiles(t *testing.T, d *v2_3.Document, records []cpio.Record) {
	t.Helper()
	listed := map[string]string{}
	for _, f := range d.Files {
		for _, c := range f.Checksums {
			if c.Algorithm == common.SHA256 {
				listed[strings.TrimPrefix(f.FileName, "./")] = c.Value
			}
		}
		packaged := strings.HasPrefix(f.FileName, "./lib/firmware/") || strings.HasSuffix(f.FileName, ".ko.xz") ||
			f.FileName == "./"+authoritiesFile
		if packaged && f.LicenseInfoInFiles[0] == spdx.Unknown {
			t.Errorf("%s has no licence", f.FileName)
		}
	}
	packed := map[string]string{}
	for _, r := range records {
		if r.Mode&cpio.S_IFMT == cpio.S_IFREG {
			sum := sha256.Sum256(content(t, r))
			packed[r.Name] = hex.EncodeToString(sum[:])
		}
	}
	if diff := cmp.Diff(packed, listed); diff != "" {
		t.Errorf("files in the initramfs (-) and in its bill (+):\n%s", diff)
	}
}

// checkBillModules compares the modules of /init with those that the go command finds in it.
func checkBillModules(t *testing.T, d *v2_3.Document, records []cpio.Record) {
	t.Helper()
	var program common.ElementID
	for _, f := range d.Files {
		if f.FileName == "./init" {
			program = f.FileSPDXIdentifier
		}
	}
	linked := map[common.ElementID]bool{}
	for _, r := range d.Relationships {
		if r.Relationship == "STATIC_LINK" && r.RefA.ElementRefID == program {
			linked[r.RefB.ElementRefID] = true
		}
	}
	got := map[string]string{}
	for _, p := range d.Packages {
		if linked[p.PackageSPDXIdentifier] {
			got[p.PackageName] = p.PackageVersion
			if p.PackageLicenseDeclared == spdx.Unknown {
				t.Errorf("module %s has no licence", p.PackageName)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "init")
	for _, r := range records {
		if r.Name == "init" {
			if err := os.WriteFile(path, content(t, r), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := map[string]string{productModule: "1.2.3"}
	for line := range strings.Lines(testenv.Run(t, "go", "version", "-m", path)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && strings.HasPrefix(fields[0], path):
			want["stdlib"] = strings.TrimPrefix(fields[1], "go")
		case len(fields) > 2 && fields[0] == "dep":
			want[fields[1]] = fields[2]
		}
	}
	if len(want) < 10 {
		t.Fatalf("the go command finds the modules %v, want more", want)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("modules in /init (-) and in the bill (+):\n%s", diff)
	}
}

// checkBillPackages compares Debian packages with those in the cache, and returns their names.
func checkBillPackages(t *testing.T, d *v2_3.Document) map[string]bool {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, p := range d.Packages {
		if p.PackageSupplier == nil || p.PackageSupplier.Supplier != "Debian" {
			continue
		}
		names[p.PackageName] = true
		if p.PackageLicenseDeclared == spdx.Unknown {
			t.Errorf("package %s has no licence", p.PackageName)
		}
		found := false
		debs, err := filepath.Glob(filepath.Join(cache, "ironroot", "packages", "*", p.PackageName+"_*.deb"))
		if err != nil {
			t.Fatal(err)
		}
		for _, deb := range debs {
			data, err := os.ReadFile(deb)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(data)
			if hex.EncodeToString(sum[:]) != p.PackageChecksums[0].Value {
				continue
			}
			found = true
			version := strings.TrimSpace(testenv.Run(t, "dpkg-deb", "-f", deb, "Version"))
			if version != p.PackageVersion {
				t.Errorf("package %s: got version %s, want %s", p.PackageName, p.PackageVersion, version)
			}
		}
		if !found {
			t.Errorf("package %s with SHA-256 %s is not in the cache", p.PackageName, p.PackageChecksums[0].Value)
		}
	}
	return names
}
