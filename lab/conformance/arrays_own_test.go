//go:build linux

package conformance

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	fields := func(key, value string) map[string]string {
		found := parseExamine(examined)
		if key != "" {
			found[key] = value
		}
		arrayFields(found)
		return found
	}
	first := fields("", "")
	for key, value := range map[string]string{
		"Array UUID": "16aeaaf8:4b4d4a3b:8b4c9f2c:3a1d0e01", "Creation Time": "Mon", "Events": "7",
		"Feature Map": "0x2",
		"Array State": "A.",
	} {
		if diff := cmp.Diff(first, fields(key, value)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
	for key, value := range map[string]string{
		"Array UUID": "", "Name": "md1", "Host": "other", "Raid Level": "raid0", "Raid Devices": "3", "Version": "1.0",
		"Internal Bitmap": "8 sectors from superblock", "Avail Dev Size": "1 sectors",
	} {
		if maps.Equal(first, fields(key, value)) {
			t.Errorf("%s: no difference", key)
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
