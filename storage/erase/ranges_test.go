package erase

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/sysfs"
)

// rangesDisk is a loop device full of data.
func rangesDisk(t *testing.T, size int64) block.Device {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, bytes.Repeat([]byte("tenant! "), int(size/8)), 0o600); err != nil {
		t.Fatal(err)
	}
	loop := testenv.Loop(t, path, 512)
	return block.Device{Name: filepath.Base(loop), Path: loop, Type: "disk", Size: size}
}

// Only the ranges are overwritten, also where a write contains several of them, and all of them are read back.
func TestRanges(t *testing.T) {
	const size = 24 << 20
	ranges := [][2]int64{{0, 4096}, {4608, 8192}, {1 << 20, 9<<20 + 512}, {size - 512, size}}
	want := int64(4096 + 3584 + 8<<20 + 512 + 512)
	for name, tt := range map[string]struct {
		options Options
		passes  []string
	}{
		"zeros":  {Options{Zeroize: true}, []string{evidence.PatternZeros}},
		"random": {Options{Iterations: 1}, []string{evidence.PatternRandom}},
		"random and zeros": {
			Options{Iterations: 1, Zeroize: true}, []string{evidence.PatternRandom, evidence.PatternZeros},
		},
	} {
		d := rangesDisk(t, size)
		var done, total, read int64
		record := &Recorder{Observer: observe(func(p Progress) {
			switch p.Phase {
			case Overwriting:
				done, total = p.Done, p.Total
			case ReadingBack:
				read = p.Done
			}
		})}
		tt.options.Recorder = record
		method, err := tryRanges(t.Context(), sysfs.Root{}, d, ranges, tt.options)
		if method != Overwrite || err != nil {
			t.Errorf("%s: got %q and %v, want %q", name, method, err, Overwrite)
			continue
		}
		data := imagetest.ReadAt(t, d.Path, 0, size)
		at := int64(0)
		for _, r := range append(ranges, [2]int64{size, size}) {
			if !bytes.Equal(data[at:r[0]], bytes.Repeat([]byte("tenant! "), int(r[0]-at)/8)) {
				t.Errorf("%s: bytes between %d and %d have changed", name, at, r[0])
			}
			if bytes.Contains(data[r[0]:r[1]], []byte("tenant!")) ||
				tt.options.Zeroize && len(bytes.Trim(data[r[0]:r[1]], "\x00")) > 0 {
				t.Errorf("%s: data are left between bytes %d and %d", name, r[0], r[1])
			}
			at = r[1]
		}
		o := record.Report()
		if len(o.Passes) != len(tt.passes) || o.ReadBack == nil || o.ReadBack.Size != want ||
			o.ReadBack.Read != want || o.ReadBack.Different != 0 || !o.ReadBack.Direct {
			t.Fatalf("%s: got %+v, want all %d bytes read back", name, o, want)
		}
		for i, pattern := range tt.passes {
			if o.Passes[i].Pattern != pattern || o.Passes[i].Bytes != want {
				t.Errorf("%s: pass %d: got %+v, want %s of %d bytes", name, i+1, o.Passes[i], pattern, want)
			}
		}
		if passes := int64(len(tt.passes)); done != passes*want || total != passes*want || read != want {
			t.Errorf("%s: got progress %d of %d, and %d read, want %d and %d", name, done, total, read, passes*want,
				want)
		}
	}
}

// Ranges that are empty, overlap or are beyond the end, and devices that must not be overwritten, are errors, and
// nothing is written.
func TestRangesRefused(t *testing.T) {
	const size = 1 << 20
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	one, zeros := [][2]int64{{0, 4096}}, Options{Zeroize: true}
	unknown := func(_ *testing.T, d *block.Device) { d.Name = "none" }
	zoned := func(_ *testing.T, d *block.Device) { d.Zoned = "host-managed" }
	for name, tt := range map[string]struct {
		ctx     context.Context
		ranges  [][2]int64
		change  func(t *testing.T, d *block.Device)
		options Options
		want    string
	}{
		"none":       {t.Context(), nil, nil, zeros, "no range"},
		"empty":      {t.Context(), [][2]int64{{4096, 4096}}, nil, zeros, "is empty"},
		"reversed":   {t.Context(), [][2]int64{{4096, 0}}, nil, zeros, "is empty"},
		"overlap":    {t.Context(), [][2]int64{{0, 4096}, {512, 8192}}, nil, zeros, "before byte 4096"},
		"beyond":     {t.Context(), [][2]int64{{0, size + 512}}, nil, zeros, "beyond byte 1048576"},
		"negative":   {t.Context(), [][2]int64{{-512, 512}}, nil, zeros, "before byte 0"},
		"no pass":    {t.Context(), one, nil, Options{}, "no overwrite pass requested"},
		"no device":  {t.Context(), one, unknown, zeros, "none"},
		"zoned":      {t.Context(), one, zoned, zeros, ErrZoned.Error()},
		"cancelled":  {ended, one, nil, zeros, context.Canceled.Error()},
		"misaligned": {t.Context(), [][2]int64{{100, 4096}}, nil, zeros, "byte 0"},
		"in use": {t.Context(), one, func(t *testing.T, d *block.Device) {
			t.Helper()
			f, err := os.Open(d.Path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
		}, zeros, ErrBusy.Error()},
	} {
		d := rangesDisk(t, size)
		if tt.change != nil {
			tt.change(t, &d)
		}
		method, err := tryRanges(tt.ctx, sysfs.Root{}, d, tt.ranges, tt.options)
		if method != "" || err == nil || !strings.Contains(err.Error(), tt.want) ||
			!strings.Contains(err.Error(), d.Path) {
			t.Errorf("%s: got %q and %v, want an error with %q", name, method, err, tt.want)
		}
		if !bytes.Equal(imagetest.ReadAt(t, d.Path, 0, size), bytes.Repeat([]byte("tenant! "), size/8)) {
			t.Errorf("%s: the disk was written to", name)
		}
	}
}

// Data in a range is found, and not beside it. The evidence still describes the data that were written.
func TestCheckZeros(t *testing.T) {
	d := rangesDisk(t, 1<<20)
	record := &Recorder{}
	ranges := [][2]int64{{4096, 8192}, {16384, 20480}}
	if _, err := tryRanges(t.Context(), sysfs.Root{}, d, ranges, Options{Zeroize: true, Recorder: record}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		ranges [][2]int64
		want   error
	}{
		"zeros":       {[][2]int64{{4096, 8192}, {16384, 20480}}, nil},
		"data before": {[][2]int64{{3584, 8192}, {16384, 20480}}, ErrNotErased},
		"data after":  {[][2]int64{{4096, 8192}, {16384, 20992}}, ErrNotErased},
	} {
		err := CheckZeros(t.Context(), sysfs.Root{}, d, tt.ranges, Options{Recorder: record})
		if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), d.Path) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
	if back := record.Report().ReadBack; back == nil || back.Different != 0 || back.Read != 8192 {
		t.Errorf("got %+v, want the read-back of what was written", back)
	}
	if err := CheckZeros(t.Context(), sysfs.Root{}, d, nil, Options{}); err == nil {
		t.Error("no ranges: got no error")
	}
}

// Offsets in a space count through its ranges one after the other.
func TestSpace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // closed at the end of the test
	s := space{f, []span{{1, 3}, {5, 6}, {8, 10}}}
	for offset, want := range map[int64]string{0: "12589", 1: "2589", 2: "589", 3: "89", 4: "9"} {
		b := make([]byte, len(want))
		if n, err := s.ReadAt(b, offset); n != len(want) || err != nil || string(b) != want {
			t.Errorf("offset %d: got %q (%d) and %v, want %q", offset, b, n, err, want)
		}
		if n, err := s.ReadAt(make([]byte, 9), offset); n != len(want) || !errors.Is(err, io.EOF) {
			t.Errorf("offset %d: got %d bytes and %v, want %d and %v", offset, n, err, len(want), io.EOF)
		}
	}
	if n, err := s.WriteAt([]byte("abc"), 1); n != 3 || err != nil {
		t.Errorf("got %d and %v, want 3 bytes written", n, err)
	}
	if got := imagetest.ReadAt(t, path, 0, 10); string(got) != "01a34b67c9" {
		t.Errorf("got %q, want the bytes in the ranges changed", got)
	}
	if s.size() != 5 {
		t.Errorf("got size %d, want 5", s.size())
	}
}
