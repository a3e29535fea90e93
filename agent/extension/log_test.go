package extension

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadEnd(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(file, []byte("first second third"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]string{5: "third", 100: "first second third", 0: ""} {
		if got, err := readEnd(file, limit); err != nil || string(got) != want {
			t.Errorf("at most %d bytes: got %q and %v, want %q", limit, got, err, want)
		}
	}
	for _, name := range []string{pipe, dir} { // nobody ever writes into the pipe
		if _, err := readEnd(name, 5); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: got %v, want an error that says what it is not", name, err)
		}
	}
}
