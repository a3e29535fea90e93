package raid

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/md"
)

// Positions on a member with a superblock of version 1.2.
const (
	superblockEnd = 8 << 10 // a bitmap follows
	// maxBitmap limits the bitmaps of arrays that can be wiped. mdadm reserves no more space for a bitmap.
	maxBitmap = 128 << 10
	// minData is the smallest offset of the data in mdadm. Only superblock, bitmap, and the log of bad blocks precede
	// it.
	minData = 1 << 20
)

// Wipe removes the content of a member of an array that does not run, and keeps the array. It zeroes both ends of the
// data on the member, because the ends of the array's data are there. With a superblock of version 1.2 it also zeroes
// both ends of each range outside of superblock, bitmap and data. Wipe writes the same ranges of each member, so that
// copies and parities are right once all are wiped. It reads again what it has zeroed.
func Wipe(ctx context.Context, member Member) error {
	if err := wipe(ctx, member); err != nil {
		return fmt.Errorf("wipe %s on %s: %w", member.Superblock, member.Device.Path, err)
	}
	return nil
}

// CheckWipe returns an error if a member has a superblock of another version than 1.2, state beside it that Wipe does
// not keep (a log of bad blocks, a change of the array's shape, or a bitmap above 128 KiB), or copies in the middle of
// the data.
func CheckWipe(member Member) error {
	_, err := readBitmapEnd(member)
	return err
}

// UnusedRanges returns the ranges of a member, by their start and end in bytes, that its array does not use. They
// exclude the superblock, the bitmap and the first used bytes of the data, see [Array.UsedSizes]. sectorSize is the
// device's: the rest of the superblock's last sector is not in the ranges. It returns the errors of [CheckWipe].
func UnusedRanges(member Member, used, sectorSize int64) ([][2]int64, error) {
	bitmapEnd, err := readBitmapEnd(member)
	if err != nil {
		return nil, err
	}
	ranges := [][2]int64{
		{0, member.Offset},
		{member.Offset + (member.Length+sectorSize-1)/sectorSize*sectorSize, superblockEnd},
		{bitmapEnd, member.DataOffset},
		{member.DataOffset + used, member.Device.Size},
	}
	return slices.DeleteFunc(ranges, func(r [2]int64) bool { return r[0] >= r[1] }), nil
}

// readBitmapEnd returns the end of superblock and bitmap on a member. It returns the errors of [CheckWipe].
func readBitmapEnd(member Member) (int64, error) {
	f, err := os.Open(member.Device.Path)
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // only read
	if member.Version != "1.2" {
		return 0, fmt.Errorf("%s: got superblock %s, want 1.2", member.Device.Path, member.Version)
	}
	end, err := bitmapEnd(member, f)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", member.Device.Path, err)
	}
	return end, nil
}

// bitmapEnd returns the end of superblock and bitmap on a member with version 1.2.
func bitmapEnd(member Member, f *os.File) (int64, error) {
	if other := member.Features &^ (md.FeatureBitmap | md.FeatureRAID0Layout); other != 0 {
		return 0, fmt.Errorf("features %#x are not supported", other)
	}
	if member.Level == "raid10" && member.Layout != md.NearLayout { // far copies are in the middle of the members too
		return 0, fmt.Errorf("layout %#x is not supported, want %#x", member.Layout, md.NearLayout)
	}
	if member.DataOffset < minData {
		return 0, fmt.Errorf("data at byte %d, want %d or more", member.DataOffset, minData)
	}
	bitmap, err := member.Bitmap(f)
	if err == nil && bitmap > maxBitmap {
		err = fmt.Errorf("got a bitmap of %d bytes, want at most %d", bitmap, maxBitmap)
	}
	if err == nil {
		err = checkNoLUKS(f, superblockEnd+bitmap)
	}
	return superblockEnd + bitmap, err
}

// checkNoLUKS returns an error if the second header of LUKS 2 is where the bitmap is kept, which ends at end. Programs
// would find the former encrypted volume by it. The header is at 16 KiB times a power of two (LUKS2 On-Disk Format
// Specification, "Possible LUKS2 secondary header offsets").
func checkNoLUKS(f *os.File, end int64) error {
	const magic = "SKUL\xba\xbe"
	for at := int64(16 << 10); at < end; at *= 2 {
		found := make([]byte, len(magic))
		if _, err := f.ReadAt(found, at); err != nil {
			return fmt.Errorf("bitmap: %w", err)
		}
		if string(found) == magic {
			return fmt.Errorf("the bitmap contains the second header of LUKS 2 at byte %d", at)
		}
	}
	return nil
}

func wipe(ctx context.Context, member Member) (err error) {
	f, err := os.OpenFile(member.Device.Path, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	start, end := member.DataOffset, member.DataOffset+member.DataSize
	parts := [][2]int64{{start, end}}
	if member.Version == "1.2" {
		first, err := bitmapEnd(member, f)
		if err != nil {
			return err
		}
		parts = append(parts, [2]int64{0, member.Offset}, [2]int64{first, minData}, [2]int64{minData, start},
			[2]int64{end, member.Device.Size})
	}
	return block.WipeEnds(ctx, f, parts...)
}
