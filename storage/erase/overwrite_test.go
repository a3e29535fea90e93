package erase

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"testing"
	"time"
)

// generator is the cipher of a pattern. It closes second when the content of the second block is generated.
type generator struct {
	cipher.Block

	second chan struct{}
}

func (g generator) Encrypt(dst, src []byte) {
	if binary.BigEndian.Uint64(src[8:]) == blockSize/aes.BlockSize {
		close(g.second)
	}
	g.Block.Encrypt(dst, src)
}

// slowDisk is a disk whose first write ends when the content of the second block is being generated.
type slowDisk struct {
	t       *testing.T
	second  chan struct{}
	content []byte
	fails   int64 // offset of the write that fails, -1 without one
}

var errWrite = errors.New("broken")

func (d *slowDisk) WriteAt(b []byte, offset int64) (int, error) {
	if offset == 0 {
		select {
		case <-d.second:
		case <-time.After(time.Minute):
			d.t.Error("the second block was not generated during the write of the first")
		}
	}
	if offset == d.fails {
		return 0, errWrite
	}
	return copy(d.content[offset:], b), nil
}

// Random data is generated while the data before it is written, and is the same as if it were generated at once.
func TestWritePassGeneratesAhead(t *testing.T) {
	const size = 2*blockSize + 12345*aes.BlockSize
	engine, err := aes.NewCipher(make([]byte, 16))
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, size)
	(&pattern{engine}).fill(want, 0)
	for _, fails := range []int64{-1, 0, blockSize} {
		second := make(chan struct{})
		disk := &slowDisk{t: t, second: second, content: make([]byte, size), fails: fails}
		b, err := newBuffers()
		if err != nil {
			t.Fatal(err)
		}
		var done []int64
		err = writePass(t.Context(), disk, size, b, &pattern{generator{engine, second}}, func(n int64) {
			done = append(done, n)
		})
		if freeErr := b.free(); freeErr != nil {
			t.Error(freeErr)
		}
		if fails >= 0 {
			if !errors.Is(err, errWrite) || int64(len(done))*blockSize != fails {
				t.Errorf("a write fails at byte %d: got %v after %v, want %v", fails, err, done, errWrite)
			}
			continue
		}
		if err != nil || len(done) != 3 || done[2] != size {
			t.Errorf("got %v with progress %v, want all %d bytes in 3 writes", err, done, size)
		}
		if !bytes.Equal(disk.content, want) {
			t.Error("the content differs from that of the pattern")
		}
	}
}

// A pass of zeros after a random one writes zeros only.
func TestWritePassZeros(t *testing.T) {
	const size = 3*blockSize + 512
	b, err := newBuffers()
	if err != nil {
		t.Fatal(err)
	}
	defer b.free() //nolint:errcheck // written
	for _, buffer := range b {
		copy(buffer[len(buffer)-4:], "left")
	}
	content := bytes.Repeat([]byte("tenant  "), size/8)
	closed := make(chan struct{})
	close(closed)
	disk := &slowDisk{t: t, second: closed, content: content, fails: -1}
	if err := writePass(t.Context(), disk, size, b, &pattern{}, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(content, []byte{0}); n != size {
		t.Errorf("got %d zeros, want %d", n, size)
	}
}
