package testenv

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/u-root/mkuimage/cpio"
)

// Archive returns a cpio archive as an operator would create it to append it to a ramdisk. It contains all directories
// of its files, because the kernel creates none.
func Archive(t testing.TB, files ...cpio.Record) []byte {
	t.Helper()
	var out bytes.Buffer
	w := cpio.Newc.Writer(&out)
	for i, f := range files {
		f.Ino = uint64(i + 1)
		for at := range f.Name {
			if f.Name[at] != '/' {
				continue
			}
			if err := w.WriteRecord(cpio.Directory(f.Name[:at], 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.WriteRecord(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := cpio.WriteTrailer(w); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// CABundle returns an archive that makes an agent trust a certificate authority, in PEM form. Its files, its options
// and the program that creates it are the same as in Metal3's ironic-image. It is not compressed, and begins with an
// entry for the root directory.
func CABundle(t testing.TB, authority []byte) []byte {
	t.Helper()
	Programs(t, "cpio", "find", "sort")
	dir, archive := t.TempDir(), filepath.Join(t.TempDir(), "bundle")
	for name, content := range map[string]string{
		"ironic-python-agent/ironic.crt":        string(authority),
		"ironic-python-agent.d/ironic-tls.conf": "[DEFAULT]\ncafile = /etc/ironic-python-agent/ironic.crt\n",
	} {
		path := filepath.Join(dir, "etc", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	Run(t, "sh", "-ec", `cd "$1" && find . -print0 | sort -z |
		cpio --null --create --format=newc --owner=+0:+0 --reproducible --quiet >"$2"`, "sh", dir, archive)
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
