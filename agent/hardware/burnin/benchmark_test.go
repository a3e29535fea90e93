package burnin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/internal/test/testenv"
)

// firstProcessor returns the number of a processor that the test may run on.
func firstProcessor(t *testing.T) int {
	t.Helper()
	testenv.Linux(t, "affinity")
	list, err := Processors()
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

// A computation takes as long as primes does, which the speed shows.
func TestComputeSpeed(t *testing.T) {
	m, processor := memoryMachine(t, 256), firstProcessor(t)
	const duration = 200 * time.Millisecond
	// Other processes can slow one of the two down so much, but not each time.
	for limit := time.Now().Add(time.Minute); ; {
		speed, err := m.ComputeSpeed(t.Context(), []int{processor}, duration)
		if err != nil || speed <= 0 {
			t.Fatalf("got %v and %v, want a speed", speed, err)
		}
		started := time.Now()
		const count = 20
		for range count {
			primes(nil)
		}
		want := count / time.Since(started).Seconds()
		if speed < 50*want && speed > want/50 {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("got %v computations in a second, want about %v", speed, want)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped")
	cancel(stop)
	if _, err := m.ComputeSpeed(ctx, []int{processor}, time.Hour); !errors.Is(err, stop) {
		t.Errorf("cancelled: got %v, want %v", err, stop)
	}
	if _, err := m.ComputeSpeed(t.Context(), []int{1 << 20}, time.Hour); err == nil ||
		!strings.Contains(err.Error(), "processor 1048576: ") {
		t.Errorf("got %v, want an error of a processor that does not exist", err)
	}
}

// Every size of block is written by several workers, each with its own block or with a part of one.
func TestMemorySpeed(t *testing.T) {
	m, processor := memoryMachine(t, 256), firstProcessor(t)
	for _, block := range []int64{8, 1 << 10, 4 << 10, 3 << 20} {
		for _, shared := range []bool{false, true} {
			three := []int{processor, processor, processor}
			speed, err := m.MemorySpeed(t.Context(), three, block, shared, time.Millisecond)
			if err != nil || speed <= 0 {
				t.Errorf("%d bytes, shared %v: got %v and %v, want a speed", block, shared, speed, err)
			}
		}
	}
	// 256 MiB are available, of which 64 MiB are left to the agent.
	for _, test := range []struct {
		block  int64
		shared bool
		fits   bool
	}{{192 << 20, true, true}, {192<<20 + 4096, true, false}, {97 << 20, false, false}} {
		_, err := m.MemorySpeed(t.Context(), []int{processor, processor}, test.block, test.shared, 0)
		if (err == nil) != test.fits || err != nil && !errors.Is(err, ErrMemory) {
			t.Errorf("%+v: got %v, want ErrMemory unless it fits", test, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped")
	cancel(stop)
	if _, err := m.MemorySpeed(ctx, []int{processor}, 4096, false, time.Hour); !errors.Is(err, stop) {
		t.Errorf("cancelled: got %v, want %v", err, stop)
	}
}

// A wrong bit in a block is an error with its address: in the part of this round, and in the part of the round before.
func TestMemorySpeedFlippedBit(t *testing.T) {
	processor := firstProcessor(t)
	for name, at := range map[string]int{"small block": 3, "this round": 7, "round before": 3<<20/wordBytes - 1} {
		t.Run(name, func(t *testing.T) {
			test := &memoryTest{Machine: memoryMachine(t, 256)}
			block := int64(3 << 20)
			if name == "small block" {
				block = 1 << 10
			}
			workers, free, err := test.blocks(1, block, false)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := free(); err != nil {
					t.Error(err)
				}
			}()
			var address uint64
			test.written = func(words []uint64) {
				words[at] ^= 1 << 9
				address = addressOf(words[at:])
			}
			if name != "round before" {
				_, err = test.write(t.Context(), []int{processor}, workers, 0)
			} else {
				// The time is over in the middle of the second round.
				looks := 0
				ctx := contextFunc{t.Context(), func() error {
					if looks++; looks == 4 {
						test.deadline = time.Now()
					}
					return nil
				}}
				test.deadline = time.Now().Add(time.Hour)
				test.writeBlock(ctx, workers[0])
				err = errors.New(listed(test.failures, test.failed))
			}
			if want := fmt.Sprintf("virtual address %#x: bits 9: ", address); err == nil ||
				!strings.Contains(err.Error(), want) || test.failed != 1 {
				t.Errorf("got %v, want one failure with %q", err, want)
			}
		})
	}
}

// contextFunc calls a function when its error is read.
type contextFunc struct {
	context.Context
	err func() error
}

func (c contextFunc) Err() error { return c.err() }

// Only what was read after the time of warming up is counted, and only whole requests.
func TestReadSpeed(t *testing.T) {
	for name, p := range map[string]ReadPattern{
		"sequential": {Bytes: 8 << 10, AtATime: 1}, "random": {Bytes: 4 << 10, AtATime: 1, Random: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size = 64<<10 + 512 // the last sector is not part of a request
				var order []int64
				disk := &memoryDisk{data: make([]byte, size), onRead: func(b []byte, at int64) error {
					if at%p.Bytes != 0 || int64(len(b)) != p.Bytes || at+p.Bytes > size {
						t.Errorf("read %d bytes at %d", len(b), at)
					}
					order = append(order, at)
					time.Sleep(100 * time.Millisecond)
					return nil
				}}
				speed, err := readSpeed(t.Context(), disk, size, p, time.Second, 4*time.Second)
				// The request that ends with the time of warming up is counted, too.
				if err != nil || len(order) != 50 || speed.Requests < 10 || speed.Requests > 10.5 ||
					speed.Bytes != speed.Requests*float64(p.Bytes) {
					t.Errorf("got %+v, %d reads and %v, want 10 reads in a second", speed, len(order), err)
				}
				inOrder := true
				for i, at := range order {
					inOrder = inOrder && at == int64(i)%8*p.Bytes
				}
				if inOrder == p.Random {
					t.Errorf("got reads at %v", order)
				}
			})
		})
	}
	disk := &memoryDisk{data: make([]byte, 1<<20), onRead: func([]byte, int64) error { return os.ErrClosed }}
	p := ReadPattern{Bytes: 4096, AtATime: 4}
	if _, err := readSpeed(t.Context(), disk, 1<<20, p, 0, time.Hour); !errors.Is(err, os.ErrClosed) ||
		!strings.Contains(err.Error(), "read 4096 bytes at byte ") {
		t.Errorf("got %v, want the error of a read", err)
	}
	if _, err := readSpeed(t.Context(), disk, 4095, p, 0, time.Hour); err == nil {
		t.Error("got no error for a disk that is smaller than a request")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped")
	var reads atomic.Int64
	disk.onRead = func([]byte, int64) error {
		if reads.Add(1) == 10 {
			cancel(stop)
		}
		return nil
	}
	if _, err := readSpeed(ctx, disk, 1<<20, p, 0, time.Hour); !errors.Is(err, stop) {
		t.Errorf("cancelled: got %v, want %v", err, stop)
	}
}

// The disk is read past the page cache, and a disk that is gone is an error that names it.
func TestDiskSpeed(t *testing.T) {
	testenv.Linux(t, "direct I/O")
	m := memoryMachine(t, 256)
	const size = 4 << 20
	path := testenv.Loop(t, testenv.SparseFile(t, size), 4096)
	speed, err := m.DiskSpeed(t.Context(), path, size, ReadPattern{Bytes: 1 << 20, AtATime: 2}, 0, time.Millisecond)
	if err != nil || speed.Requests <= 0 || speed.Bytes != speed.Requests*(1<<20) {
		t.Errorf("got %+v and %v, want a speed", speed, err)
	}
	_, err = m.DiskSpeed(t.Context(), path, size, ReadPattern{Bytes: 512, AtATime: 1}, 0, time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v: half a sector was read through the page cache", err)
	}
	if _, err := m.DiskSpeed(t.Context(), path+"x", size, ReadPattern{Bytes: 4096}, 0, 0); err == nil ||
		!strings.Contains(err.Error(), path+"x") {
		t.Errorf("got %v, want an error that names the disk", err)
	}
}
