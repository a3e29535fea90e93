package erase

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"ironroot/storage/block"
	"ironroot/storage/partition"
)

// margin is what is overwritten at both ends of a device and of each of its partitions, in bytes. In it lie: partition
// tables and their backups with every sector size; the superblocks of all common file systems (btrfs' and gfs2's at
// 64 KiB, VMFS' at 2 MiB); both headers of LUKS 2 (to 4 MiB); the labels of ZFS (512 KiB at both ends); and what md,
// BIOS RAID and DDF keep in the last 128 KiB.
const margin = 8 << 20

// Metadata removes partition tables and the signatures of file systems, RAID members and volumes from a device and
// its partitions, so that nothing recognises them any more. The content between stays. The partitions that the kernel
// knows of the device are gone afterwards. A device that is in use is refused (EBUSY).
func Metadata(ctx context.Context, sys block.System, device string) error {
	if err := metadata(ctx, sys, device); err != nil {
		return fmt.Errorf("erase the metadata of %s: %w", device, err)
	}
	return nil
}

func metadata(ctx context.Context, sys block.System, device string) error {
	if err := partition.Release(ctx, sys, device); err != nil {
		return err
	}
	f, size, err := openExclusive(device)
	if err != nil {
		return err
	}
	ranges := []span{{0, size}}
	table, err := partition.Read(ctx, device)
	switch {
	case err == nil:
		for _, p := range table.Partitions {
			ranges = append(ranges, span{p.Start, min(p.Start+p.Size, size)})
		}
	case !errors.Is(err, partition.ErrNoTable):
		return errors.Join(err, f.Close())
	}
	// The whole device comes last: its table says where the partitions are, should this be interrupted.
	slices.Reverse(ranges)
	for _, r := range ranges {
		if err := r.wipe(ctx, f); err != nil {
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
		if err := partition.Sync(ctx, sys, device); err != nil {
			return err
		}
	}
	found, err := block.Probe(ctx, device)
	if err != nil {
		return err
	}
	if found.Type != "" {
		return fmt.Errorf("a signature of %s is still there", found.Type)
	}
	return nil
}

// span is a range of bytes from start to end.
type span struct{ start, end int64 }

func (s span) wipe(ctx context.Context, f *os.File) error {
	front := span{s.start, min(s.end, s.start+margin)}
	back := span{max(front.end, s.end-margin), s.end}
	for _, part := range []span{front, back} {
		if err := part.zero(ctx, f); err != nil {
			return err
		}
	}
	return nil
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
