package unpack

import (
	"bytes"
	"compress/zlib"
	"io"
	"testing"
)

// The declarations of this file are quoted by docs/adding.md.

// zlibFormat is a row of Formats.
var zlibFormat = Format{"zlib", begins("\x78\x9c"), func(r io.Reader, _ int64) (io.ReadCloser, error) {
	return zlib.NewReader(r)
}}

func TestAddedFormat(t *testing.T) {
	var file bytes.Buffer
	w := zlib.NewWriter(&file)
	w.Write([]byte("content")) //nolint:errcheck // to memory
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !zlibFormat.Detect(file.Bytes()) {
		t.Errorf("%q is not detected", file.Bytes())
	}
	r, err := zlibFormat.NewReader(&file, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != "content" {
		t.Errorf("got %q and error %v", got, err)
	}
}
