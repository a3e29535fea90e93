package burnin

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/storage/image/device"
)

// DiskReport describes the test of a disk.
type DiskReport struct {
	Size     int64   `json:"size"`     // of the disk, in bytes
	Written  int64   `json:"written"`  // bytes, over all passes
	Verified int64   `json:"verified"` // bytes that were read and verified, over all passes
	Seconds  float64 `json:"seconds"`

	wrong     int           // blocks
	writeTime time.Duration // of writes only
	readTime  time.Duration
}

// Medium is a disk that is opened for direct I/O: what is read must come from the disk.
type Medium interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}

const (
	blockBytes   = 4096 // as with ironic-python-agent
	requestBytes = 256 << 10
	diskWorkers  = 4 // requests at a time
)

// Header of a block. The checksum covers all other bytes of the block.
const (
	offsetRun      = 0  // 8 bytes: random number of this test
	offsetPosition = 8  // 8 bytes: position on the disk
	offsetPass     = 16 // 8 bytes
	offsetChecksum = 24 // 4 bytes: CRC-32C
	headerBytes    = 32
)

// diskTest is one run of Disk.
type diskTest struct {
	medium   Medium
	run      uint64
	key      cipher.Block
	report   DiskReport
	progress func(done, total int64)
	options  DiskOptions
	started  time.Time

	mu       sync.Mutex
	done     int64
	failures []string
}

// Disk writes the whole medium with blocks that have a checksum and their position, then reads and verifies it, as
// often as the options say. With a runtime, half of the time that is left is for writing; what was written is always
// verified. The content of the medium is lost. progress is called with bytes and may be called concurrently. With a
// runtime, the total is an estimate.
//
// Wrong blocks are an error that lists them, after the pass in which they were found. An error of a read or write ends
// the test at once. The report is valid with an error, too.
func Disk(ctx context.Context, medium Medium, size int64, o DiskOptions, progress func(done, total int64)) (
	DiskReport, error,
) {
	var secret [8 + 16]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return DiskReport{}, err
	}
	key, err := aes.NewCipher(secret[8:])
	if err != nil {
		return DiskReport{}, err
	}
	t := &diskTest{
		medium: medium, key: key, run: binary.LittleEndian.Uint64(secret[:]), progress: progress,
		report: DiskReport{Size: size}, options: o, started: time.Now(),
	}
	err = t.passes(ctx)
	t.report.Seconds = seconds(time.Since(t.started))
	return t.report, err
}

func (t *diskTest) passes(ctx context.Context) error {
	if t.report.Size < headerBytes {
		return fmt.Errorf("disk of %d bytes is too small", t.report.Size)
	}
	o := t.options
	deadline := t.started.Add(o.Runtime)
	start := int64(0)
	for pass := uint64(1); ; pass++ {
		var until time.Time
		if o.Runtime > 0 {
			until = time.Now().Add(time.Until(deadline) / 2)
		}
		end, err := t.pass(ctx, pass, start, until)
		if err != nil {
			return err
		}
		if t.report.wrong > 0 {
			return fmt.Errorf("%d blocks of %d bytes were wrong in pass %d: %s",
				t.report.wrong, blockBytes, pass, listed(t.failures, t.report.wrong))
		}
		if start = end; end == t.report.Size {
			start = 0
		}
		if o.Runtime > 0 && !time.Now().Before(deadline) || o.Runtime == 0 && pass == uint64(o.Loops) {
			return nil
		}
	}
}

// pass writes the disk from start to the end, or until a time unless it is zero, and verifies what it has written. It
// returns the end of the part that it tested.
func (t *diskTest) pass(ctx context.Context, pass uint64, start int64, until time.Time) (end int64, err error) {
	began := time.Now()
	end, err = t.each(ctx, start, t.report.Size, until, func(buffer []byte, at int64) error {
		t.fill(buffer, at, pass)
		if _, err := t.medium.WriteAt(buffer, at); err != nil {
			return fmt.Errorf("write %d bytes at byte %d: %w", len(buffer), at, err)
		}
		t.count(&t.report.Written, len(buffer))
		return nil
	})
	if err == nil {
		err = t.medium.Sync()
	}
	t.report.writeTime += time.Since(began)
	if err != nil {
		return 0, err
	}
	began = time.Now()
	_, err = t.each(ctx, start, end, time.Time{}, func(buffer []byte, at int64) error {
		clear(buffer) // a device that returns nothing must not leave what was written before
		if _, err := t.medium.ReadAt(buffer, at); err != nil {
			return fmt.Errorf("read %d bytes at byte %d: %w", len(buffer), at, err)
		}
		t.verify(buffer, at, pass)
		t.count(&t.report.Verified, len(buffer))
		return nil
	})
	t.report.readTime += time.Since(began)
	return end, err
}

// each is eachPart for the requests of this test.
func (t *diskTest) each(
	ctx context.Context, start, end int64, until time.Time, do func(buffer []byte, at int64) error,
) (int64, error) {
	return eachPart(ctx, requests{diskWorkers, requestBytes}, start, end, until, do)
}

// requests describes the requests to a disk.
type requests struct {
	depth int   // at a time
	bytes int64 // of each
}

// eachPart calls do for consecutive parts of a range, several at a time, until a time unless it is zero. It returns
// where the parts end that were done.
func eachPart(
	ctx context.Context, r requests, start, end int64, until time.Time, do func(buffer []byte, at int64) error,
) (int64, error) {
	var next atomic.Int64
	next.Store(start)
	group, ctx := goroutine.WithContext(ctx)
	for range r.depth {
		group.Go(func() error {
			buffer := device.NewBuffer(int(r.bytes))
			for {
				if err := ctx.Err(); err != nil {
					return context.Cause(ctx)
				}
				if !until.IsZero() && next.Load() > start && !time.Now().Before(until) {
					return nil
				}
				at := next.Add(r.bytes) - r.bytes
				if at >= end {
					return nil
				}
				if err := do(buffer[:min(r.bytes, end-at)], at); err != nil {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return start, err
	}
	return min(next.Load(), end), nil
}

// count adds bytes to a figure of the report.
func (t *diskTest) count(figure *int64, bytes int) {
	t.mu.Lock()
	*figure += int64(bytes)
	t.done += int64(bytes)
	done := t.done
	t.mu.Unlock()
	t.progress(done, t.total(done))
}

// total returns the number of bytes to write and verify. If the options limit the time, it is an estimate.
func (t *diskTest) total(done int64) int64 {
	total := 2 * float64(t.options.Loops) * float64(t.report.Size)
	if t.options.Runtime > 0 {
		total = float64(done) / min(1, float64(time.Since(t.started))/float64(t.options.Runtime))
	}
	if total >= math.MaxInt64 {
		return math.MaxInt64
	}
	return max(done, int64(total))
}

// fill fills a buffer with the blocks of a position and pass.
func (t *diskTest) fill(buffer []byte, at int64, pass uint64) {
	var counter [aes.BlockSize]byte
	binary.BigEndian.PutUint64(counter[:], pass)
	binary.BigEndian.PutUint64(counter[8:], uint64(at)) // a part has less blocks of AES than bytes
	clear(buffer)
	cipher.NewCTR(t.key, counter[:]).XORKeyStream(buffer, buffer)
	for block := range slices.Chunk(buffer, blockBytes) {
		binary.LittleEndian.PutUint64(block[offsetRun:], t.run)
		binary.LittleEndian.PutUint64(block[offsetPosition:], uint64(at))
		binary.LittleEndian.PutUint64(block[offsetPass:], pass)
		binary.LittleEndian.PutUint32(block[offsetChecksum:], checksum(block))
		at += blockBytes
	}
}

// checksum returns the checksum of a block without its place in the header.
func checksum(block []byte) uint32 {
	sum := crc32.Update(0, castagnoli, block[:offsetChecksum])
	return crc32.Update(sum, castagnoli, block[offsetChecksum+4:])
}

// verify records the blocks of a buffer that differ from the position and pass.
func (t *diskTest) verify(buffer []byte, at int64, pass uint64) {
	for block := range slices.Chunk(buffer, blockBytes) {
		if reason := t.difference(block, at, pass); reason != "" {
			t.fail(fmt.Sprintf("byte %d: %s", at, reason))
		}
		at += blockBytes
	}
}

// difference returns how a block differs from the block of the position and pass, "" if it does not.
func (t *diskTest) difference(block []byte, at int64, pass uint64) string {
	position := int64(binary.LittleEndian.Uint64(block[offsetPosition:]))
	gotPass := binary.LittleEndian.Uint64(block[offsetPass:])
	switch {
	case binary.LittleEndian.Uint32(block[offsetChecksum:]) != checksum(block):
		return "wrong checksum"
	case binary.LittleEndian.Uint64(block[offsetRun:]) != t.run:
		return "data of another test"
	case position != at:
		return fmt.Sprintf("data that was written to byte %d", position)
	case gotPass != pass:
		return fmt.Sprintf("data of pass %d", gotPass)
	}
	return ""
}

func (t *diskTest) fail(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.report.wrong++; t.report.wrong <= maxListed {
		t.failures = append(t.failures, text)
	}
}
