package device

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"ironroot/internal/test/imagetest"
)

const mib = 1 << 20

// Content of the end of the device is not on it before it is released, and complete afterwards.
func TestEndLast(t *testing.T) {
	for _, size := range []int{8 * mib, 8*mib + 512, 2*mib - 512, 3 * mib / 2, mib, mib / 2} {
		target, err := Open(imagetest.UsedDisk(t, size), new(atomic.Int64))
		if err != nil {
			t.Fatal(err)
		}
		defer target.Close() //nolint:errcheck // of a test
		data := imagetest.RandomBytes(55, size)
		for range 2 { // the first attempt is abandoned
			if err := target.Wipe(); err != nil {
				t.Fatal(err)
			}
			for at := 0; at < size; at += 700_001 {
				if err := target.Write(data[at:min(at+700_001, size)], int64(at)); err != nil {
					t.Fatal(err)
				}
			}
			if at := max(mib, size-mib); at < size &&
				len(bytes.Trim(imagetest.ReadAt(t, target.Path, int64(at), size-at), "\x00")) > 0 {
				t.Errorf("%d bytes: the end was written before it was released", size)
			}
		}
		if err := target.ReleaseEnd(); err != nil {
			t.Fatal(err)
		}
		if at, same := imagetest.Difference(imagetest.ReadAt(t, target.Path, 0, size), data); !same {
			t.Errorf("%d bytes: the disk differs from the image at byte %d", size, at)
		}
	}
}

// Unaligned buffers are written through the page cache, which only shows in the time it takes. Of several small
// allocations of Go not all are aligned by chance.
func TestBuffersAreAligned(t *testing.T) {
	var kept [][]byte
	for _, n := range []int{1, 1, 1, 1, Align, 3*mib + 5} {
		for name, b := range map[string][]byte{"buffer": NewBuffer(n), "huge buffer": NewHugeBuffer(n)} {
			kept = append(kept, b)
			if uintptr(unsafe.Pointer(&b[0]))%Align != 0 || len(b) != n || cap(b) != n {
				t.Errorf("%s: got %d bytes of %d at %p, want %d at a multiple of %d", name, len(b), cap(b), b, n, Align)
			}
		}
	}
	runtime.KeepAlive(kept)
}
