//go:build linux

package boot

import (
	"io"
	"log/slog"
	"math"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHeapLimit(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct {
		name string
		free uint64
		unit uint32
		want int64
	}{
		{"a small machine", 300 << 20, 1, 200 << 20},
		{"a large one", 24 << 40, 1, 16 << 40},
		{"counted in pages", 3 * gib / 4096, 4096, 2 * gib},
		{"a remainder", 8, 1, 4},
		{"nothing is free", 0, 1, math.MaxInt64},
		{"no unit", gib, 0, math.MaxInt64},
		{"more than there can be", math.MaxUint64, 4096, math.MaxInt64},
	} {
		if got := heapLimit(unix.Sysinfo_t{Freeram: tt.free, Unit: tt.unit}); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

// The limit is in force, and leaves the kernel its third.
func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	(&boot{log: slog.New(slog.NewTextHandler(io.Discard, nil))}).limitMemory()
	total := int64(info.Totalram) * int64(info.Unit)
	if got := debug.SetMemoryLimit(-1); got <= 0 || got > total/3*2 {
		t.Errorf("got a limit of %d bytes, want one of at most two thirds of %d", got, total)
	}
}
