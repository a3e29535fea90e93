package pipeline

import (
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
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

// A chunk is written when all of its jobs have run, and one that needs no job when Place has returned.
func TestWritten(t *testing.T) {
	var mu sync.Mutex
	filled, written := 0, []int{}
	leave, first := make(chan struct{}), make(chan struct{})
	p := &Pipeline{
		Source: brokenSource{io.LimitReader(zeros{}, 3*chunkSize)}, Memory: NewMemory(),
		Filled: func() func() {
			filled++
			n := filled
			return func() {
				mu.Lock()
				defer mu.Unlock()
				written = append(written, n)
			}
		},
		Place: func(c *Chunk, submit func(func() error) error) error {
			switch c.Off / chunkSize {
			case 0:
				wait := func() error { <-leave; return nil }
				return errors.Join(submit(wait), submit(func() error { close(first); return nil }))
			case 2:
				<-first // one of the jobs of the first chunk
				mu.Lock()
				defer mu.Unlock()
				if diff := cmp.Diff([]int{2}, written); diff != "" {
					t.Errorf("while the first chunk is written (-want +got):\n%s", diff)
				}
				close(leave)
			}
			return nil
		},
	}
	if _, err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(written)
	if diff := cmp.Diff([]int{1, 2, 3}, written); diff != "" {
		t.Errorf("at the end (-want +got):\n%s", diff)
	}
}
