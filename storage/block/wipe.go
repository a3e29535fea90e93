package block

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// wipeMargin is the number of bytes that WipeEnds zeroes at each end of a range. It covers partition tables, the
// superblocks of all common file systems, and both headers of LUKS 2.
const wipeMargin = 8 << 20

// ErrNotZero is returned if a range does not read as zeros after it was overwritten.
var ErrNotZero = errors.New("data are left after they were overwritten")

// WipeEnds zeroes the first and the last 8 MiB of ranges of an open device, given by their start and end in bytes, and
// a range that is shorter as a whole. Then it reads them from the medium: the error wraps ErrNotZero if anything else
// than zeros is read. A range whose end is not behind its start is ignored.
func WipeEnds(ctx context.Context, f *os.File, ranges ...[2]int64) error {
	return wipeEnds(ctx, f, func() error { return Flush(ctx, f.Name()) }, ranges)
}

func wipeEnds(ctx context.Context, device interface {
	io.ReaderAt
	io.WriterAt
}, flush func() error, ranges [][2]int64,
) error {
	zeros, data := make([]byte, 1<<20), make([]byte, 1<<20)
	each := func(do func(offset, n int64) error) error {
		for _, r := range ranges {
			front := min(r[0]+wipeMargin, r[1])
			for _, part := range [][2]int64{{r[0], front}, {max(front, r[1]-wipeMargin), r[1]}} {
				for offset := part[0]; offset < part[1]; offset += int64(len(zeros)) {
					if err := ctx.Err(); err != nil {
						return err
					}
					if err := do(offset, min(int64(len(zeros)), part[1]-offset)); err != nil {
						return fmt.Errorf("byte %d: %w", offset, err)
					}
				}
			}
		}
		return nil
	}
	if err := each(func(offset, n int64) error {
		_, err := device.WriteAt(zeros[:n], offset)
		return err
	}); err != nil {
		return fmt.Errorf("write zeros: %w", err)
	}
	if err := flush(); err != nil {
		return err
	}
	return each(func(offset, n int64) error {
		if _, err := device.ReadAt(data[:n], offset); err != nil {
			return fmt.Errorf("read back: %w", err)
		}
		if !bytes.Equal(data[:n], zeros[:n]) {
			return ErrNotZero
		}
		return nil
	})
}
