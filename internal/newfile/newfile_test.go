//go:build unix

package newfile

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The mode of a file does not depend on the umask. A file that cannot be replaced stays, and nothing else is left.
func TestWriteMode(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "program")
	if err := os.WriteFile(path, []byte("former"), 0o600); err != nil {
		t.Fatal(err)
	}
	former := unix.Umask(0o077)
	err := WriteMode(path, []byte("new"), 0o755)
	unix.Umask(former)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("got %v and %v, want mode 0755", info.Mode(), err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "new" {
		t.Errorf("got %q and %v, want the new content", got, err)
	}
	if err := WriteMode(filepath.Join(dir, "missing", "program"), nil, 0o755); err == nil {
		t.Error("got no error for a directory that does not exist")
	}
	if err := WriteMode(filepath.Join(path, "program"), nil, 0o755); err == nil {
		t.Error("got no error for a file in place of the directory")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("got files %v and %v, want one", entries, err)
	}
}
