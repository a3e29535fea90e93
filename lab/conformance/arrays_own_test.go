//go:build linux

package conformance

import (
	"maps"
	"strings"
	"testing"
)

const examined = `/tmp/member:
          Magic : a92b4efc
        Version : 1.2
    Feature Map : 0x0
     Array UUID : 06aeaaf8:4b4d4a3b:8b4c9f2c:3a1d0e01
           Name : any:md0
  Creation Time : Sun Nov 29 04:31:08 2026
     Raid Level : raid1
   Raid Devices : 2

 Avail Dev Size : 2095104 sectors (1023.00 MiB 1072.69 MB)
         Events : 1
   Array State : AA ('A' == active, '.' == missing, 'R' == replacing)
`

// arrayFields drops the fields that differ between two arrays of the same configuration, and no others.
func TestArrayFields(t *testing.T) {
	fields := func(level, key, value string) map[string]string {
		found := parseExamine(examined)
		found["Raid Level"] = level
		if key != "" {
			found[key] = value
		}
		arrayFields(found)
		return found
	}
	const active = "Array State"
	for _, tt := range []struct {
		level, key, value string
		kept              bool
	}{
		{"raid1", "Array UUID", "16aeaaf8:4b4d4a3b:8b4c9f2c:3a1d0e01", false},
		{"raid1", "Creation Time", "Mon", false},
		{"raid1", "Events", "7", false},
		{"raid1", "Feature Map", "0x2", false},
		{"raid5", active, "AA.", false},
		{"raid1", active, "A.", true},
		{"raid6", active, "AA.", true},
		{"raid1", "Array UUID", "", true},
		{"raid1", "Name", "md1", true},
		{"raid1", "Host", "other", true},
		{"raid1", "Raid Level", "raid0", true},
		{"raid1", "Raid Devices", "3", true},
		{"raid1", "Version", "1.0", true},
		{"raid1", "Internal Bitmap", "8 sectors from superblock", true},
		{"raid1", "Avail Dev Size", "1 sectors", true},
	} {
		if differs := !maps.Equal(fields(tt.level, "", ""), fields(tt.level, tt.key, tt.value)); differs != tt.kept {
			t.Errorf("%s, %s: got a difference %v, want %v", tt.level, tt.key, differs, tt.kept)
		}
	}
}

func TestParseExamine(t *testing.T) {
	if got := parseExamine(
		"/tmp/x:\n   MBR Magic : aa55\nPartition[0] :   10485759 sectors at  1 (type ee)\n",
	); got != nil {
		t.Errorf("partition table: got %v, want nil", got)
	}
	local := parseExamine(strings.Replace(examined, "any:md0", "vm:md0  (local to host vm)", 1))
	if local["Name"] != "md0" || local["Host"] != "vm" {
		t.Errorf("name: got %q of %q, want md0 of vm", local["Name"], local["Host"])
	}
	if got := parseExamine(examined)["Raid Level"]; got != "raid1" {
		t.Errorf("level: got %q, want raid1", got)
	}
}

func TestWithoutBitmap(t *testing.T) {
	for _, tt := range []struct {
		level, bitmap string
		problems      int
	}{
		{"raid0", "", 0}, {"raid1", "", 1}, {"raid10", "", 1}, {"raid6", "8 sectors from superblock", 0},
	} {
		fields := map[string]string{"Raid Level": tt.level, "Internal Bitmap": tt.bitmap}
		o := observation{Disks: map[string]*diskState{"D1": {Arrays: map[string]map[string]string{"1": fields}}}}
		if got := withoutBitmap(o); len(got) != tt.problems {
			t.Errorf("%s, bitmap %q: got %v, want %d problems", tt.level, tt.bitmap, got, tt.problems)
		}
	}
}
