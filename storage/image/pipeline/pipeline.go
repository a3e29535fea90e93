// Package pipeline moves an image through memory while it arrives: it reads, hashes and writes concurrently, with
// buffers of a fixed size.
package pipeline

import (
	"context"
	"hash"
	"io"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
)

const (
	chunkSize = 2 << 20 // bytes that are read, hashed and written at once
	chunks    = 10      // one is filled, one is hashed, the others wait or are written

	// Writers is the number of jobs that run concurrently.
	Writers = 3
)

// Chunk is a part of the source in memory. It returns to its pool with the last release.
type Chunk struct {
	buffer []byte // chunkSize, aligned for O_DIRECT
	Data   []byte // the part of buffer that is filled
	Off    int64  // in the source
	refs   atomic.Int32
	pool   chan *Chunk

	jobs    atomic.Int32 // that have not run yet, and one for Place
	arrived int64        // bytes of the source when the chunk was filled, see Pipeline.Arrived
}

func (c *Chunk) hold() { c.refs.Add(1) }

func (c *Chunk) release() {
	if c.refs.Add(-1) == 0 {
		c.pool <- c // never blocks: the pool has space for all
	}
}

// End returns the offset of the end of the chunk in the source.
func (c *Chunk) End() int64 { return c.Off + int64(len(c.Data)) }

// Source is the input of a pipeline. Abort interrupts a Read; its argument is the reason.
type Source interface {
	io.Reader
	Abort(why error)
}

// Placer submits the jobs that write the content of chunks.
type Placer interface {
	// Place is called for one chunk after another.
	Place(c *Chunk, submit func(run func() error) error) error
}

// Pipeline copies a source through memory: one goroutine reads it into chunks, one hashes them in order, and several
// run the jobs that Placer submits for them. Its memory does not depend on the length of the source.
type Pipeline struct {
	Source Source
	Start  int64     // offset of the source's next byte
	Sum    hash.Hash // nil: not hashed
	Placer Placer
	// Arrived is the number of bytes of the source that were received; the source counts them. Written is set to the
	// part of it whose jobs have run. Both may be nil.
	Arrived, Written *atomic.Int64
	// Memory is from NewMemory. It can be used again when Run has returned.
	Memory []*Chunk
}

// NewMemory returns the memory of a pipeline.
func NewMemory() []*Chunk {
	memory := device.NewHugeBuffer(chunks * chunkSize)
	list := make([]*Chunk, chunks)
	for i := range list {
		list[i] = &Chunk{buffer: memory[i*chunkSize:][:chunkSize:chunkSize]}
	}
	return list
}

// Run copies the source to its end, waits for all jobs, and returns the offset of the end.
func (p *Pipeline) Run(ctx context.Context) (int64, error) {
	group, ctx := goroutine.WithContext(ctx)
	pool := make(chan *Chunk, chunks)
	for _, c := range p.Memory {
		c.pool = pool
		pool <- c
	}
	hashed, jobs := make(chan *Chunk, chunks), make(chan func() error, chunks)
	stop := goroutine.AfterContext(ctx, func() { p.Source.Abort(context.Cause(ctx)) }) // a failed job interrupts reads
	defer stop()

	var end int64
	group.Go(func() error {
		defer close(hashed)
		defer close(jobs)
		var err error
		end, err = p.fill(ctx, pool, hashed, jobs)
		return err
	})
	group.Go(func() error {
		if p.Sum != nil {
			defer preferThread()()
		}
		for c := range hashed {
			if p.Sum != nil && ctx.Err() == nil {
				p.Sum.Write(c.Data) //nolint:errcheck // a hash never fails
			}
			c.release()
		}
		return nil
	})
	for range Writers {
		group.Go(func() error {
			for j := range jobs {
				if err := context.Cause(ctx); err != nil {
					return err
				}
				if err := j(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return end, err
}

// preferThread locks the calling goroutine to its thread and raises the priority of the thread, until the returned
// function is called. On a fast network hashing is the bottleneck, because it cannot be done in parallel; all other
// work can run on other processors. Without the privilege the priority does not change.
func preferThread() func() {
	const nice = -10
	runtime.LockOSThread()
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // of this thread, as 20 less its nice value, see getpriority(2)
	had := 20 - raw
	if err == nil && had > nice {
		err = unix.Setpriority(unix.PRIO_PROCESS, 0, nice)
	}
	return func() {
		if err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, had) // lowering the priority is never refused
		}
		runtime.UnlockOSThread()
	}
}

// fill reads the source into chunks, to its end.
func (p *Pipeline) fill(ctx context.Context, pool, hashed chan *Chunk, jobs chan func() error) (int64, error) {
	off := p.Start
	for {
		var c *Chunk
		select {
		case c = <-pool:
		case <-ctx.Done():
			return off, context.Cause(ctx)
		}
		n, err := io.ReadFull(p.Source, c.buffer)
		last := fetch.AtEnd(err)
		if err != nil && !last {
			return off, err
		}
		c.Data, c.Off = c.buffer[:n], off
		off += int64(n)
		if n > 0 {
			if err := p.handOut(ctx, c, hashed, jobs); err != nil {
				return off, err
			}
		}
		if last {
			return off, nil
		}
	}
}

// handOut passes a chunk to the hash and to the placer.
func (p *Pipeline) handOut(ctx context.Context, c *Chunk, hashed chan *Chunk, jobs chan func() error) error {
	c.refs.Store(2) // of this function and of the hash
	defer c.release()
	hashed <- c // has space for all chunks
	if p.Arrived != nil {
		c.arrived = p.Arrived.Load()
	}
	c.jobs.Store(1)
	err := p.Placer.Place(c, func(run func() error) error {
		c.hold()
		c.jobs.Add(1)
		job := func() error {
			if err := run(); err != nil {
				return err
			}
			p.ran(c)
			c.release()
			return nil
		}
		select {
		case jobs <- job:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err == nil {
		p.ran(c)
	}
	return err
}

// ran counts a job of a chunk that has run. With the last one, the chunk is written.
func (p *Pipeline) ran(c *Chunk) {
	if c.jobs.Add(-1) > 0 || p.Written == nil {
		return
	}
	for {
		before := p.Written.Load()
		if before >= c.arrived || p.Written.CompareAndSwap(before, c.arrived) {
			return
		}
	}
}
