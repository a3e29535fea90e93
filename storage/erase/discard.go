package erase

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// maxDiscard is the largest number of bytes that are discarded at a time, so that a cancelled erase ends soon.
const maxDiscard = 1 << 30

// discarder discards ranges of block devices.
type discarder interface {
	// discard discards a range of bytes. With secure, the device must erase all copies of the data.
	discard(f *os.File, offset, length int64, secure bool) error
}

// discardsAfter reports whether a device is discarded after its own erase returned an error. A device without an erase
// of its own is overwritten instead, which is the better erase.
func (o Options) discardsAfter(device block.Device, err error) bool {
	if !o.Discard || err == nil || block.IsNVMeNamespace(device.Name) || errors.Is(err, ErrUnsupported) {
		return false
	}
	o.ContinueOnFailure = true
	return o.overwritesAfter(err)
}

// discard discards a device, and verifies that all of its bytes are zeros. Errors wrap ErrNotErased if they are not.
func discard(ctx context.Context, sys sysfs.Root, device block.Device, o Options) error {
	unit, err := discardUnit(sys, device)
	if err != nil || o.decideOnly {
		return err
	}
	if err := partition.Release(ctx, sys, device.Path); err != nil {
		return err
	}
	return o.Wait.until(ctx, sys, device.Path, func() error {
		f, size, err := openExclusive(device.Path)
		if err != nil {
			return err
		}
		err = discardFile(ctx, f, size, unit, o)
		return errors.Join(err, f.Close())
	})
}

// discardUnit returns the largest number of bytes to discard at a time. It is a multiple of the granularity of the
// device, because a device can ignore parts of a unit. An error says why the device cannot be discarded.
func discardUnit(sys sysfs.Root, device block.Device) (int64, error) {
	if device.Rotational {
		return 0, errors.New("rotational disk")
	}
	if device.Zoned == "host-managed" {
		return 0, errors.New("zoned disk")
	}
	limit := func(name string) (int64, error) {
		text, err := sys.Files.Read(filepath.Join(sys.Sys("class/block", device.Name, "queue"), name))
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	}
	bytes, err := limit("discard_max_bytes")
	if err != nil {
		return 0, err
	}
	if bytes <= 0 {
		return 0, errors.New("not supported by the disk")
	}
	granularity, err := limit("discard_granularity")
	if err != nil {
		return 0, err
	}
	return max(maxDiscard-maxDiscard%max(granularity, 1), granularity), nil
}

// discardFile discards a device after samples have been written to it, and verifies that all of its bytes are zeros.
// Errors wrap ErrNotErased if they are not.
func discardFile(ctx context.Context, f *os.File, size, unit int64, o Options) error {
	// The samples are compared before the discard: a device that ignores writes can return zeros.
	taken, err := takeSamples(ctx, f, size, sampling{prove: true, record: o.Recorder})
	if err != nil {
		return err
	}
	defer taken.free()
	if err := discardAll(ctx, f, size, unit, o); err != nil {
		return err
	}
	if err := block.Flush(ctx, f.Name()); err != nil { // the samples are not read from the kernel's cache
		return err
	}
	if err := taken.verify(ctx, f); err != nil {
		return err
	}
	return readBack(ctx, f, isDirect(f), size, expectedDiscarded, o.Recorder)
}

// expectedDiscarded is the content of every byte of a device after a discard: zero.
var expectedDiscarded = expected{name: evidence.ExpectZeros, written: &pattern{}, whole: true}

// discardAll discards all bytes of a device: by a secure discard, otherwise by a discard.
func discardAll(ctx context.Context, f *os.File, size, unit int64, o Options) error {
	var problems []error
	for _, secure := range []bool{true, false} {
		name := map[bool]string{true: "BLKSECDISCARD", false: "BLKDISCARD"}[secure]
		err := discardBy(ctx, f, size, unit, secure, o)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			o.Recorder.reported(name, "completed", true)
			return nil
		}
		o.Recorder.reported(name, err.Error(), false)
		problems = append(problems, fmt.Errorf("%s: %w", name, err))
	}
	return errors.Join(problems...)
}

// discardBy discards all bytes of a device by a secure discard or a discard.
func discardBy(ctx context.Context, f *os.File, size, unit int64, secure bool, o Options) error {
	d := cmp.Or[discarder](o.discarder, kernelDiscard{})
	for offset := int64(0); offset < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		o.Recorder.observe(Progress{Phase: Discarding, Done: offset, Total: size})
		length := min(unit, size-offset)
		err := d.discard(f, offset, length, secure)
		timelimit.Progress(ctx)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return errors.New("not supported by the disk")
		}
		if err != nil {
			return fmt.Errorf("%d bytes at byte %d: %w", length, offset, err)
		}
		offset += length
	}
	return nil
}
