package raid

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/storage/sysfs"
)

// runningArray describes in sysfs that /dev/md0 is a complete mirror of /dev/sda1 and /dev/sdb1. The changes are files
// with other content, or without text those that are missing.
func runningArray(t *testing.T, changes map[string]string) sysfs.Root {
	t.Helper()
	files := map[string]string{
		"level": "raid1", "metadata_version": "1.2", "array_state": "clean", "raid_disks": "2", "degraded": "0",
		"dev-sda1/slot": "0", "dev-sda1/state": "in_sync",
		"dev-sdb1/slot": "1", "dev-sdb1/state": "in_sync,write_mostly",
	}
	for _, member := range []string{"dev-sda1/", "dev-sdb1/"} {
		files[member+"bad_blocks"], files[member+"unacknowledged_bad_blocks"] = "\n", "\n"
	}
	maps.Copy(files, changes)
	sys := sysfs.Root{Path: t.TempDir()}
	for file, text := range files {
		if text == "" {
			continue
		}
		path := sys.Sys("class/block/md0/md", file)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err = errors.Join(err, os.WriteFile(path, []byte(text+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return sys
}

// An array counts as created only if it runs, is writable, and has all members in the order of their roles.
func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		changes map[string]string
		want    string // "" means no error
	}{
		"clean":         {nil, ""},
		"active":        {map[string]string{"array_state": "active"}, ""},
		"idle":          {map[string]string{"array_state": "active-idle"}, ""},
		"pending":       {map[string]string{"array_state": "write-pending"}, ""},
		"stopped":       {map[string]string{"array_state": "inactive"}, "inactive"},
		"read-only":     {map[string]string{"array_state": "readonly"}, "readonly"},
		"never resyncs": {map[string]string{"array_state": "read-auto"}, "read-auto"},
		"broken":        {map[string]string{"array_state": "broken"}, "broken"},
		"other level":   {map[string]string{"level": "raid5"}, "got raid5 of 2 members"},
		"more members":  {map[string]string{"raid_disks": "3"}, "got raid1 of 3 members"},
		"degraded":      {map[string]string{"degraded": "1"}, "array is not complete"},
		"spare": {
			map[string]string{"dev-sdb1/slot": "none", "dev-sdb1/state": "spare"}, "/dev/sdb1 is not member 1",
		},
		"faulty":       {map[string]string{"dev-sdb1/state": "faulty,in_sync"}, "/dev/sdb1 is not member 1"},
		"wrong order":  {map[string]string{"dev-sda1/slot": "1", "dev-sdb1/slot": "0"}, "/dev/sda1 is not member 0"},
		"spare member": {map[string]string{"dev-sdc1/slot": "none", "dev-sdc1/state": "spare"}, "not complete"},
	} {
		sys := runningArray(t, tt.changes)
		err := Check(sys, "/dev/md0", "raid1", []string{"/dev/sda1", "/dev/sdb1"})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

// Everything that was written is on all members only if none of them is missing or has bad blocks.
func TestCheckWritten(t *testing.T) {
	for name, tt := range map[string]struct {
		file, text string // changed; no text means that the file is missing
		want       string
	}{
		"complete":  {"level", "raid1", ""},
		"degraded":  {"degraded", "1", "array is not complete"},
		"read-only": {"array_state", "read-auto", "read-auto"},
		"bad blocks": {
			"dev-sdb1/bad_blocks", "4096 8\n5000 1\n", "/dev/sdb1: member has bad blocks, which were not written: " +
				"got 2 ranges, the first of sector and length 4096 8",
		},
		"not recorded": {"dev-sda1/unacknowledged_bad_blocks", "4096 8", "/dev/sda1: member has bad blocks"},
		"unknown":      {"dev-sda1/bad_blocks", "", "/dev/sda1"},
	} {
		sys := runningArray(t, map[string]string{tt.file: tt.text})
		err := CheckWritten(sys, "/dev/md0", "raid1", []string{"/dev/sda1", "/dev/sdb1"})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		if strings.Contains(tt.want, "bad blocks") && !errors.Is(err, errBadBlocks) {
			t.Errorf("%s: got %v, want %v", name, err, errBadBlocks)
		}
	}
}

func TestFreeNumber(t *testing.T) {
	used := Names([]Status{{Name: "md0"}, {Name: "md1"}, {Name: "md3"}, {Name: "md_d4"}})
	for start, want := range map[int]int{0: 2, 1: 2, 2: 2, 3: 4, 7: 7} {
		if got := FreeNumber(start, used); got != want {
			t.Errorf("from %d: got %d, want %d", start, got, want)
		}
	}
}
