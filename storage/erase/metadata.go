package erase

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"ironroot/storage/block"
	"ironroot/storage/md"
	"ironroot/storage/partition"
)

// margin is the number of bytes that are overwritten at both ends of a device, of each of its partitions, and of the
// data of each array that they are members of. They contain: partition tables and their backups with every sector
// size; the superblocks of all common file systems (btrfs and gfs2 at 64 KiB, VMFS at 2 MiB); both headers of LUKS 2
// (to 4 MiB); the labels of ZFS (512 KiB at both ends); the superblocks of every version of md; and what BIOS RAID and
// DDF keep in the last 128 KiB.
const margin = 8 << 20

// Metadata removes partition tables and the signatures of file systems, RAID members and volumes from a device and its
// partitions, and checks that none is left. Other content stays. Afterwards the kernel has no partitions of the
// device. The error wraps ErrBusy for a device that is in use.
func Metadata(ctx context.Context, sys block.System, device string, wait Wait) error {
	if err := metadata(ctx, sys, device, wait); err != nil {
		return fmt.Errorf("erase the metadata of %s: %w", device, err)
	}
	return nil
}

// MetadataMethod returns the result of Metadata for a device: MetadataOnly, followed by what was not erased and why:
// namespaces of an NVMe subsystem that this host cannot see. It only reads.
func MetadataMethod(device block.Device) Method { return metadataMethod(device, openIdentify) }

func metadataMethod(device block.Device, open func(string) (adminDevice, error)) Method {
	if !nvmeName.MatchString(device.Name) {
		return MetadataOnly
	}
	d, err := open(device.Path)
	if err != nil {
		return MetadataOnly + nvmeScope{unknown: err}.notErased()
	}
	defer d.close() //nolint:errcheck // nothing was written
	_, _, scope := identifyAll(d)
	return MetadataOnly + scope.notErased()
}

func metadata(ctx context.Context, sys block.System, device string, wait Wait) error {
	if err := wait.free(ctx, sys, device); err != nil {
		return err
	}
	if err := partition.Release(ctx, sys, device); err != nil {
		return err
	}
	var f *os.File
	var size int64
	if err := wait.until(ctx, sys, device, func() (err error) {
		f, size, err = openExclusive(device)
		return err
	}); err != nil {
		return err
	}
	ranges, err := ranges(ctx, device, size)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	// The whole device comes last: if this is interrupted, its table still names the partitions.
	var inside []span
	for _, r := range ranges[1:] {
		inside = append(inside, r.ends()...)
	}
	for _, part := range slices.Concat(merge(inside), ranges[0].ends()) {
		if err := part.zero(ctx, f); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := block.Flush(ctx, device); err != nil {
		return err
	}
	if info, err := sys.Device(device); err == nil && info.Type != "part" {
		if err := forget(ctx, sys, info, wait); err != nil {
			return err
		}
	}
	return checkWiped(ctx, device, ranges)
}

// ranges returns the byte ranges of the device, of its partitions, and of the data of the arrays that they are members
// of.
func ranges(ctx context.Context, device string, size int64) ([]span, error) {
	spans := []span{{0, size}}
	table, err := partition.Read(ctx, device)
	switch {
	case err == nil:
		for _, p := range table.Partitions {
			if end := min(p.Start+p.Size, size); p.Start < end {
				spans = append(spans, span{p.Start, end})
			}
		}
	case !errors.Is(err, partition.ErrNoTable):
		return nil, err
	}
	f, err := os.Open(device)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	for _, r := range slices.Clone(spans) {
		found, err := r.superblocks(f)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			if s.Problem == nil {
				spans = append(spans, r.dataOf(s))
			}
		}
	}
	return spans, nil
}

// checkWiped returns an error if a signature is left on the device or a superblock of an array in one of the ranges.
func checkWiped(ctx context.Context, device string, ranges []span) error {
	found, err := block.Probe(ctx, device)
	if err != nil {
		return err
	}
	if found.Type != "" {
		return fmt.Errorf("a signature of %s is left", found.Type)
	}
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	for _, r := range ranges {
		left, err := r.superblocks(f)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("an md superblock %s is left at byte %d", left[0].Version, r.start+left[0].Offset)
		}
	}
	return nil
}

// span is a range of bytes from start to end.
type span struct{ start, end int64 }

func (s span) superblocks(r io.ReaderAt) ([]md.Superblock, error) {
	return md.Find(io.NewSectionReader(r, s.start, s.end-s.start), s.end-s.start)
}

// dataOf returns the data of an array whose member the range is. It is widened to blocks of 4 KiB within the range: a
// superblock can name any sector of 512 bytes, and direct writes to a device with larger sectors must be aligned.
func (s span) dataOf(array md.Superblock) span {
	const mask = 4<<10 - 1
	start := s.start + array.DataOffset
	end := start + array.DataSize
	return span{max(s.start, start&^mask), min(s.end, (end+mask)&^mask)}
}

// ends returns what is overwritten of a range: the margins at both ends.
func (s span) ends() []span {
	front := span{s.start, min(s.end, s.start+margin)}
	return []span{front, {max(front.end, s.end-margin), s.end}}
}

// merge joins ranges that overlap or touch, so that nothing is written twice: a table can name thousands of partitions
// at one place.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	var merged []span
	for _, s := range spans {
		if last := len(merged) - 1; last >= 0 && s.start <= merged[last].end {
			merged[last].end = max(merged[last].end, s.end)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

func (s span) zero(ctx context.Context, f *os.File) error {
	zeros := alignedZeros()
	for offset := s.start; offset < s.end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), s.end-offset)], offset)
		if err != nil {
			return fmt.Errorf("write zeros at byte %d: %w", offset, err)
		}
		offset += int64(n)
	}
	return nil
}
