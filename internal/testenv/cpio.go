package testenv

import (
	"bytes"
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
