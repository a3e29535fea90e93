package raid

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ironroot/internal/sysfs"
	"ironroot/storage/block"
	"ironroot/storage/md"
)

// errBadBlocks is returned if the kernel has recorded parts of a member that could not be written.
var errBadBlocks = errors.New("member has bad blocks, which were not written")

// readMembers reads the superblocks of devices. Each must have a single superblock, valid and of the array with the
// UUID, and together they must be complete, see [md.CheckComplete]. The result is in the order of the roles.
func readMembers(ctx context.Context, sys sysfs.Root, uuid string, paths []string) ([]md.Member, error) {
	var members []md.Member
	for _, path := range paths {
		d, err := block.Find(sys, path)
		if err != nil {
			return nil, err
		}
		found, err := md.Read(ctx, path)
		if err != nil {
			return nil, err
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("%w: %s has %d superblocks, want 1", md.ErrIncomplete, path, len(found))
		}
		if found[0].Problem == nil && found[0].UUID != uuid {
			return nil, fmt.Errorf("%w: %s: got UUID %s, want %s", md.ErrIncomplete, path, found[0].UUID, uuid)
		}
		members = append(members, md.Member{Device: d, Superblock: found[0]})
	}
	if err := md.CheckComplete(members); err != nil {
		return nil, err
	}
	slices.SortFunc(members, func(a, b md.Member) int { return a.Role - b.Role })
	return members, nil
}

// CheckComplete returns an error unless the devices have the superblocks of all members of the array with the UUID,
// see [md.CheckComplete], and no others.
func CheckComplete(ctx context.Context, sys sysfs.Root, uuid string, members []string) error {
	_, err := readMembers(ctx, sys, uuid, members)
	return err
}

// CheckWritten returns an error unless everything that was written to a running array is on all of its members: the
// array must be as [Check] requires, and no member may have bad blocks. The kernel keeps a member whose bad blocks it
// could record.
func CheckWritten(sys sysfs.Root, path, level string, members []string) error {
	if err := Check(sys, path, level, members); err != nil {
		return err
	}
	for _, member := range members {
		dir := sys.Sys("class/block", filepath.Base(path), "md",
			"dev-"+strings.ReplaceAll(strings.TrimPrefix(member, "/dev/"), "/", "!"))
		for _, file := range []string{"bad_blocks", "unacknowledged_bad_blocks"} {
			text, err := sys.Files.Read(filepath.Join(dir, file))
			if err != nil {
				return fmt.Errorf("array %s: %s: %w", path, member, err)
			}
			if list := strings.Fields(string(text)); len(list) > 0 {
				return fmt.Errorf("array %s: %s: %w: sectors %s and length %s",
					path, member, errBadBlocks, list[0], list[len(list)-1])
			}
		}
	}
	return nil
}

// Beside returns the ranges of a member, by their start and end in bytes, that its array does not consist of: what is
// not superblock, bitmap, or one of the covered bytes of the data, see [md.UsedSizes]. sector is the size of a sector:
// the rest of the superblock's last one is kept. The errors are those of [CheckWipe].
func Beside(member md.Member, covered, sector int64) ([][2]int64, error) {
	if err := CheckWipe(member); err != nil {
		return nil, err
	}
	f, err := os.Open(member.Device.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	bitmapEnd, err := kept(member, f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", member.Device.Path, err)
	}
	superblock := member.Offset + (member.Length+sector-1)/sector*sector
	var ranges [][2]int64
	for _, r := range [][2]int64{
		{0, member.Offset},
		{superblock, superblockEnd},
		{bitmapEnd, member.DataOffset},
		{member.DataOffset + covered, member.Device.Size},
	} {
		if r[0] < r[1] {
			ranges = append(ranges, r)
		}
	}
	return ranges, nil
}
