package erase

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/sysfs"
)

const (
	readSize = 4 << 20 // bytes per read
	pageSize = 4096    // bytes of the blocks that are classified
)

// expected describes the content that a read-back expects: evidence.ExpectZeros and so on.
type expected struct {
	name    string
	written *pattern // of the pass; nil if the drive determines the content
	whole   bool     // every byte is read
}

var (
	expectedAny     = expected{name: evidence.ExpectAny}
	expectedUniform = expected{name: evidence.ExpectUniform}
)

// readBackDrive reads a disk back that has erased itself by a technique. The content after a cryptographic erase is
// arbitrary. After any other erase, blocks with data between uniform ones are an error that wraps ErrNotErased: the
// drive has not erased them. A drive without uniform blocks is not one, because it may have written a pattern.
func readBackDrive(ctx context.Context, sys sysfs.Root, device block.Device, o Options, technique Technique) error {
	want := expectedUniform
	if evidence.Cryptographic(string(technique)) {
		want = expectedAny
	}
	return o.Wait.until(ctx, sys, device.Path, func() error {
		f, size, err := openExclusive(device.Path)
		if err != nil {
			return err
		}
		err = readBack(ctx, f, isDirect(f), size, want, o.Recorder)
		return errors.Join(err, f.Close())
	})
}

// readBack reads the extents of a plan and records what it has read. direct means that f is open for direct I/O. The
// error wraps ErrNotErased if the content is not the expected one.
func readBack(
	ctx context.Context, f io.ReaderAt, direct bool, size int64, want expected, record *Recorder,
) error {
	var seed evidence.Seed
	if _, err := rand.Read(seed[:]); err != nil {
		return err
	}
	result, err := readPlan(ctx, f, size, seed, want, record)
	if result == nil {
		return err
	}
	result.Direct = direct
	record.change(func(r *Report) { r.ReadBack = result })
	return err
}

// readPlan reads the extents of the plan of a seed, or every byte. If they were all read, it returns the result, also
// with an error.
func readPlan(
	ctx context.Context, f io.ReaderAt, size int64, seed evidence.Seed, want expected, record *Recorder,
) (*evidence.ReadBack, error) {
	if size > evidence.MaxDiskBytes {
		return nil, fmt.Errorf("read back: got a disk of %d bytes, want at most %d", size, int64(evidence.MaxDiskBytes))
	}
	buffer, err := unix.Mmap(-1, 0, readSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("buffer of %d bytes: %w", readSize, err)
	}
	defer func() { _ = unix.Munmap(buffer) }() // the arguments come from Mmap
	r := reading{want: want, first: -1, result: evidence.ReadBack{
		Seed: seed.String(), Size: size, Started: time.Now().UTC(), Expected: want.name,
	}}
	plan := evidence.Plan(size, seed)
	detection, total := evidence.PlanDetection(size, seed)
	if want.whole {
		r.result.Seed, r.result.Whole = "", true
		plan = slices.Values([]evidence.Extent{{Start: 0, End: size}})
		detection, total = evidence.WholeDetection(size)
	}
	for e := range plan {
		for at := e.Start; at < e.End; {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			part := buffer[:min(readSize, e.End-at)]
			if _, err := f.ReadAt(part, at); err != nil {
				return nil, fmt.Errorf("read back %d bytes at byte %d: %w", len(part), at, err)
			}
			r.classify(part, at)
			at += int64(len(part))
			timelimit.Progress(ctx)
			record.observe(Progress{Phase: ReadingBack, Done: r.result.Read, Total: total})
		}
	}
	b := r.result
	b.Ended = time.Now().UTC()
	if want == expectedUniform && b.Different == b.Read {
		b.Different = 0 // no block shows what the drive has erased others to
	}
	if want.written != nil || b.Other == 0 || want == expectedUniform && b.Other < b.Read {
		b.Detection = detection
	}
	switch {
	case b.Different > 0 && want == expectedUniform:
		return &b, fmt.Errorf("%w: %d of %d bytes that were read back are in blocks with data, between erased ones, "+
			"the first at byte %d", ErrNotErased, b.Different, b.Read, r.first)
	case b.Different > 0 && want.whole:
		return &b, fmt.Errorf("%w: %d of %d bytes are in blocks that are not zeros, the first at byte %d",
			ErrNotErased, b.Different, b.Read, r.first)
	case b.Different > 0:
		return &b, fmt.Errorf("%w: %d of %d bytes that were read back are in blocks that differ from what was "+
			"written, the first at byte %d", ErrNotErased, b.Different, b.Read, r.first)
	}
	return &b, nil
}

// reading collects what is read.
type reading struct {
	want   expected
	result evidence.ReadBack
	first  int64 // place of the first block that differs, -1 without one
	page   [pageSize]byte
}

var zeroPage, onesPage = make([]byte, pageSize), bytes.Repeat([]byte{0xff}, pageSize)

// classify counts the blocks of data that was read at an offset.
func (r *reading) classify(data []byte, offset int64) {
	for len(data) > 0 {
		page := data[:min(pageSize, len(data))]
		size := int64(len(page))
		r.result.Read += size
		zeros := bytes.Equal(page, zeroPage[:size])
		switch {
		case zeros:
			r.result.Zeros += size
		case bytes.Equal(page, onesPage[:size]):
			r.result.Ones += size
		default:
			r.result.Other += size
		}
		if !r.isWanted(page, offset, zeros) {
			if r.result.Different += size; r.first < 0 {
				r.first = offset
			}
		}
		data, offset = data[size:], offset+size
	}
}

// isWanted reports whether a block has the expected content. zeros is true for a block of zeros.
func (r *reading) isWanted(page []byte, offset int64, zeros bool) bool {
	switch r.want.name {
	case evidence.ExpectAny:
		return true
	case evidence.ExpectUniform:
		return isUniform(page)
	case evidence.ExpectZeros:
		return zeros
	}
	want := r.page[:len(page)]
	r.want.written.fill(want, offset)
	return bytes.Equal(page, want)
}

// isUniform reports whether each sector of 512 bytes consists of equal bytes: the parts of a drive can be erased to
// different values.
func isUniform(page []byte) bool {
	for unit := range slices.Chunk(page, unitSize) {
		if !bytes.Equal(unit[1:], unit[:len(unit)-1]) {
			return false
		}
	}
	return true
}
