//go:build linux

package boot

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/uinit/kmod"
)

// The shell is restored from its difference from /init. A changed /init, or a damaged difference, is an error.
func TestUnpackShell(t *testing.T) {
	dir := t.TempDir()
	base, shell := bytes.Repeat([]byte("code of init "), 1000), bytes.Repeat([]byte("code of init, shell "), 1000)
	packed, err := kmod.PackDelta(base, shell, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, content []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	damaged := bytes.Clone(packed)
	damaged[len(damaged)/2] ^= 1
	init, delta := file("init", base), file("delta", packed)
	if got, err := unpackShell(init, delta); err != nil || !bytes.Equal(got, shell) {
		t.Errorf("got %d bytes and %v, want the %d of the shell", len(got), err, len(shell))
	}
	for name, paths := range map[string][2]string{
		"other init": {file("other", bytes.Replace(base, []byte("init"), []byte("exit"), 1)), delta},
		"damaged":    {init, file("damaged", damaged)},
		"cut off":    {init, file("short", packed[:10])},
	} {
		if got, err := unpackShell(paths[0], paths[1]); err == nil {
			t.Errorf("%s: got %d bytes, want an error", name, len(got))
		}
	}
}

// All users can run the unpacked shell, whatever the umask of the user who has run the first command. If the script
// cannot be replaced, it stays.
func TestReplaceShell(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "bb")
	if err := os.WriteFile(path, []byte("#!script"), 0o755); err != nil { //nolint:gosec // the script of the image
		t.Fatal(err)
	}
	former := unix.Umask(0o077)
	err := replaceShell(path, []byte("program"))
	unix.Umask(former)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("got %v and %v, want mode 0755", info.Mode(), err)
	}
	if err := replaceShell(filepath.Join(dir, "missing", "bb"), nil); err == nil {
		t.Error("got no error for a directory that cannot be written to")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("got files %v and %v, want the shell alone", entries, err)
	}
}
