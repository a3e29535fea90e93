package hardware

import (
	"errors"
	"strings"
	"testing"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// A disk whose identity could not be read may be the one that an entry names. A disk without the attribute is not.
func TestSkipListCheckRead(t *testing.T) {
	unread := block.Device{Path: "/dev/sda", Unread: sysfs.ErrHangs}
	for entry, want := range map[string]bool{
		`{"serial": "S1"}`: true, `{"wwn": "0x5"}`: true, `{"wwn_with_extension": "0x5"}`: true,
		`{"wwn_vendor_extension": "0x5"}`: true, `{"model": "M"}`: true, `{"vendor": "V"}`: true,
		`{"size": 5, "serial": "S1"}`: true, `{"name": "/dev/sdb"}`: false, `{"hctl": "0:0:0:0"}`: false,
		`{"size": 5}`: false, `{"rotational": true}`: false, `{"by_path": "x"}`: false,
		`{"volume_name": "root"}`: false,
	} {
		n := nodeFrom(t, `{"uuid": "u", "properties": {"skip_block_devices": [{"volume_name": "data"}, `+entry+`]}}`)
		list, err := NewSkipList(n)
		if err != nil {
			t.Fatal(err)
		}
		err = list.CheckRead(unread)
		got := errors.Is(err, block.ErrUnreadable) && errors.Is(err, sysfs.ErrHangs)
		if got != want || !want && err != nil {
			t.Errorf("%s: got %v, want an error: %v", entry, err, want)
		}
		if want && !strings.Contains(err.Error(), "entry 2 of skip_block_devices") {
			t.Errorf("%s: got %v, want the entry", entry, err)
		}
		if err := list.CheckRead(block.Device{Path: "/dev/sdb"}); err != nil {
			t.Errorf("%s: disk without such attributes: got %v, want no error", entry, err)
		}
	}
}

// An entry that matches a path of a multipath map matches the map.
func TestSkipListMultipath(t *testing.T) {
	devices := []block.Device{
		{
			Name: "dm-0", Path: "/dev/dm-0", Type: "mpath", Serial: "S1", Serials: []string{"S1"},
			Components: []block.Device{
				{Name: "sda", Path: "/dev/sda", HCTL: "0:0:0:0", Vendor: "acme"},
				{Name: "sdb", Path: "/dev/sdb", HCTL: "1:0:0:0", ByPath: "/dev/disk/by-path/b", Vendor: "acme"},
			},
		},
		{Name: "sdc", Path: "/dev/sdc", HCTL: "2:0:0:0"},
	}
	for entry, want := range map[string]string{
		`{"name": "/dev/sda"}`: "/dev/sdc", `{"name": "/dev/sdb"}`: "/dev/sdc", `{"name": "/dev/dm-0"}`: "/dev/sdc",
		`{"hctl": "1:0:0:0"}`: "/dev/sdc", `{"by_path": "/dev/disk/by-path/b"}`: "/dev/sdc",
		`{"serial": "S1"}`:                       "/dev/sdc",
		`{"name": "/dev/sda", "vendor": "acme"}`: "/dev/sdc", `{"hctl": "2:0:0:0"}`: "/dev/dm-0",
		`{"name": "/dev/sda", "hctl": "1:0:0:0"}`: "/dev/dm-0 /dev/sdc", // no path has both
		`{"name": "/dev/sdd"}`:                    "/dev/dm-0 /dev/sdc",
	} {
		list, err := NewSkipList(nodeFrom(t, `{"uuid": "u", "properties": {"skip_block_devices": [`+entry+`]}}`))
		if err != nil {
			t.Fatal(err)
		}
		kept, err := list.Without(devices)
		if got := strings.Join(paths(kept), " "); err != nil || got != want {
			t.Errorf("%s: got %q and %v, want %q", entry, got, err, want)
		}
		if matched := len(list.Unmatched()) == 0; matched != (len(kept) == 1) {
			t.Errorf("%s: got a matched entry: %v, want %v", entry, matched, len(kept) == 1)
		}
	}
}
