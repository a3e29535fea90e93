package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ironroot/storage/md"
	"ironroot/storage/raid"
)

// compare compares the superblocks of mdadm with those of package md.
func compare(ctx context.Context) error {
	for _, n := range []md.New{
		{Version: "1.2", Level: "raid1", Sizes: []int64{24 * mib, 24 * mib}},
		{Version: "1.2", Level: "raid1", Sizes: []int64{5*gib + 7*512, 5 * gib}},
		{Version: "1.2", Level: "raid1", Sizes: []int64{20 * gib, 30 * gib, 19 * gib}},
		{Version: "1.2", Level: "raid1", Sizes: []int64{240 * gib, 240 * gib}},
		{Version: "1.2", Level: "raid1", Sizes: []int64{3<<40 + 512, 3 << 40}},
		{Version: "1.2", Level: "raid0", Sizes: []int64{24 * mib, 24 * mib}},
		{Version: "1.2", Level: "raid0", Sizes: []int64{24 * mib, 30 * mib}},
		{Version: "1.2", Level: "raid5", Sizes: []int64{24 * mib, 25 * mib, 26 * mib}},
		{Version: "1.2", Level: "raid5", Sizes: []int64{101 * gib, 101 * gib, 102 * gib}},
		{Version: "1.2", Level: "raid6", Sizes: []int64{30 * mib, 30 * mib, 30 * mib, 30*mib + 512}},
		{Version: "1.2", Level: "raid10", Sizes: []int64{150 * gib, 150 * gib, 150 * gib, 150 * gib}},
		{Version: "1.2", Level: "raid10", Sizes: []int64{24 * mib, 24 * mib, 24 * mib}},
		{Version: "1.2", Level: "raid10", Sizes: []int64{40 << 40, 40 << 40, 40 << 40, 40 << 40}},
		{Version: "1.0", Level: "raid1", Sizes: []int64{24 * mib, 24 * mib}},
		{Version: "1.0", Level: "raid1", Sizes: []int64{550 * mib, 550*mib + 3*512}},
		{Version: "1.0", Level: "raid1", Sizes: []int64{240 * gib, 240 * gib}},
	} {
		if err := compareOne(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func compareOne(ctx context.Context, n md.New) error {
	n.Name = "any:data"
	name := fmt.Sprintf("%s %s %d", n.Version, n.Level, n.Sizes)
	devices, release, err := members(n.Sizes)
	defer release()
	if err != nil {
		return err
	}
	args := createArgs("/dev/md7", n.Version, n.Level, len(devices))
	if _, err := mdadm(append(args, devices...)...); err != nil {
		return err
	}
	if err := raid.Stop(ctx, "/dev/md7"); err != nil {
		return err
	}
	ours, err := n.Encode(time.Now())
	if err != nil {
		return err
	}
	same := true
	for i, blocks := range ours {
		file, err := os.Open(filepath.Join("/work", fmt.Sprint(i)))
		if err != nil {
			return err
		}
		for j, block := range blocks {
			theirs := make([]byte, len(block.Data))
			if _, err := file.ReadAt(theirs, block.Offset); err != nil {
				return err
			}
			mask(theirs, j == 0)
			mask(block.Data, j == 0)
			if at := difference(theirs, block.Data); at >= 0 {
				same = false
				fmt.Printf("\nDIFFERS %s: member %d, block %d at byte %d: got %x, want %x\n", name, i, j, at,
					block.Data[at&^7:at&^7+16], theirs[at&^7:at&^7+16])
			}
		}
		_ = file.Close()
	}
	if same {
		fmt.Printf("\nSAME %s\n", name)
	}
	return nil
}

// mask clears what is random, time, or depends on them, and what the kernel has changed: the counts of events, and what
// is in sync.
func mask(b []byte, superblock bool) {
	if !superblock {
		clear(b[8:40])
		clear(b[256:])
		return
	}
	for _, r := range [][2]int{{16, 32}, {64, 72}, {168, 184}, {192, 220}} {
		clear(b[r[0]:r[1]])
	}
}

func difference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
