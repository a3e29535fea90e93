package initramfs

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ironroot/initramfs/firmware"
	"ironroot/uinit/kmod"
)

// A file whose name the index of the modules cannot contain is neither a delta nor the base of one.
func TestDeltaNames(t *testing.T) {
	content := make([]byte, 2*minDelta)
	for i := range content {
		content[i] = byte(rand.N(256))
	}
	b := &builder{Options: Options{CacheDir: t.TempDir()}}
	f := firmwareFiles{
		b: b, compression: compression{kmod.SuffixZstd},
		names: map[string]bool{}, dirs: map[string]bool{}, bases: map[*kmod.Module][]base{},
	}
	module := &kmod.Module{Name: "card"}
	for i, name := range []string{"first base", "second", "third file", "fourth"} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, append(bytes.Clone(content), byte(i)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := f.add(firmware.File{Name: name, Path: file}, module); err != nil {
			t.Fatal(err)
		}
	}
	if want := []kmod.Delta{{File: "fourth", Base: "second"}}; !slices.Equal(module.Deltas, want) {
		t.Errorf("got deltas %q, want %q", module.Deltas, want)
	}
}
