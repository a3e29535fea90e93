package raid

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ironroot/storage/md"
)

// margin is the number of bytes that Wipe zeroes at both ends of a member's data. Together they cover the ends of the
// array, which hold its partition tables and the superblocks of file systems.
const margin = 8 << 20

// Wipe removes the content of an array that does not run, and keeps the array: it zeroes both ends of the data on each
// member. The same ranges of all members are written, so that copies and parities remain right.
func Wipe(ctx context.Context, members []md.Member) error {
	for _, member := range members {
		if err := wipe(ctx, member); err != nil {
			return fmt.Errorf("wipe %s on %s: %w", member.Superblock, member.Device.Path, err)
		}
	}
	return nil
}

func wipe(ctx context.Context, member md.Member) (err error) {
	f, err := os.OpenFile(member.Device.Path, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	start, end := member.DataOffset, member.DataOffset+member.DataSize
	zeros := make([]byte, 1<<20)
	for _, r := range [][2]int64{{start, min(start+margin, end)}, {max(start, end-margin), end}} {
		for offset := r[0]; offset < r[1]; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := f.WriteAt(zeros[:min(int64(len(zeros)), r[1]-offset)], offset)
			if err != nil {
				return err
			}
			offset += int64(n)
		}
	}
	return f.Sync()
}
