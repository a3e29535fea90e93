//go:build linux

package boot

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/initramfs/squashfs"
	"ironroot/internal/test/testenv"
	"ironroot/uinit/boot/layout"
)

// userlandWith returns a userland with a file.
func userlandWith(t *testing.T, name string) string {
	t.Helper()
	image, err := squashfs.Image([]squashfs.Entry{
		{Path: "bin", Mode: fs.ModeDir | 0o755},
		{Path: name, Mode: 0o755, Size: 1, Content: squashfs.Bytes("x")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(image)
}

// A rescue needs a shell, in the ramdisk or in a userland that can be mounted.
func TestCheckLogin(t *testing.T) {
	testenv.Root(t)
	testenv.Files(t, "load the module loop", "/dev/loop-control")
	withShell, without := userlandWith(t, "bin/bash"), userlandWith(t, "bin/true")
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string // part of the error; "" = a rescue is possible
	}{
		{"shell", map[string]string{shellPath: "x"}, ""},
		{"shell and a damaged userland", map[string]string{shellPath: "x", layout.RescueFile: "x"}, ""},
		{"userland", map[string]string{layout.RescueFile: withShell}, ""},
		{"neither", nil, "nobody could log in: no shell in "},
		{
			"userland without a shell",
			map[string]string{layout.RescueFile: without},
			layout.RescueFile + ": no shell in ",
		},
		{"damaged userland", map[string]string{layout.RescueFile: strings.Repeat("x", 1<<16)}, "squashfs: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			t.Setenv("TMPDIR", t.TempDir())
			for name, text := range tt.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			err := checkLogin(t.Context(), root)
			if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
			if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
				t.Errorf("got %v, %v in the temporary directory, want nothing", left, err)
			}
		})
	}
}
