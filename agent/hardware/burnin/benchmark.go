package burnin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"ironroot/internal/goroutine"
)

// Processors returns the numbers of the processors that are online.
func Processors() ([]int, error) { return online() }

// ComputeSpeed computes on processors, one worker for each, and verifies every result. It returns the number of
// computations in a second, of all workers together: an event of sysbench's test with --cpu-max-prime=15000 is one.
func (m Machine) ComputeSpeed(ctx context.Context, processors []int, duration time.Duration) (float64, error) {
	t := &cpuTest{Machine: m, computations: []computation{trialDivision}, started: time.Now()}
	t.deadline, t.ticker.last = t.started.Add(duration), t.started
	err := joined(t.workers(ctx, len(processors), processors))
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return float64(t.verified.Load()) / time.Since(t.started).Seconds(), err
}

// ErrMemory is the error of a benchmark for which not enough memory is free.
var ErrMemory = errors.New("not enough memory")

// memoryStep is the number of bytes that a benchmark writes between two looks at the clock.
const memoryStep = 1 << 20

// MemorySpeed writes patterns to a block of memory again and again, by one worker on each processor, and verifies what
// the block contains in the end. Each worker has a block of its own, unless they share one: then each writes a part of
// it. It returns the number of bytes that all workers have written in a second. The error wraps ErrMemory if the blocks
// do not leave the agent and the kernel what they need.
func (m Machine) MemorySpeed(
	ctx context.Context, processors []int, block int64, shared bool, duration time.Duration,
) (float64, error) {
	total, available, err := memoryInfo(m.System)
	if err != nil {
		return 0, err
	}
	t := &memoryTest{Machine: m, reserve: reserveOf(total)}
	blocks := int64(len(processors))
	if shared {
		blocks = 1
	}
	if limit := (available - t.reserve) / blocks; block > limit {
		return 0, fmt.Errorf("%w for %d blocks of %d bytes: %d are available, %d of them are left to the agent",
			ErrMemory, blocks, block, available, t.reserve)
	}
	workers, free, err := t.blocks(len(processors), block, shared)
	if err == nil {
		var speed float64
		if speed, err = t.write(ctx, processors, workers, duration); err == nil {
			return speed, free()
		}
	}
	return 0, errors.Join(err, free())
}

// blocks allocates the memory of workers.
func (t *memoryTest) blocks(count int, block int64, shared bool) (workers [][]uint64, free func() error, err error) {
	var w memoryWorker
	free = func() (err error) {
		for len(w.regions) > 0 {
			err = errors.Join(err, w.freeRegion())
		}
		return err
	}
	for i := range count {
		if i == 0 || !shared {
			region, err := t.allocate(max(block, int64(os.Getpagesize())))
			if err == nil && region == nil {
				err = ErrMemory
			}
			if err != nil {
				return nil, free, err
			}
			w.regions = append(w.regions, region)
		}
		words := w.regions[len(w.regions)-1][:block/wordBytes]
		if shared {
			words = words[i*len(words)/count : (i+1)*len(words)/count]
		}
		workers = append(workers, words)
	}
	return workers, free, nil
}

// write writes to the memory of all workers and returns the bytes in a second.
func (t *memoryTest) write(
	ctx context.Context, processors []int, workers [][]uint64, duration time.Duration,
) (float64, error) {
	t.started = time.Now()
	t.deadline = t.started.Add(duration)
	var written atomic.Int64
	group := goroutine.NewGroup()
	for i, words := range workers {
		group.Go(func() error {
			release, err := pin(processors[i])
			if err != nil {
				return fmt.Errorf("processor %d: %w", processors[i], err)
			}
			defer release()
			written.Add(t.writeBlock(ctx, words))
			return nil
		})
	}
	err := group.Wait()
	speed := float64(written.Load()) / time.Since(t.started).Seconds()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if t.failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d words of memory were wrong: %s", t.failed, listed(t.failures, t.failed)))
	}
	return speed, err
}

// writeBlock writes two patterns by turns until the time is over. It returns the number of bytes.
func (t *memoryTest) writeBlock(ctx context.Context, words []uint64) (written int64) {
	if len(words) == 0 {
		return 0 // there are more workers than words
	}
	all := patterns()
	at := slices.IndexFunc(all, func(p pattern) bool { return p.name == "alternating bits" })
	byTurns := all[at : at+2] // the pattern and its inverse: the same word at all addresses
	repeat := max(1, memoryStep/(len(words)*wordBytes))
	for round := 0; ; round++ {
		now, before := byTurns[round%2], byTurns[(round+1)%2]
		word, end := now.word(0), 0
		for part := range slices.Chunk(words, memoryStep/wordBytes) {
			for range repeat {
				for i := range part {
					part[i] = word
				}
			}
			written += int64(repeat * len(part) * wordBytes)
			end += len(part)
			if ctx.Err() == nil && time.Now().Before(t.deadline) {
				continue
			}
			if t.written != nil {
				t.written(words)
			}
			t.check(words[:end], now)
			if round > 0 {
				t.check(words[end:], before)
			}
			return written
		}
	}
}

// check records the words that differ from a pattern.
func (t *memoryTest) check(words []uint64, p pattern) {
	for i, got := range words {
		if want := p.word(0); got != want {
			t.fail(p, addressOf(words[i:]), got, want)
		}
	}
}

// ReadPattern describes how a benchmark reads a disk.
type ReadPattern struct {
	Random  bool // at random positions; otherwise from the beginning to the end, and again
	Bytes   int64
	AtATime int
}

// DiskSpeed is the result of a benchmark of a disk.
type DiskSpeed struct{ Bytes, Requests float64 } // in a second

// DiskSpeed reads a disk past the page cache, and counts what was read after a time of warming up. The disk may be in
// use. It is not written to.
func (m Machine) DiskSpeed(
	ctx context.Context, path string, size int64, p ReadPattern, warmup, duration time.Duration,
) (speed DiskSpeed, err error) {
	f, err := openDisk(path)
	if err != nil {
		return speed, err
	}
	defer f.Close() //nolint:errcheck // only read
	if speed, err = readSpeed(ctx, f, size, p, warmup, duration); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return speed, err
}

func readSpeed(
	ctx context.Context, disk io.ReaderAt, size int64, p ReadPattern, warmup, duration time.Duration,
) (DiskSpeed, error) {
	parts := size / p.Bytes
	if parts == 0 {
		return DiskSpeed{}, fmt.Errorf("%d bytes are less than a request of %d", size, p.Bytes)
	}
	began := time.Now().Add(warmup)
	until := began.Add(duration)
	var done atomic.Int64
	for first := true; first || time.Now().Before(until); first = false {
		_, err := eachPart(ctx, requests{p.AtATime, p.Bytes}, 0, parts*p.Bytes, until,
			func(buffer []byte, at int64) error {
				if p.Random {
					at = rand.Int64N(parts) * p.Bytes
				}
				if _, err := disk.ReadAt(buffer, at); err != nil {
					return fmt.Errorf("read %d bytes at byte %d: %w", len(buffer), at, err)
				}
				if !time.Now().Before(began) {
					done.Add(1)
				}
				return nil
			})
		if err != nil {
			return DiskSpeed{}, err
		}
	}
	perSecond := float64(done.Load()) / time.Since(began).Seconds()
	return DiskSpeed{Bytes: perSecond * float64(p.Bytes), Requests: perSecond}, nil
}
