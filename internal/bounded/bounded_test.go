package bounded

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(name, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFile(name, 5); err != nil || string(got) != "12345" {
		t.Errorf("a file as large as the limit: got %q, %v", got, err)
	}
	got, err := ReadFile(name, 4)
	if want := "read " + name + ": more than 4 bytes"; got != nil || err == nil || err.Error() != want {
		t.Errorf("a larger file: got %q, %v, want %s", got, err, want)
	}
	if _, err := ReadFile(filepath.Join(dir, "absent"), 5); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: got %v, want %v", err, fs.ErrNotExist)
	}
	if _, err := ReadFile(dir, 5); err == nil || strings.Count(err.Error(), dir) != 1 {
		t.Errorf("a directory: got %v, want an error that names it once", err)
	}
}

func TestReadAll(t *testing.T) {
	failing := io.MultiReader(strings.NewReader("123"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if got, err := ReadAll(failing, 5); got != nil || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a read that fails: got %q, %v, want %v", got, err, io.ErrUnexpectedEOF)
	}
	// No more than necessary is read of an endless stream.
	endless := &counter{}
	if got, err := ReadAll(endless, 100); got != nil || err == nil {
		t.Errorf("an endless stream: got %d bytes, %v, want an error", len(got), err)
	}
	if endless.read > 101 {
		t.Errorf("got %d bytes read of an endless stream, want at most 101", endless.read)
	}
}

type counter struct{ read int }

func (c *counter) Read(p []byte) (int, error) {
	c.read += len(p)
	return len(p), nil
}
