package generic

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/hardware"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// The partitions are where ironic-python-agent creates them, an array of size MAX is the last, and the result is the
// configuration.
//
// Parity: N6 (result)
func TestCreateConfiguration(t *testing.T) {
	const size = 5*gib + 512*100
	root := `{"controller": "software", "raid_level": "1", "size_gb": 2, "volume_name": "root"}`
	for name, tt := range map[string]struct {
		disks, fields string
		want          []string // layouts of three disks
		arrays        []string
		order         []int // disks of the members of all arrays; nil means all disks
	}{
		"one, BIOS": {
			`{"controller": "software", "raid_level": "1", "size_gb": "MAX"}`, "",
			[]string{"mbr 1-5119", "mbr 1-5119", "mbr 1-5119"},
			[]string{"md0 raid1 any:md0 1.2"},
			nil,
		},
		"two, UEFI": {
			root + `, {"controller": "software", "raid_level": "5", "size_gb": "MAX"}`,
			`, "properties": {"capabilities": "boot_mode:uefi"}`,
			[]string{"gpt 551-2048 2048-5119", "gpt 551-2048 2048-5119", "gpt 551-2048 2048-5119"},
			[]string{"md0 raid1 any:root 1.2", "md1 raid5 any:md1 1.2"},
			nil,
		},
		"MAX first, GPT": {
			`{"controller": "software", "raid_level": "1", "size_gb": "MAX"}, ` +
				`{"controller": "software", "raid_level": "1+0", "size_gb": 1, "volume_name": "fast"}`,
			`, "properties": {"capabilities": "boot_mode:bios,disk_label:gpt"}`,
			[]string{"gpt 8-1024 1024-5119", "gpt 8-1024 1024-5119", "gpt 8-1024 1024-5119"},
			[]string{"md0 raid10 any:fast 1.2", "md1 raid1 any:md1 1.2"},
			nil,
		},
		"two sizes": {
			root + `, {"controller": "software", "raid_level": "0", "size_gb": 2}`, "",
			[]string{"mbr 1-2048 2048-4096", "mbr 1-2048 2048-4096", "mbr 1-2048 2048-4096"},
			[]string{"md0 raid1 any:root 1.2", "md1 raid0 any:md1 1.2"},
			nil,
		},
		"hints": {
			`{"controller": "software", "raid_level": "1", "size_gb": "MAX", "physical_disks": [{"serial": "C"}, ` +
				`{"size": ">= 1"}]}`, "",
			[]string{"mbr 1-5119", "no partition table", "mbr 1-5119"},
			[]string{"md0 raid1 any:md0 1.2"},
			[]int{2, 0},
		},
	} {
		disks := []block.Device{raidtest.BlankDisk(t, size), raidtest.BlankDisk(t, size), raidtest.BlankDisk(t, size)}
		fields := raidtest.Target(tt.disks, tt.fields)
		fields = strings.ReplaceAll(fields, `"C"`, `"`+disks[2].Serial+`"`)
		m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
		m.kernel = kernel
		n := nodeWith(t, fields)
		result, err := m.createConfiguration(t.Context(), hardware.Call{Node: n})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(n.Raw()["target_raid_config"], result); diff != "" {
			t.Errorf("%s: result differs (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(tt.arrays, kernel.Created); diff != "" {
			t.Errorf("%s: arrays differ (-want +got):\n%s", name, diff)
		}
		order := tt.order
		if order == nil {
			order = []int{0, 1, 2}
		}
		var wiped, checked []string
		for i, array := range tt.arrays {
			number, level, _ := strings.Cut(array, " ")
			level, _, _ = strings.Cut(level, " ")
			var members []string
			for _, disk := range order {
				members = append(members, block.PartitionPath(sysfs.Root{}, disks[disk].Path, i+1))
			}
			wiped = append(wiped, "/dev/"+number)
			checked = append(checked, fmt.Sprint("/dev/", number, " ", level, " ", members))
		}
		if diff := cmp.Diff(wiped, kernel.Wiped); diff != "" {
			t.Errorf("%s: wiped arrays differ (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(checked, kernel.Checked); diff != "" {
			t.Errorf("%s: checked arrays differ (-want +got):\n%s", name, diff)
		}
		for i, d := range disks {
			if got := raidtest.Layout(t, d); !strings.Contains(got, tt.want[i]) {
				t.Errorf("%s: disk %d: got %s, want %s", name, i+1, got, tt.want[i])
			}
		}
	}
}

// apply_configuration deletes the existing arrays unless it must not, and returns its argument. If the new
// configuration does not fit, the existing arrays remain.
//
// Parity: N6 (result)
func TestApplyConfiguration(t *testing.T) {
	config := func(size string) json.RawMessage {
		return json.RawMessage(`{"logical_disks": [` + raidtest.LogicalDisk("1", size, "") + `]}`)
	}
	disks := []block.Device{raidtest.BlankDisk(t, 3*gib), raidtest.BlankDisk(t, 3*gib)}
	for i, d := range disks {
		old := testenv.RAID{Name: "old", Level: 1, Member: uint32(i), Size: d.Size}
		raidtest.Write(t, d.Path, 4096, old.Superblock(4096))
	}
	m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
	m.kernel = kernel
	apply := func(args map[string]json.RawMessage) (any, error) {
		run := stepOf(t, m, hardware.Deploy, "apply_configuration")
		return run(t.Context(), hardware.Call{Node: nodeWith(t, `"properties": {}`), Args: args})
	}
	for want, args := range map[string]map[string]json.RawMessage{
		"is a member of":                   {"raid_config": config("1"), "delete_existing": json.RawMessage("false")},
		`is a member of raid1 array "old"`: {"raid_config": config("1"), "delete_existing": json.RawMessage("null")},
		"has space up to":                  {"raid_config": config("5")},
		"'raid_config' must be an":         {"raid_config": json.RawMessage(`[]`)},
		"'delete_existing' must be true":   {"raid_config": config("1"), "delete_existing": json.RawMessage(`"no"`)},
		"the step has no argument 'size'":  {"raid_config": config("1"), "size": json.RawMessage("1")},
	} {
		if _, err := apply(args); !strings.Contains(errorText(err), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
		for _, d := range disks {
			if got := raidtest.Names(t, d); !slices.Equal(got, []string{"old"}) {
				t.Fatalf("%s: got arrays %q on %s, want the old one", want, got, d.Path)
			}
		}
	}
	result, err := apply(map[string]json.RawMessage{"raid_config": config("1")})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(string(config("1")), " ", "")
	if text, err := json.Marshal(result); err != nil || string(text) != want {
		t.Errorf("got %s and %v, want %s", text, err, want)
	}
	for _, d := range disks {
		if got := raidtest.Names(t, d); !slices.Equal(got, []string{"md0"}) ||
			!strings.Contains(raidtest.Layout(t, d), "mbr 1-1024") {
			t.Errorf("%s: got arrays %q and %s, want the new partition and array alone", d.Path, got,
				raidtest.Layout(t, d))
		}
	}
}
