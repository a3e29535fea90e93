// Package foreign provides a kernel and a ramdisk that are not the product's own, for tests of boot paths: Debian's
// kernel for virtual machines, and a ramdisk that prints the kernel command line and switches the machine off.
package foreign

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/initramfs/debian"
	"ironroot/internal/test/debtest"
	"ironroot/internal/test/testenv"
)

// Hello matches the message of the ramdisk. The first group is the kernel command line.
var Hello = regexp.MustCompile(`HELLO-FROM-THE-RAMDISK cmdline=<(.*)> err=<nil>`)

// Kernel returns the path of Debian's signed kernel for virtual machines of an architecture, a GOARCH.
func Kernel(t testing.TB, arch string) string {
	t.Helper()
	deb := debtest.Packages(t, "", "linux-image-cloud-"+arch+":"+arch, "linux-image-")
	dir := t.TempDir()
	isKernel := func(name string) bool { return strings.HasPrefix(name, "boot/vmlinuz-") }
	if err := debian.Extract(t.Context(), deb[len(deb)-1], dir, isKernel); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("kernels in %s: got %q, %v, want one", deb[len(deb)-1], found, err)
	}
	return found[0]
}

// Initrd builds a ramdisk with the program hello as its init for an architecture, a GOARCH, and returns its path.
func Initrd(t testing.TB, arch string) string {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "init")
	t.Setenv("CGO_ENABLED", "0")
	t.Setenv("GOARCH", arch)
	testenv.Run(t, "go", "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", binary,
		"ironroot/internal/test/foreign/hello")
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w := cpio.Newc.Writer(&archive)
	for _, record := range []cpio.Record{
		cpio.Directory("dev", 0o755),
		cpio.CharDev("dev/console", 0o600, 5, 1),
		cpio.StaticFile("init", string(content), 0o755),
	} {
		if err := w.WriteRecord(record); err != nil {
			t.Fatal(err)
		}
	}
	if err := cpio.WriteTrailer(w); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "initrd.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	zw := gzip.NewWriter(f)
	if _, err := zw.Write(archive.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}
