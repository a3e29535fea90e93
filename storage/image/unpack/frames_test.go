package unpack

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/imagetest"
)

// unpackAll detects the format of a file and returns its name and the content.
func unpackAll(file []byte, memory int64) (string, []byte, error) {
	i := slices.IndexFunc(Formats, func(f Format) bool { return f.Detect(file) })
	if i < 0 {
		return "", nil, nil
	}
	r, err := Formats[i].NewReader(bytes.NewReader(file), memory)
	if err != nil {
		return Formats[i].Name, nil, err
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	return Formats[i].Name, content, err
}

// frame returns a skippable frame of n bytes.
func frame(kind byte, n int) []byte {
	return append([]byte{0x50 | kind, 0x2a, 0x4d, 0x18, byte(n), byte(n >> 8), byte(n >> 16), 0}, make([]byte, n)...)
}

// The programs that compress in parallel write files of several parts, pzstd with a skippable frame before each. The
// fixtures are 14,000,000 bytes of the digits and letters below, compressed by `pzstd -p 2` of zstd 1.5.4 and by
// `pbzip2 -p2 -b9` 1.1.13.
func TestParallelTools(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdefghij"), 700000)
	for file, format := range map[string]string{"pzstd.zst": "zstd", "pbzip2.bz2": "bzip2"} {
		data, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		if name, got, err := unpackAll(data, 0); name != format || err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got %d bytes of %q and error %v, want %d of %s", file, len(got), name, err, len(want), format)
		}
	}
}

// Frames to skip are permitted before, between and behind others, in any number and of any length.
func TestSkippableFrames(t *testing.T) {
	data := imagetest.DiskContent(49, 300<<10, 20<<10)
	for name, command := range map[string]string{"zstd": "zstd -q -c", "lz4": "lz4 -q -c"} {
		file := imagetest.Pack(t, data, command)
		for title, parts := range map[string][][]byte{
			"first":        {frame(0, 4), file},
			"last kind":    {frame(15, 0), file},
			"several":      {frame(3, 70), frame(1, 100000), frame(2, 1), file},
			"on all sides": {frame(0, 4), file, frame(0, 4), file, frame(9, 300)},
		} {
			got, content, err := unpackAll(slices.Concat(parts...), 0)
			want := bytes.Repeat(data, (len(parts)+1)/3)
			if title != "on all sides" {
				want = data
			}
			if got != name || err != nil || !bytes.Equal(content, want) {
				t.Errorf("%s, %s: got %d bytes of %q and error %v, want %d",
					name, title, len(content), got, err, len(want))
			}
		}
	}
	if name, _, err := unpackAll(frame(0, 100)[:50], 0); name != "zstd" || err == nil {
		t.Errorf("a part of a frame: got %q and error %v, want zstd and an error", name, err)
	}
	// Other beginnings are not compressed files.
	if name, _, _ := unpackAll([]byte("\x4f\x2a\x4d\x18\x00\x00\x00\x00"+zstdMagic), 0); name != "" {
		t.Errorf("got %q, want no format", name)
	}
}

// The formats of old versions are named. The names of zstd are the constants of its lib/legacy; no program still writes
// them.
func TestLegacy(t *testing.T) {
	data := []byte("0123456789")
	lz4 := string(imagetest.Pack(t, data, "lz4 -q -l -c"))
	for file, want := range map[string]string{
		lz4:                               "lz4 image: it has the legacy format of `lz4 -l`",
		string(frame(0, 4)) + lz4:         "lz4 image: it has the legacy format of `lz4 -l`",
		"\xfd\x2f\xb5\x1e" + string(data): "zstd image: it has the legacy format of zstd 0.1:",
		"\x22\xb5\x2f\xfd" + string(data): "zstd image: it has the legacy format of zstd 0.2:",
		"\x27\xb5\x2f\xfd" + string(data): "zstd image: it has the legacy format of zstd 0.7:",
	} {
		if _, _, err := unpackAll([]byte(file), 0); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%x: got error %v, want %q", file[:8], err, want)
		}
	}
}

// Windows and dictionaries are limited by the given memory. The error has both values and the remedy.
func TestMemory(t *testing.T) {
	data := imagetest.DiskContent(50, 2*mib, 100<<10)
	for _, c := range []struct {
		command string
		needs   int64 // bytes
		fails   string
	}{
		{
			"xz -9 -c", 64 * mib, "xz image: its dictionary has 67108864 bytes, at most 67108863 are supported " +
				"here: compress it by xz -8 or less",
		},
		{
			"zstd -q -1 --long=25 -c", 64 * mib, "zstd image: its window has 33554432 bytes, at most 33554431 are " +
				"supported here: compress it by zstd -19 or less, without --long",
		},
	} {
		file := imagetest.Pack(t, data, c.command)
		if _, got, err := unpackAll(file, c.needs); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: got %d bytes and error %v, want %d", c.command, len(got), err, len(data))
		}
		for _, memory := range []int64{0, c.needs - 1} {
			if _, _, err := unpackAll(file, memory); err == nil || memory > 0 && err.Error() != c.fails {
				t.Errorf("%s, %d bytes of memory: got error %v, want %q", c.command, memory, err, c.fails)
			}
		}
	}
	for _, command := range []string{"xz -8 -c", "zstd -q -19 -c"} { // the remedies
		if _, got, err := unpackAll(imagetest.Pack(t, data[:mib], command), 0); err != nil || len(got) != mib {
			t.Errorf("%s: got %d bytes and error %v", command, len(got), err)
		}
	}
}

// FuzzFrames reads arbitrary bytes as a file of zstd or lz4. Frames to skip before it change nothing.
func FuzzFrames(f *testing.F) {
	for _, command := range []string{"zstd -q -c", "lz4 -q -c"} {
		f.Add(imagetest.Pack(f, []byte("0123456789"), command), byte(0), uint16(4))
	}
	f.Add([]byte("\x25\xb5\x2f\xfd"), byte(7), uint16(0))
	f.Fuzz(func(t *testing.T, file []byte, kind byte, n uint16) {
		for _, format := range Formats {
			if format.Name != "zstd" && format.Name != "lz4" || !format.Detect(file) {
				continue
			}
			read := func(file []byte) ([]byte, bool) {
				r, err := format.NewReader(bytes.NewReader(file), 0)
				if err != nil {
					return nil, false
				}
				defer r.Close()
				content, err := io.ReadAll(io.LimitReader(r, mib))
				return content, err == nil
			}
			content, ok := read(file)
			longer := append(frame(kind&15, int(n)), file...)
			again, okAgain := read(longer)
			if !format.Detect(longer) || ok != okAgain || !bytes.Equal(content, again) {
				t.Errorf("%s: got %d bytes (%t), after a frame to skip %d (%t)",
					format.Name, len(content), ok, len(again), okAgain)
			}
		}
	})
}
