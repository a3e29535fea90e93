package image

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// The thread that hashes is preferred for as long as it does, where that is allowed.
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
	if want := -10; os.Geteuid() == 0 && during != want {
		t.Errorf("got a nice value of %d, want %d", during, want)
	}
	if after := nice(); after != before {
		t.Errorf("got a nice value of %d afterwards, want %d as before", after, before)
	}
}

// What is not aligned would be written through the page cache, and nobody would see but the time it takes.
func TestChunksAreAligned(t *testing.T) {
	for i, c := range newChunks() {
		if !isAligned(c.buffer) || len(c.buffer) != chunkSize || cap(c.buffer) != chunkSize {
			t.Errorf("chunk %d: got %d bytes of %d at %#x, want %d at a multiple of %d",
				i, len(c.buffer), cap(c.buffer), addressOf(c.buffer), chunkSize, directAlign)
		}
	}
}
