package block

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/storage/sysfs"
)

func TestDisksWithoutCapacity(t *testing.T) {
	s := sysfs.Root{Path: t.TempDir()}
	const first, second = "naa.5000c500a1b2c3d4", "naa.5000c500a1b2c3d5"
	unit := func(size, wwid string) map[string]string {
		return map[string]string{"size": size, "device/wwid": wwid, "device/scsi_device/0:0:0:0/model": "X"}
	}
	putFiles(t, s, map[string]map[string]string{
		"sda":     {"size": "0\n", "removable": "0\n"},
		"sdab":    {"size": "0\n"},
		"sdb":     {"size": "2048\n"},
		"sdc":     {"size": "0\n", "removable": "1\n"},   // a card reader without a medium
		"sdd":     {"size": "0\n", "device/type": "7\n"}, // an optical memory device
		"sde":     unit("2048\n", first),                 // a path to a disk of an array
		"sdf":     unit("0\n", first),                    // a passive path to the same
		"sdg":     unit("0\n", second),
		"vda":     {"size": "0\n"},
		"vdb":     {"size": "2048\n"},
		"sr0":     {"size": "0\n"},
		"loop0":   {"size": "0\n"},
		"ram0":    {"size": "0\n"},
		"zram0":   {"size": "0\n"},
		"nbd0":    {"size": "0\n"},
		"md0":     {"size": "0\n"},
		"dm-0":    {"size": "0\n"},
		"mmcblk0": {"size": "0\n"},
		"nvme0n1": {"size": "0\n"},
	})
	found, err := UnusableDisks(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	got := unusable(found, ErrNoCapacity)
	if diff := cmp.Diff([]string{"/dev/sda", "/dev/sdab", "/dev/sdg", "/dev/vda"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A disk that cannot be described is an error; the others are listed. Paths below a map are not listed.
func TestDisksWithoutCapacityUnreadable(t *testing.T) {
	s := sysfs.Root{Path: t.TempDir()}
	putFiles(t, s, map[string]map[string]string{
		"sda": {"size": "0\n"}, "sdb": {"size": "many\n"}, "sdc": {"size": "0\n"}, "sdd": {"size": "0\n"},
		"dm-0": {"size": "2048\n", "dm/uuid": "mpath-3600\n", "slaves/sdc": ""},
		"dm-1": {"size": "0\n", "dm/uuid": "mpath-3601\n", "slaves/sdd": ""},
	})
	if err := os.MkdirAll(s.Sys("block/sde"), 0o755); err != nil { // it was unplugged after the directory was listed
		t.Fatal(err)
	}
	found, err := UnusableDisks(t.Context(), s)
	if len(found) != 2 || found[0].Path != "/dev/sda" || found[1].Path != "/dev/sdd" {
		t.Errorf("got %+v, want /dev/sda and /dev/sdd", found)
	}
	if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "sdb") || strings.Contains(err.Error(), "sde") {
		t.Errorf("got %v, want %v of sdb alone", err, ErrUnreadable)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// A read of this link to itself would be logged.
	if err := os.Symlink("ro", s.Sys("class/block/sda/ro")); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	s.Files = &sysfs.Reader{Log: slog.New(slog.NewTextHandler(&log, nil))}
	if found, err := UnusableDisks(ctx, s); len(found) > 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %+v and %v, want %v", found, err, context.Canceled)
	}
	if log.Len() > 0 {
		t.Errorf("cancelled: got log %s, want that no disk was read", &log)
	}
}
