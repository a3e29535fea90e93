//go:build linux

package boot

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

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
