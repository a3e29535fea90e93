package raid_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/sysfs"
	"ironroot/storage/raid"
)

// An array counts as created only if it runs, is writable, and has all members in the order of their roles.
func TestCheck(t *testing.T) {
	complete := map[string]string{
		"level": "raid1", "metadata_version": "1.2", "array_state": "clean", "raid_disks": "2", "degraded": "0",
		"dev-sda1/slot": "0", "dev-sda1/state": "in_sync",
		"dev-sdb1/slot": "1", "dev-sdb1/state": "in_sync,write_mostly",
	}
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
		files := maps.Clone(complete)
		maps.Copy(files, tt.changes)
		sys := sysfs.Root{Path: t.TempDir()}
		for file, text := range files {
			path := sys.Sys("class/block/md0/md", file)
			err := os.MkdirAll(filepath.Dir(path), 0o755)
			if err = errors.Join(err, os.WriteFile(path, []byte(text+"\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		err := raid.Check(sys, "/dev/md0", "raid1", []string{"/dev/sda1", "/dev/sdb1"})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}
