package pipeline

import (
	"errors"
	"io"
	"os"
	"runtime"
	"sync/atomic"
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

// place is a Placer.
type place func(c *Chunk, submit func(func() error) error) error

func (p place) Place(c *Chunk, submit func(func() error) error) error { return p(c, submit) }

// counted is a source that counts its bytes.
type counted struct {
	io.Reader
	arrived *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.arrived.Add(int64(n))
	return n, err
}

func (counted) Abort(error) {}

// A chunk is written when all of its jobs have run, and one that needs no job when Place has returned.
func TestWritten(t *testing.T) {
	var arrived, written atomic.Int64
	leave, first := make(chan struct{}), make(chan struct{})
	p := &Pipeline{
		Source: counted{io.LimitReader(zeros{}, 3*chunkSize), &arrived}, Memory: NewMemory(),
		Arrived: &arrived, Written: &written,
		Placer: place(func(c *Chunk, submit func(func() error) error) error {
			switch c.Off / chunkSize {
			case 0:
				wait := func() error { <-leave; return nil }
				return errors.Join(submit(wait), submit(func() error { close(first); return nil }))
			case 1:
				<-first // one of the jobs of the first chunk
				if got := written.Load(); got != 0 {
					t.Errorf("while the first chunk is written: got %d bytes, want 0", got)
				}
			case 2:
				if got := written.Load(); got != 2*chunkSize {
					t.Errorf("with the second chunk: got %d bytes, want %d", got, 2*chunkSize)
				}
				close(leave)
			}
			return nil
		}),
	}
	if _, err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := written.Load(); got != 3*chunkSize {
		t.Errorf("at the end: got %d bytes, want %d", got, 3*chunkSize)
	}
}
