package node

import (
	"encoding/json"
	"errors"
	"slices"
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
		n := parse(t, `{"uuid": "u", "properties": {"skip_block_devices": [{"volume_name": "data"}, `+entry+`]}}`)
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
		list, err := NewSkipList(parse(t, `{"uuid": "u", "properties": {"skip_block_devices": [`+entry+`]}}`))
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

// withoutSkipped returns the disks that the skip list of a node does not protect.
func withoutSkipped(n *Node, disks []block.Device) ([]block.Device, error) {
	list, err := NewSkipList(n)
	if err != nil {
		return nil, err
	}
	return list.Without(disks)
}

// A skip list that cannot be parsed is an error, because it could protect any disk.
func TestInvalidSkipList(t *testing.T) {
	disks := []block.Device{{Name: "sda", Path: "/dev/sda"}}
	for _, list := range []string{`5`, `[5]`, `"sda"`} {
		n := parse(t, `{"uuid": "u", "properties": {"skip_block_devices": `+list+`}}`)
		if kept, err := withoutSkipped(n, disks); err == nil {
			t.Errorf("%s: got %v and no error", list, kept)
		}
	}
}

// An entry of the skip list is unmatched until one of several lists of disks has a disk that it matches.
func TestSkipListUnmatched(t *testing.T) {
	n := parse(t, `{"uuid": "u", "properties": {"skip_block_devices": [
		{"volume_name": "root"}, {"name": "/dev/sda"}, {"name": "/dev/nvme0n1"},
		{"name": "/dev/sdx", "vendor": "acme"}]}}`)
	list, err := NewSkipList(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sda", "nvme0n1", "sdb"} {
		kept, err := list.Without([]block.Device{{Name: name, Path: "/dev/" + name}})
		if err != nil || (len(kept) == 1) != (name == "sdb") {
			t.Errorf("%s: got %v and %v, want sdb alone to be kept", name, kept, err)
		}
	}
	got := list.Unmatched()
	if len(got) != 1 || !strings.Contains(got[0], "/dev/sdx") || !strings.Contains(got[0], "acme") {
		t.Errorf("got unmatched entries %q, want that of /dev/sdx", got)
	}
	if list, err = NewSkipList(nil); err != nil || len(list.Unmatched()) > 0 {
		t.Errorf("without a node: got %v and %v, want an empty list", list, err)
	}
}

// Errors of the skip list contain the position of the entry.
func TestSkipListErrors(t *testing.T) {
	for _, entry := range []string{`{"colour": "blue"}`, `{"serial": ">= 100"}`} {
		n := parse(t, `{"uuid": "u", "properties": {"skip_block_devices": [{"volume_name": "root"}, `+entry+`]}}`)
		kept, err := withoutSkipped(n, []block.Device{{Path: "/dev/sda", Serial: "S1", Serials: []string{"S1"}}})
		if err == nil || !strings.HasPrefix(err.Error(), "entry 2 of skip_block_devices: ") {
			t.Errorf("%s: got %v and %v, want an error of entry 2", entry, kept, err)
		}
	}
}

func TestWithoutSkipped(t *testing.T) {
	disks := []block.Device{
		{Name: "sda", Path: "/dev/sda", Serial: "S1", Serials: []string{"S1"}},
		{Name: "sdb", Path: "/dev/sdb", Serial: "S2", Serials: []string{"S2"}},
	}
	for _, tt := range []struct {
		name, skip string
		want       []string
		fails      bool
	}{
		{"empty list", `[]`, []string{"sda", "sdb"}, false},
		{"one by serial", `[{"serial": "s2"}]`, []string{"sda"}, false},
		{"all", `[{"serial": "s2"}, {"name": "/dev/sda"}]`, nil, false},
		{"a RAID volume is no disk", `[{"volume_name": "sda"}]`, []string{"sda", "sdb"}, false},
		{"unknown hint", `[{"colour": "blue"}]`, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, err := FromJSON(json.RawMessage(`{"uuid": "u", "properties": {"skip_block_devices": ` +
				tt.skip + `}}`))
			if err != nil {
				t.Fatal(err)
			}
			kept, err := withoutSkipped(n, disks)
			if (err != nil) != tt.fails {
				t.Fatalf("got error %v, want one: %v", err, tt.fails)
			}
			var names []string
			for _, d := range kept {
				names = append(names, d.Name)
			}
			if !slices.Equal(names, tt.want) {
				t.Errorf("got %v, want %v", names, tt.want)
			}
		})
	}
	if kept, err := withoutSkipped(nil, disks); err != nil || len(kept) != 2 {
		t.Errorf("without a node: got %d disks and %v, want 2", len(kept), err)
	}
}

func paths(devices []block.Device) []string {
	var list []string
	for _, d := range devices {
		list = append(list, d.Path)
	}
	return list
}
