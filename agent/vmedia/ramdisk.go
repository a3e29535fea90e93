package vmedia

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/nfit"
	"ironroot/storage/sysfs"
)

// overwriteRAMDisks overwrites the RAM disks to which the firmware has loaded a medium with zeros, and reads them back.
// They cannot be removed: their drivers can be loaded again. It is an error if the kernel does not show a RAM disk that
// the firmware describes.
func overwriteRAMDisks(ctx context.Context, sys sysfs.Root, log *slog.Logger) error {
	devices, err := block.All(ctx, sys)
	if err != nil {
		return fmt.Errorf("list RAM disks of the firmware: %w", err)
	}
	var failed []error
	count := 0
	for _, d := range devices {
		if d.Type != block.RAMDisk {
			continue
		}
		count++
		if err := overwrite(ctx, sys.Dev(strings.TrimPrefix(d.Path, "/dev/")), d.Size); err != nil {
			failed = append(failed, fmt.Errorf("overwrite RAM disk %s: %w", d.Path, err))
			continue
		}
		log.Info("RAM disk of the firmware overwritten", "device", d.Path, "bytes", d.Size)
	}
	described, err := describedRAMDisks(sys)
	if err == nil && count < described {
		err = fmt.Errorf("firmware describes %d RAM disks, the kernel shows %d", described, count)
	}
	return errors.Join(append(failed, err)...)
}

// describedRAMDisks returns the number of RAM disks that the firmware describes.
func describedRAMDisks(sys sysfs.Root) (int, error) {
	table, err := os.ReadFile(sys.Sys(nfit.TableFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read NFIT: %w", err)
	}
	ranges, err := nfit.Parse(table)
	if err != nil {
		return 0, err
	}
	count := 0
	for _, r := range ranges {
		if r.IsRAMDisk() {
			count++
		}
	}
	return count, nil
}

// ramDisk is an open RAM disk. WriteAt returns when the device contains the data. DropBuffers makes the next read
// return what the device contains.
type ramDisk interface {
	io.WriterAt
	io.ReaderAt
	DropBuffers() error
}

type deviceFile struct{ *os.File }

func (f deviceFile) DropBuffers() error { return dropBuffers(f.File) }

// overwrite overwrites a device of size bytes with zeros, and compares what it reads back.
func overwrite(ctx context.Context, path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_SYNC, 0)
	if err != nil {
		return err
	}
	return errors.Join(zero(ctx, deviceFile{f}, size), f.Close())
}

// zero is overwrite for an open device. It reports progress to [timelimit.Do].
func zero(ctx context.Context, d ramDisk, size int64) error {
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, err := d.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return err
		}
		timelimit.Progress(ctx)
	}
	if err := d.DropBuffers(); err != nil {
		return err
	}
	return checkZeros(ctx, d, size)
}

// checkZeros returns an error with the first byte that is not zero in the first size bytes.
func checkZeros(ctx context.Context, f io.ReaderAt, size int64) error {
	got := make([]byte, 1<<20)
	for at := int64(0); at < size; at += int64(len(got)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		piece := got[:min(int64(len(got)), size-at)]
		if n, err := f.ReadAt(piece, at); n < len(piece) {
			return fmt.Errorf("read back at byte %d: %w", at+int64(n), err)
		}
		if i := slices.IndexFunc(piece, func(b byte) bool { return b != 0 }); i >= 0 {
			return fmt.Errorf("read back at byte %d: got 0x%02x, want 0x00", at+int64(i), piece[i])
		}
		timelimit.Progress(ctx)
	}
	return nil
}
