package testenv

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
)

// maxMember limits the bytes that are read of a member of an archive.
const maxMember = 64 << 20

// Untar returns the members of a gzipped tar archive by name. A damaged archive ends the test.
func Untar(t testing.TB, archive []byte) map[string]string {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	members := map[string]string{}
	for packed := tar.NewReader(unzipped); ; {
		header, err := packed.Next()
		if errors.Is(err, io.EOF) {
			return members
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(io.LimitReader(packed, maxMember))
		if err != nil {
			t.Fatalf("%s: %v", header.Name, err)
		}
		members[header.Name] = string(text)
	}
}
