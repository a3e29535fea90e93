package hardware

import (
	"fmt"
	"strings"
	"testing"

	"ironroot/agent/node"
	"ironroot/storage/md"
)

func TestArrays(t *testing.T) {
	named := md.Superblock{Name: "host:data", Level: "raid1", Devices: 2, ArraySize: 10 << 30}
	nameless := md.Superblock{Level: "raid1", Devices: 2, ArraySize: 10 << 30}
	other := md.Superblock{Name: "data:root", Level: "raid5", Devices: 3, ArraySize: 20 << 30}
	invalid := named
	invalid.Problem = md.ErrInvalid
	long := md.Superblock{Name: "a-volume-name-of-31-characters-", Level: "raid1"}
	const skip = `"properties": {"skip_block_devices": [{"volume_name": "data"}, {"name": "/dev/sda"}]}`
	software := func(fields string) string {
		return `"raid_config": {"logical_disks": [{"controller": "software", ` + fields + `}]}`
	}
	const data = `"volume_name": "data", `
	for _, tt := range []struct {
		name, node         string
		array              md.Superblock
		protected, created bool
	}{
		{"nothing said", `"name": "n"`, named, false, false},
		{"no arrays", `"raid_config": {}, "properties": {}`, named, false, false},
		{"null", `"raid_config": null, "properties": {"skip_block_devices": null}`, named, false, false},
		{"protected", skip, named, true, false},
		{"host of that name", skip, other, false, false},
		{"nameless array", skip, nameless, false, false},
		{"invalid superblock", skip + ", " + software(data+`"raid_level": "1"`), invalid, false, false},
		{"protected and created", skip + ", " + software(data+`"raid_level": "1", "size_gb": 10`), named, true, true},
		{"as large as possible", skip + ", " + software(data+`"raid_level": "1", "size_gb": "MAX"`), named, true, true},
		{"other level", skip + ", " + software(data+`"raid_level": "0", "size_gb": 10`), named, false, true},
		{"other size", skip + ", " + software(data+`"raid_level": "1", "size_gb": 13`), named, false, true},
		{"size rounded", skip + ", " + software(data+`"raid_level": "1", "size_gb": 12`), named, true, true},
		{"created, nothing else known", software(data + `"raid_level": 1`), named, false, true},
		{"created, name cut off", software(`"volume_name": "a-volume-name-of-31-characters-and-more"`), long, false, true},
		{"created, other long name", software(`"volume_name": "a-volume-name-of-30-characters", "raid_level": "1"`), long, false, false},
		{"created, begins alike", software(`"volume_name": "host:database"`), named, false, false},
		{"created, other name", software(`"volume_name": "root", "raid_level": "1"`), named, false, false},
		{"created, host of that name", software(data + `"raid_level": "5"`), other, false, false},
		{"entry without name, level", software(`"raid_level": "1"`), named, false, true},
		{"entry without name, other level", software(`"raid_level": "5"`), named, false, false},
		{"entry without name, RAID 10", software(`"raid_level": "1+0"`), md.Superblock{Name: "x", Level: "raid10"}, false, true},
		{"entry without name and level", software(`"size_gb": 5`), named, false, true},
		{"nameless array, level", software(data + `"raid_level": "1"`), nameless, false, true},
		{"nameless array, other level", software(data + `"raid_level": "0"`), nameless, false, false},
		{"controller in hardware", `"raid_config": {"logical_disks": [{"controller": "PERC", "volume_name": "data"}, {"volume_name": "data"}]}`, named, false, false},
	} {
		n, err := node.FromJSON([]byte(fmt.Sprintf(`{"uuid": "u", %s}`, tt.node)))
		if err != nil {
			t.Fatal(err)
		}
		arrays, err := ArraysOf(n)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := arrays.Protected(tt.array); got != tt.protected {
			t.Errorf("%s: got protected %v, want %v", tt.name, got, tt.protected)
		}
		if got := arrays.Created(tt.array); (got != "") != tt.created {
			t.Errorf("%s: got created %q, want %v", tt.name, got, tt.created)
		} else if named := strings.Contains(tt.node, `"software", "volume_name"`); got != "" && strings.Contains(got, "volume_name") != named {
			t.Errorf("%s: got %q, want the volume_name in it: %v", tt.name, got, named)
		}
	}
	if _, err := ArraysOf(nil); err != nil {
		t.Errorf("no node: %v", err)
	}
	for _, fields := range []string{`"raid_config": 5`, `"raid_config": {"logical_disks": 5}`, `"raid_config": {"logical_disks": [5]}`} {
		n, err := node.FromJSON([]byte(`{"uuid": "u", ` + fields + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ArraysOf(n); err == nil {
			t.Errorf("%s: got no error", fields)
		}
	}
}
