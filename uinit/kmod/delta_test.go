package kmod

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// Firmware that is stored as a delta is restored before its module is loaded. Without its base, the module is loaded
// all the same.
func TestDelta(t *testing.T) {
	base := make([]byte, 200<<10)
	for i := range base {
		base[i] = byte(rand.N(256))
	}
	data := append(bytes.Clone(base[:150<<10]), "another end"...)
	delta, err := PackDelta(base, data, 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	if len(delta) > 1<<10 {
		t.Errorf("got a delta of %d bytes, want at most 1 KiB", len(delta))
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, without := range []bool{false, true} {
		k := &kernel{}
		l := tree(t, k, "", &Module{Name: "card", Deltas: []Delta{{"dir/second.bin", "dir/first.bin"}}})
		l.o.Firmware = t.TempDir()
		file := filepath.Join(l.o.Firmware, "dir", "second.bin")
		k.hook = func(string) {
			got, err := os.ReadFile(file)
			if without != (err != nil) || !without && !bytes.Equal(got, data) {
				t.Errorf("without a base: %t: got %d bytes, %v at the load of the module", without, len(got), err)
			}
		}
		if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file+SuffixDelta, delta, 0o600); err != nil {
			t.Fatal(err)
		}
		if !without {
			name := filepath.Join(filepath.Dir(file), "first.bin"+SuffixZstd)
			if err := os.WriteFile(name, encoder.EncodeAll(base, nil), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Load(t.Context(), "card"); err != nil {
			t.Error(err)
		}
		if len(k.loaded) != 1 {
			t.Errorf("got modules %q, want the card's", k.loaded)
		}
		entries, err := os.ReadDir(filepath.Dir(file))
		if want := map[bool]int{false: 3, true: 1}[without]; err != nil || len(entries) != want {
			t.Errorf("got %v, %v, want %d files", entries, err, want)
		}
	}
}

// A file of an operator in any directory that the kernel searches, compressed or not, precedes the delta.
func TestDeltaReplaced(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{
		"dir/second.bin", "dir/second.bin.zst", "dir/second.bin.xz", "updates/dir/second.bin.zst",
		"RELEASE/dir/second.bin.xz", "updates/RELEASE/dir/second.bin.zst", "elsewhere/dir/second.bin.zst",
	} {
		k := &kernel{}
		l := tree(t, k, "firmware_class.path="+filepath.Join(dir, "elsewhere"),
			&Module{Name: "card", Deltas: []Delta{{"dir/second.bin", "dir/first.bin"}}})
		l.o.Firmware = dir
		file = filepath.Join(dir, strings.Replace(file, "RELEASE", filepath.Base(l.o.Dir), 1))
		writeDelta(t, dir, []byte("first"), []byte("second"))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("own"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := l.Load(t.Context(), "card"); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != "own" {
			t.Errorf("got %q, %v in %s, want the operator's file", got, err, file)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "dir", "second.bin")); err == nil {
			t.Errorf("firmware restored although %s exists", file)
		}
		_ = os.Remove(filepath.Join(dir, "dir", "second.bin"))
	}
}

// A base or delta that an appended archive has replaced is an error that names both files, and nothing is restored.
func TestDeltaDiffers(t *testing.T) {
	base := make([]byte, 100<<10)
	for i := range base {
		base[i] = byte(rand.N(256))
	}
	other := bytes.Clone(base)
	other[1000]++
	for _, c := range []struct {
		want   string
		change func(dir string)
	}{
		{"base has SHA-256", func(dir string) { // as if only the base were replaced
			delta, err := os.ReadFile(filepath.Join(dir, "dir", "second.bin"+SuffixDelta))
			if err != nil {
				t.Fatal(err)
			}
			writeDelta(t, dir, other, base)
			if err := os.WriteFile(filepath.Join(dir, "dir", "second.bin"+SuffixDelta), delta, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{"data has SHA-256", func(dir string) {
			name := filepath.Join(dir, "dir", "second.bin"+SuffixDelta)
			delta, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			delta[deltaHeaderSize-1]++
			if err := os.WriteFile(name, delta, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{"delta of 63 bytes", func(dir string) {
			if err := os.Truncate(filepath.Join(dir, "dir", "second.bin"+SuffixDelta), 63); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		l := tree(t, &kernel{}, "")
		l.o.Firmware = t.TempDir()
		writeDelta(t, l.o.Firmware, base, append(bytes.Clone(base), "another end"...))
		c.change(l.o.Firmware)
		err := l.restore(Delta{"dir/second.bin", "dir/first.bin"})
		if err == nil || !strings.Contains(err.Error(), "dir/second.bin with base dir/first.bin: "+c.want) {
			t.Errorf("got %v, want %q and both names", err, c.want)
		}
		if _, err := os.Stat(filepath.Join(l.o.Firmware, "dir", "second.bin")); err == nil {
			t.Errorf("%s: firmware restored", c.want)
		}
	}
}

// writeDelta writes dir/first.bin.zst with the base, and dir/second.bin.delta, below the directory of the firmware.
func writeDelta(t *testing.T, firmware string, base, data []byte) {
	t.Helper()
	delta, err := PackDelta(base, data, 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(firmware, "dir")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"first.bin" + SuffixZstd: encoder.EncodeAll(base, nil), "second.bin" + SuffixDelta: delta,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
