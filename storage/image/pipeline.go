package image

import (
	"context"
	"hash"
	"io"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

const (
	chunkSize = 2 << 20 // what is read, hashed and written at once
	chunks    = 10      // in flight; one is being filled, one hashed, the others wait or are written
	writers   = 3       // writes in flight
)

// chunk is a piece of the source in memory. It goes back to its pool when nobody holds it any more.
type chunk struct {
	buffer []byte // chunkSize, aligned for O_DIRECT
	data   []byte // what of it is filled
	off    int64  // in the source
	refs   atomic.Int32
	pool   chan *chunk
}

func (c *chunk) hold() { c.refs.Add(1) }

func (c *chunk) release() {
	if c.refs.Add(-1) == 0 {
		c.pool <- c // never blocks: the pool has room for all
	}
}

func (c *chunk) end() int64 { return c.off + int64(len(c.data)) }

// job is work on a chunk, which stays in memory until run has returned.
type job struct {
	chunk *chunk
	run   func() error
}

// source is what a pipeline moves. abort makes a Read that is under way return; it is told why the pipeline ends.
type source interface {
	io.Reader
	abort(why error)
}

// pipeline moves a source through memory: one goroutine reads it into chunks, one hashes them in order, several do the
// jobs that place makes of them. Its memory does not depend on the length of the source.
type pipeline struct {
	source source
	start  int64     // offset of the source's next byte
	sum    hash.Hash // nil: not hashed
	// place is called for one chunk after another and hands out what is to be done with it.
	place func(c *chunk, submit func(run func() error) error) error
	// memory is what newChunks returned; it can be used again when run has returned.
	memory []*chunk
}

func newChunks() []*chunk {
	memory := hugeBuffer(chunks * chunkSize)
	list := make([]*chunk, chunks)
	for i := range list {
		list[i] = &chunk{buffer: memory[i*chunkSize:][:chunkSize:chunkSize]}
	}
	return list
}

// run returns the offset of the source's end after all jobs are done.
func (p *pipeline) run(ctx context.Context) (int64, error) {
	group, ctx := goroutine.WithContext(ctx)
	pool := make(chan *chunk, chunks)
	for _, c := range p.memory {
		c.pool = pool
		pool <- c
	}
	hashed, jobs := make(chan *chunk, chunks), make(chan job, chunks)
	stop := goroutine.AfterContext(ctx, func() { p.source.abort(context.Cause(ctx)) }) // a failed job interrupts reads
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
		if p.sum != nil {
			defer preferThread()()
		}
		for c := range hashed {
			if p.sum != nil && ctx.Err() == nil {
				p.sum.Write(c.data) //nolint:errcheck // a hash never fails
			}
			c.release()
		}
		return nil
	})
	for range writers {
		group.Go(func() error {
			for j := range jobs {
				if err := context.Cause(ctx); err != nil {
					return err
				}
				if err := j.run(); err != nil {
					return err
				}
				j.chunk.release()
			}
			return nil
		})
	}
	err := group.Wait()
	return end, err
}

// preferThread keeps the calling goroutine on its thread, and has the kernel prefer that to others, until the returned
// function is called. Hashing bounds a fast network: there is one order to hash in, and whatever else has to run finds
// a processor that is less busy. Without the privilege the thread remains as it is.
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
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, had) // giving way is never refused
		}
		runtime.UnlockOSThread()
	}
}

// fill reads the source to its end.
func (p *pipeline) fill(ctx context.Context, pool, hashed chan *chunk, jobs chan job) (int64, error) {
	off := p.start
	for {
		var c *chunk
		select {
		case c = <-pool:
		case <-ctx.Done():
			return off, context.Cause(ctx)
		}
		n, err := io.ReadFull(p.source, c.buffer)
		last := atEnd(err)
		if err != nil && !last {
			return off, err
		}
		c.data, c.off = c.buffer[:n], off
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

// atEnd reports whether io.ReadFull came to the end of a body. It returns these two unwrapped; an error that wraps one
// of them is that of a connection which broke off.
func atEnd(err error) bool {
	return err == io.EOF || err == io.ErrUnexpectedEOF //nolint:errorlint // see above
}

func (p *pipeline) handOut(ctx context.Context, c *chunk, hashed chan *chunk, jobs chan job) error {
	c.refs.Store(2) // this function's and the hash's
	defer c.release()
	hashed <- c // has room for all chunks
	return p.place(c, func(run func() error) error {
		c.hold()
		select {
		case jobs <- job{c, run}:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}
