package raid

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"ironroot/storage/block"
	"ironroot/storage/md"
	"ironroot/storage/sysfs"
)

// Member is a disk or partition with a valid superblock.
type Member struct {
	Device block.Device
	Disk   block.Device // the disk that the member is on, or is; the zero value if it is not known
	md.Superblock
}

// Read returns the superblocks of a device or image file. There may be several: a new one does not overwrite an old
// one at another offset.
func Read(ctx context.Context, path string) ([]md.Superblock, error) {
	return decode(ctx, path, "md superblocks", func(r io.ReaderAt, size, _ int64) ([]md.Superblock, error) {
		return md.Find(r, size)
	})
}

// ReadExternal returns the format of external metadata on a disk or image file, and "" if there are none.
func ReadExternal(ctx context.Context, path string) (md.External, error) {
	return decode(ctx, path, "external RAID metadata", md.FindExternal)
}

// ReadMembership reads the external metadata on a disk or image file. The serial numbers are the disk's.
func ReadMembership(ctx context.Context, path string, serials []string) (md.Membership, error) {
	return decode(ctx, path, "external RAID metadata", func(r io.ReaderAt, size, sector int64) (md.Membership, error) {
		return md.FindMembership(r, size, sector, serials)
	})
}

// decode calls find with a disk or image file, its size and the size of its sectors.
func decode[T any](
	ctx context.Context, path, what string, find func(r io.ReaderAt, size, sector int64) (T, error),
) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	f, err := os.Open(path)
	if err != nil {
		return none, fmt.Errorf("read %s: %w", what, err)
	}
	defer f.Close() //nolint:errcheck // only read
	size, sector, err := block.Geometry(f)
	if err != nil {
		return none, fmt.Errorf("read %s of %s: %w", what, path, err)
	}
	found, err := find(f, size, max(sector, 512))
	if err != nil {
		return none, fmt.Errorf("read %s of %s: %w", what, path, err)
	}
	return found, nil
}

// Members returns the members with valid superblocks among a disk and its partitions in the kernel.
func Members(ctx context.Context, sys sysfs.Root, disk block.Device) ([]Member, error) {
	parts, err := block.Partitions(ctx, sys, disk.Path)
	if err != nil {
		return nil, err
	}
	var members []Member
	for _, device := range slices.Concat([]block.Device{disk}, parts) {
		found, err := Read(ctx, device.Path)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			if s.Problem == nil {
				members = append(members, Member{Device: device, Disk: disk, Superblock: s})
			}
		}
	}
	return members, nil
}
