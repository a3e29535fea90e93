package pipeline

import (
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"ironroot/storage/image/device"
)

// The priority of the thread is raised until the returned function is called, with the privilege.
func TestPreferThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	nice := func() int {
		raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			t.Fatal(err)
		}
		return 20 - raw
	}
	before := nice()
	undo := preferThread()
	during := nice()
	undo()
	if want := min(before, -10); os.Geteuid() == 0 && during != want {
		t.Errorf("got a nice value of %d, want %d", during, want)
	}
	if after := nice(); after != before {
		t.Errorf("got a nice value of %d afterwards, want %d as before", after, before)
	}
}

// Unaligned chunks are written through the page cache, which only shows in the time it takes.
func TestChunksAreAligned(t *testing.T) {
	for i, c := range NewMemory() {
		address := uintptr(unsafe.Pointer(&c.buffer[0]))
		if address%device.Align != 0 || len(c.buffer) != chunkSize || cap(c.buffer) != chunkSize {
			t.Errorf("chunk %d: got %d bytes of %d at %p, want %d at a multiple of %d",
				i, len(c.buffer), cap(c.buffer), c.buffer, chunkSize, device.Align)
		}
	}
}
