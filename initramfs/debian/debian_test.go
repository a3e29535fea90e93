package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
)

// makeDeb builds a package with dpkg-deb and returns its path.
func makeDeb(t *testing.T, compression string) string {
	t.Helper()
	testenv.Programs(t, "dpkg-deb")
	tree := filepath.Join(t.TempDir(), "tree")
	files := map[string]string{
		"DEBIAN/control": "Package: sample\nVersion: 1\nArchitecture: all\nMaintainer: A <a@example.org>\n" +
			"Depends: linux-image-6 (= 6.1), kmod:any,\n initramfs-tools (>= 1) | dracut\nDescription: none\n",
		"boot/vmlinuz":       "kernel",
		"lib/modules/a/b.ko": strings.Repeat("module", 1000),
		"usr/share/doc/x":    "x",
	}
	for name, content := range files {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("vmlinuz", filepath.Join(tree, "boot/link")); err != nil {
		t.Fatal(err)
	}
	deb := filepath.Join(t.TempDir(), "sample.deb")
	testenv.Run(t, "dpkg-deb", "-Z"+compression, "--root-owner-group", "-b", tree, deb)
	return deb
}

func TestExtract(t *testing.T) {
	for _, compression := range []string{"none", "gzip", "xz", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			deb, dir := makeDeb(t, compression), t.TempDir()
			match := func(name string) bool { return !strings.HasPrefix(name, "usr") }
			if err := Extract(context.Background(), deb, dir, match); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(dir, "lib/modules/a/b.ko"))
			if err != nil || string(got) != strings.Repeat("module", 1000) {
				t.Errorf("b.ko: got %d bytes, error %v, want 6000 bytes", len(got), err)
			}
			if got, err := os.ReadFile(filepath.Join(dir, "boot/link")); err != nil || string(got) != "kernel" {
				t.Errorf("link: got %q, %v, want kernel", got, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "usr")); err == nil {
				t.Error("got usr, which did not match")
			}
			depends, err := Depends(deb)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"linux-image-6", "kmod", "initramfs-tools"}, depends); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestExtractCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Extract(ctx, makeDeb(t, "none"), t.TempDir(), func(string) bool { return true }); err == nil {
		t.Error("got no error of a cancelled context")
	}
}

func TestExtractStaysInside(t *testing.T) {
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	_ = w.WriteHeader(&tar.Header{Name: "./../evil", Typeflag: tar.TypeReg, Size: 1, Mode: 0o644})
	_, _ = w.Write([]byte("x"))
	_ = w.Close()
	deb := filepath.Join(t.TempDir(), "evil.deb")
	header := []byte("data.tar/       0           0     0     100644  " + padded(data.Len()) + "`\n")
	if err := os.WriteFile(deb, append(append([]byte(arMagic), header...), data.Bytes()...), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Extract(context.Background(), deb, dir, func(string) bool { return true }); err == nil {
		t.Error("got no error for a name that leads out of the directory")
	}
	if _, err := os.Stat(filepath.Join(dir, "..", "evil")); err == nil {
		t.Error("a file was written outside of the directory")
	}
}

func padded(n int) string {
	s := strings.Repeat(" ", 10)
	digits := ""
	for ; n > 0; n /= 10 {
		digits = string(rune('0'+n%10)) + digits
	}
	return digits + s[len(digits):]
}

func FuzzFindMember(f *testing.F) {
	f.Add([]byte(arMagic + "debian-binary   0           0     0     100644  4         `\n2.0\n" +
		"data.tar        0           0     0     100644  1         `\nx"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, r, err := findMember(bytes.NewReader(data), "data.tar")
		if err == nil && r == nil {
			t.Error("neither content nor error")
		}
	})
}
