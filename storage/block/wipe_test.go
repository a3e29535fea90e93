package block

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"ironroot/internal/test/testenv"
)

// Only the ends of ranges are zeroed.
func TestWipeEnds(t *testing.T) {
	const mib = 1 << 20
	path := testenv.SparseFile(t, 64*mib)
	if err := os.WriteFile(path, bytes.Repeat([]byte("tenant! "), 8*mib), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // WipeEnds syncs
	err = WipeEnds(t.Context(), f, [2]int64{512, 1024}, [2]int64{2 * mib, mib}, [2]int64{4 * mib, 40 * mib})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		start, end int
		zero       bool
	}{
		{0, 512, false},
		{512, 1024, true},
		{1024, 4 * mib, false},
		{4 * mib, 12 * mib, true},
		{12 * mib, 32 * mib, false},
		{32 * mib, 40 * mib, true},
		{40 * mib, 64 * mib, false},
	} {
		zeros := bytes.Count(data[r.start:r.end], []byte{0})
		if r.zero && zeros != r.end-r.start || !r.zero && zeros > 0 {
			t.Errorf("bytes %d to %d: got %d zeros, want zeros: %v", r.start, r.end, zeros, r.zero)
		}
	}
}

// medium is a device that ignores or fails operations.
type medium struct {
	data     byte
	readErr  error
	writeErr error
}

func (m medium) ReadAt(b []byte, _ int64) (int, error) {
	for i := range b {
		b[i] = m.data
	}
	return len(b), m.readErr
}

func (m medium) WriteAt(b []byte, _ int64) (int, error) { return len(b), m.writeErr }

// A device that keeps its data although it accepted the writes is an error, and so is every failure.
func TestWipeEndsFailures(t *testing.T) {
	broken := errors.New("broken")
	flush := func() error { return nil }
	for name, tt := range map[string]struct {
		device medium
		flush  func() error
		want   error
	}{
		"ignores writes": {medium{data: 1}, flush, ErrNotZero},
		"write":          {medium{writeErr: broken}, flush, broken},
		"read":           {medium{readErr: broken}, flush, broken},
		"flush":          {medium{}, func() error { return broken }, broken},
		"works":          {medium{}, flush, nil},
	} {
		if err := wipeEnds(t.Context(), tt.device, tt.flush, [][2]int64{{0, 1 << 20}}); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := wipeEnds(ctx, medium{}, flush, [][2]int64{{0, 1}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
