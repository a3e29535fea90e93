package erase

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// Ranges overwrites ranges of a device, in the passes of [Run], and reads them back as if they were one device. The
// rest of the device stays as it is. Ranges are given by their start and end in bytes, in order and at multiples of the
// sector size. The kernel keeps the partitions of the device, and none of them may be in use.
//
// Errors wrap ErrReadOnly, ErrBusy, ErrZoned, ErrTCGLocked and ErrNotErased like the errors of Run.
func Ranges(
	ctx context.Context, sys sysfs.Root, device block.Device, ranges [][2]int64, o Options,
) error {
	if err := eraseRanges(ctx, sys, device, ranges, o, readOnly{}); err != nil {
		return fmt.Errorf("erase %d ranges of %s: %w", len(ranges), device.Path, err)
	}
	o.Recorder.Erased(Overwrite)
	return nil
}

func eraseRanges(
	ctx context.Context, sys sysfs.Root, device block.Device, ranges [][2]int64, o Options, query opener,
) error {
	if err := o.Recorder.start(device.Path); err != nil {
		return err
	}
	if err := awaitWritable(ctx, sys, device, o.Wait); err != nil {
		return err
	}
	unknown, err := checkLockedDevice(ctx, sys, device, query, o.Recorder)
	if err != nil {
		return err
	}
	o.prove = unknown
	if device.Zoned == "host-managed" {
		return ErrZoned
	}
	return withRanges(ctx, sys, device, ranges, o.Wait, func(s space) error { return s.overwrite(ctx, o) })
}

// CheckZeros reads ranges of a device back, given as to [Ranges], at the places of a plan for the joined ranges. The
// error wraps ErrNotErased if anything else than zeros is read. Of the options, it uses Wait.
func CheckZeros(ctx context.Context, sys sysfs.Root, device block.Device, ranges [][2]int64, o Options) error {
	err := withRanges(ctx, sys, device, ranges, o.Wait, func(s space) error {
		return readBack(ctx, s, isDirect(s.file), s.size(), (&pattern{}).expected(), nil)
	})
	if err != nil {
		return fmt.Errorf("read %d ranges of %s: %w", len(ranges), device.Path, err)
	}
	return nil
}

// withRanges opens a device exclusively and calls do with ranges of it.
func withRanges(
	ctx context.Context, sys sysfs.Root, device block.Device, ranges [][2]int64, wait Wait, do func(space) error,
) error {
	return wait.until(ctx, sys, device.Path, func() (err error) {
		f, size, err := openExclusive(device.Path)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		s := space{file: f}
		if len(ranges) == 0 {
			return errors.New("no range")
		}
		for _, r := range ranges {
			if r[0] < s.end() || r[1] <= r[0] || r[1] > size {
				return fmt.Errorf("range from byte %d to %d is empty, before byte %d, or beyond byte %d",
					r[0], r[1], s.end(), size)
			}
			s.spans = append(s.spans, span{r[0], r[1]})
		}
		return do(s)
	})
}

// space is the part of a device that is overwritten: ranges in order, addressed as if they were joined.
type space struct {
	file  *os.File
	spans []span
}

// end returns the end of the last range on the device.
func (s space) end() int64 {
	if len(s.spans) == 0 {
		return 0
	}
	return s.spans[len(s.spans)-1].end
}

func (s space) size() int64 {
	total := int64(0)
	for _, r := range s.spans {
		total += r.end - r.start
	}
	return total
}

// ReadAt implements [io.ReaderAt].
func (s space) ReadAt(b []byte, offset int64) (int, error) { return s.each(b, offset, s.file.ReadAt) }

// WriteAt implements [io.WriterAt].
func (s space) WriteAt(b []byte, offset int64) (int, error) { return s.each(b, offset, s.file.WriteAt) }

// each calls do for the parts of b in each range.
func (s space) each(b []byte, offset int64, do func([]byte, int64) (int, error)) (done int, err error) {
	for _, r := range s.spans {
		length := r.end - r.start
		if offset >= length {
			offset -= length
			continue
		}
		part := b[done:min(int64(len(b)), int64(done)+length-offset)]
		n, err := do(part, r.start+offset)
		if done += n; err != nil || done == len(b) {
			return done, err
		}
		offset = 0
	}
	return done, io.EOF
}
