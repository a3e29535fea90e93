package softraid

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// All problems of a configuration are in one error.
//
// Parity: N1
func TestRAIDValidation(t *testing.T) {
	const first = `{"controller": "software", "raid_level": "1", "size_gb": 10}`
	second := func(fields string) string {
		return first + `, {"controller": "software", "size_gb": "MAX", ` + fields + `}`
	}
	for name, tt := range map[string]struct {
		disks, fields string
		want          []string
	}{
		"no objects": {`"md0"`, "", []string{"logical disk 1: got md0, want an object"}},
		"three": {first + ", " + first + ", " + first, "", []string{
			"requires one or two logical disks",
		}},
		"controllers": {`{"controller": "megaraid", "raid_level": "1", "size_gb": 10}, ` + first, "", []string{
			"requires all logical disks to have 'controller'='software'",
		}},
		"first level": {`{"controller": "software", "raid_level": "0", "size_gb": 10}`, "", []string{
			"requires RAID-1 for the first logical disk",
		}},
		"second level": {second(`"raid_level": "5+0"`), "", []string{"does not support RAID level 5+0"}},
		"level type":   {second(`"raid_level": 5`), "", []string{"does not support RAID level 5"}},
		"all wrong": {
			raidtest.LogicalDisk("5", `"MAX"`,
				`"volume_name": "a", "is_root_volume": true, "physical_disks": [{"size": 5}]`) +
				`, {"raid_level": "7", "size_gb": "MAX", "volume_name": "a",` +
				`"is_root_volume": true, "physical_disks": ["sda", "sdb"]}`, "",
			[]string{
				"requires RAID-1 for the first", "list with at least 2 items", "'controller'='software'",
				"Duplicate software RAID device name a detected", "only one RAID device with size 'MAX'",
				"does not support RAID level 7", "only one logical disk to be marked as is_root_volume",
				"must be a list of device hints (dictionaries)", "Could not validate Software RAID config for u: ",
			},
		},
		"names": {first, `, "properties": {"skip_block_devices": [{"volume_name": "root"}]}`, []string{
			"All logical disks are required to have a volume name",
		}},
		"size":      {raidtest.LogicalDisk("1", `"many"`, ""), "", []string{"size_gb: got many"}},
		"no size":   {`{"controller": "software", "raid_level": "1"}`, "", []string{"size_gb: got <nil>"}},
		"zero size": {raidtest.LogicalDisk("1", "0", ""), "", []string{"size_gb: got 0"}},
		"fraction":  {raidtest.LogicalDisk("1", "1.5", ""), "", []string{"size_gb: got 1.5"}},
		"huge size": {
			raidtest.LogicalDisk("1", "9223372036854775807", ""), "", []string{"size_gb: got 9223372036854776000"},
		},
		"default name": {
			first + `, ` + raidtest.LogicalDisk("1", `"MAX"`, `"volume_name": "md0"`), "",
			[]string{"Duplicate software RAID device name md0 detected"},
		},
		"long name": {
			second(`"raid_level": "0", "volume_name": "` + strings.Repeat("n", 32) + `"`), "",
			[]string{"want 1 to 31 letters"},
		},
		"odd name": {second(`"raid_level": "0", "volume_name": "a/b"`), "", []string{`volume_name: got "a/b"`}},
		"esp": {
			second(`"raid_level": "0", "volume_name": "esp"`), "",
			[]string{`volume_name: got "esp"`, `neither "esp" nor`},
		},
		"dot":  {second(`"raid_level": "0", "volume_name": ".x"`), "", []string{`got ".x"`, "nor a '.' first"}},
		"root": {second(`"raid_level": "0", "is_root_volume": "yes"`), "", []string{"is_root_volume: got yes"}},
		"hints": {
			second(`"raid_level": "0", "physical_disks": [{"size": 5}, {"colour": "blue"}]`), "",
			[]string{"entry 2 of physical_disks", "colour"},
		},
		"missing hints": {second(`"raid_level": "0", "physical_disks": {}`), "", []string{
			"list with at least 2 items",
		}},
	} {
		_, err := onThisMachine(t).createConfiguration(t.Context(),
			call{Node: nodeWith(t, raidtest.Target(tt.disks, tt.fields))})
		for _, want := range tt.want {
			if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), want) {
				t.Errorf("%s: got %v, want a SoftwareRAIDError with %q", name, err, want)
			}
		}
	}
	oneRoot := raidtest.Target(raidtest.LogicalDisk("1", "1", `"is_root_volume": true`)+", "+
		raidtest.LogicalDisk("1", "1", `"is_root_volume": false`), "")
	disks := []block.Device{raidtest.BlankDisk(t, 3*gib), raidtest.BlankDisk(t, 3*gib)}
	m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
	m.o.Kernel = kernel
	if _, err := m.createConfiguration(t.Context(), call{Node: nodeWith(t, oneRoot)}); err != nil {
		t.Errorf("one root volume: got %v, want no error", err)
	}
}

// A node without software RAID gets an empty result, and no disk is read.
func TestRAIDNothing(t *testing.T) {
	m := onThisMachine(t)
	m.list = func(context.Context) ([]block.Device, error) { return nil, errors.New("disks were listed") }
	for _, fields := range []string{
		`"properties": {}`, `"target_raid_config": {}`, `"target_raid_config": null`, raidtest.Target("", ""),
		raidtest.Target(`{"controller": "megaraid", "raid_level": "5", "size_gb": 10}`, ""),
	} {
		result, err := m.createConfiguration(t.Context(), call{Node: nodeWith(t, fields)})
		if diff := cmp.Diff(map[string]any{}, result); err != nil || diff != "" {
			t.Errorf("%s: got %v and %v, want an empty result", fields, result, err)
		}
	}
	_, err := m.createConfiguration(t.Context(), call{Node: nodeWith(t, `"target_raid_config": {"size": 1}`)})
	if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), "contains no logical disks") {
		t.Errorf("no list of disks: got %v, want a SoftwareRAIDError", err)
	}
}

// The disks that an array lacks are among the problems of its configuration: the number that its level needs, and those
// that its hints do not find. An array that exists and remains needs none.
//
// Parity: N1 (number of disks)
func TestRAIDDisksValidation(t *testing.T) {
	hinted := func(level, name string, serials ...string) string {
		hints := `{"serial": "` + strings.Join(serials, `"}, {"serial": "`) + `"}`
		return raidtest.LogicalDisk(level, "1", fmt.Sprintf(`"volume_name": %q, "physical_disks": [%s]`, name, hints))
	}
	const protect = `, "properties": {"skip_block_devices": [{"volume_name": "data"}]}`
	disks := raidtest.MemberDisks(t, "data")
	for i, serial := range []string{"A", "B"} {
		disks[i].Serial, disks[i].Serials = serial, []string{serial}
	}
	before := [][]byte{content(t, disks[0]), content(t, disks[1])}
	for name, tt := range map[string]struct {
		disks         []block.Device
		config, other string // logical disks, other fields of the node
		want, wantNot []string
	}{
		"level 5": {disks, raidtest.LogicalDisk("0", "1", "") + ", " +
			raidtest.LogicalDisk("5", `"MAX"`, ""), "", []string{
			"requires RAID-1 for the first logical disk",
			"RAID level 5 with only 2 block devices found. Want 3 or more, got " + disks[0].Path + ", " + disks[1].Path,
		}, []string{"level 0 with"}},
		"level 6": {disks, raidtest.LogicalDisk("1", `"MAX"`, "") + ", " +
			raidtest.LogicalDisk("6", `"MAX"`, ""), "", []string{
			"only one RAID device with size 'MAX'", "RAID level 6 with only 2 block devices found. Want 4 or more",
		}, []string{"level 1 with"}},
		"no disks": {nil, raidtest.LogicalDisk("1", "1", "") + ", " +
			raidtest.LogicalDisk("1+0", `"MAX"`, ""), "", []string{
			"RAID level 1 with only 0 block devices found. Want 2 or more, got none", "RAID level 1+0 with only 0",
		}, nil},
		"hints": {disks, hinted("1", "a", "A", "X") + ", " + hinted("5", "b", "A", "B"), "", []string{
			"No candidates for physical disk", "from the list " + disks[0].Path,
			`RAID array "b": got 2 entries of physical_disks, want 3 or more for RAID level 5`,
			"RAID level 5 with only 2 block devices found.",
		}, []string{`RAID array "a": got`}},
		"wrong hints": {
			disks, raidtest.LogicalDisk("1", "1", `"physical_disks": ["a", "b"]`) + ", " + hinted("6", "b", "X"), "",
			[]string{"must be a list of device hints", "at least 2 items", "RAID level 6 with only 2"},
			[]string{"No candidates", " entries of physical_disks"},
		},
		"array remains": {
			disks, raidtest.LogicalDisk("0", "1", `"volume_name": "new"`) + ", " +
				hinted("5", "data", "X", "Y"), protect,
			[]string{"requires RAID-1 for the first logical disk"},
			[]string{"level 5", "No candidates", "entries"},
		},
	} {
		m := onThisMachine(t, tt.disks...)
		config := `{"logical_disks": [` + tt.config + `]}`
		for step, err := range map[string]error{
			"create": second(m.createConfiguration(t.Context(),
				call{Node: nodeWith(t, `"target_raid_config": `+config+tt.other)})),
			"apply": second(m.applyConfiguration(t.Context(), applied(nodeWith(t, `"name": "n"`+tt.other), config))),
		} {
			for _, want := range tt.want {
				if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), want) {
					t.Errorf("%s, %s: got %v, want a SoftwareRAIDError with %q", name, step, err, want)
				}
			}
			for _, text := range tt.wantNot {
				if strings.Contains(errorText(err), text) {
					t.Errorf("%s, %s: got %v, want no %q", name, step, err, text)
				}
			}
		}
	}
	for i, d := range disks {
		if !bytes.Equal(content(t, d), before[i]) {
			t.Errorf("%s was written to", d.Path)
		}
	}
}

// A configuration that does not fit fails before any disk is written to.
func TestCreateRefused(t *testing.T) {
	max, first := raidtest.LogicalDisk("1", `"MAX"`, ""), raidtest.LogicalDisk("1", "1", "")
	plain := func(t *testing.T) block.Device { return raidtest.BlankDisk(t, 3*gib) }
	for name, tt := range map[string]struct {
		disks, fields string
		second        func(t *testing.T) block.Device
		want          string
	}{
		"partitions": {
			max, "", func(t *testing.T) block.Device { return raidtest.PartitionedDisk(t, partition.TypeLinux) },
			"Partitions detected on devices /dev/loop",
		},
		"member": {
			max, "", func(t *testing.T) block.Device {
				return raidtest.MemberDisk(t, testenv.RAID{Name: "data", Level: 1})
			},
			`is a member of raid1 array "data"`,
		},
		"one disk": {
			max, `, "properties": {"skip_block_devices": [{"serial": "SECOND"}]}`, plain,
			"not possible for RAID level 1 with only 1 block devices found. Want 2 or more, got /dev/loop",
		},
		"three disks": {
			first + ", " + raidtest.LogicalDisk("5", `"MAX"`, ""), "", plain,
			"RAID level 5 with only 2 block devices found.",
		},
		"four disks": {
			first + ", " + raidtest.LogicalDisk("6", `"MAX"`, ""), "", plain,
			"RAID level 6 with only 2 block devices found.",
		},
		"too large": {raidtest.LogicalDisk("1", "4", ""), "", plain, "a disk of 3221225472 bytes has space"},
		"no space": {
			raidtest.LogicalDisk("1", "2", "") + ", " + raidtest.LogicalDisk("1", `"MAX"`, ""), "",
			func(t *testing.T) block.Device { return raidtest.BlankDisk(t, 2*gib+mib) },
			`has no space for RAID array "md1"`,
		},
		"no candidate": {
			`{"controller": "software", "raid_level": "1", "size_gb": 1, "physical_disks": [{"serial": "none such"}, ` +
				`{"size": ">= 1"}]}`, "", plain, "No candidates for physical disk",
		},
		"none left": {
			`{"controller": "software", "raid_level": "1", "size_gb": 1, "physical_disks": [{"serial": "SECOND"}, ` +
				`{"serial": "SECOND"}]}`, "", plain, "from the list PATH after picking PATH for previous volumes",
		},
		"read-only": {max, "", func(t *testing.T) block.Device {
			d := plain(t)
			d.ReadOnly = true
			return d
		}, "device is read-only"},
		"in use": {max, "", func(t *testing.T) block.Device {
			d := plain(t)
			testenv.Run(t, "mkfs.ext4", "-q", d.Path)
			dir := t.TempDir()
			testenv.Mount(t, d.Path, dir, "ext4", "")
			t.Cleanup(func() { testenv.Detach(t, dir) })
			return d
		}, "busy"},
	} {
		t.Run(name, func(t *testing.T) {
			disks := []block.Device{plain(t), tt.second(t)}
			fields := strings.ReplaceAll(raidtest.Target(tt.disks, tt.fields), "SECOND", disks[1].Serial)
			m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
			m.o.Kernel = kernel
			_, err := m.createConfiguration(t.Context(), call{Node: nodeWith(t, fields)})
			want := strings.ReplaceAll(tt.want, "PATH", disks[1].Path)
			if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), want) {
				t.Errorf("got %v, want a SoftwareRAIDError with %q", err, want)
			}
			if got := raidtest.Layout(t, disks[0]); !strings.Contains(got, "no partition table") ||
				len(kernel.Created) > 0 {
				t.Errorf("got %s and arrays %q, want nothing", got, kernel.Created)
			}
		})
	}
}

// If an array cannot be created, or loses a member, the arrays and partitions of the configuration are removed.
func TestCreateFails(t *testing.T) {
	config := raidtest.Target(`{"controller": "software", "raid_level": "1", "size_gb": 1}, `+
		`{"controller": "software", "raid_level": "0", "size_gb": 1}`, "")
	broken := errors.New("broken")
	second, lost := raidtest.NewKernel(t), raidtest.NewKernel(t)
	second.Fail, lost.CheckErr = map[string]error{"any:md1": broken}, broken
	for name, kernel := range map[string]*raidtest.FakeKernel{"second array": second, "lost member": lost} {
		disks := []block.Device{raidtest.BlankDisk(t, 3*gib), raidtest.BlankDisk(t, 3*gib)}
		m := onThisMachine(t, disks...)
		m.o.Kernel = kernel
		_, err := m.createConfiguration(t.Context(), call{Node: nodeWith(t, config)})
		if typeOf(err) != "SoftwareRAIDError" || !errors.Is(err, broken) {
			t.Errorf("%s: got %v, want a SoftwareRAIDError for %v", name, err, broken)
		}
		if !slices.Contains(kernel.Stopped, "/dev/md0") {
			t.Errorf("%s: got %q stopped, want /dev/md0", name, kernel.Stopped)
		}
		for _, d := range disks {
			if got := raidtest.Layout(t, d); !strings.Contains(got, "no partition table") {
				t.Errorf("%s: %s: got %s, want no partition table", name, d.Path, got)
			}
		}
	}
}

// passedLimits returns limits that have passed before a call can end. Until the end of the test, Go uses one processor.
// So [timelimit.Do] continues, and finds the limit passed, before the call that it has started as a goroutine.
func passedLimits(t *testing.T) timelimit.Limits {
	t.Helper()
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	return timelimit.Limits{NoProgress: time.Nanosecond, Grace: timelimit.Disk.Grace}
}

// A disk whose partition table is written only in part is cleared too.
func TestCreatePartitionsFails(t *testing.T) {
	disks := []block.Device{raidtest.BlankDisk(t, 3*gib), raidtest.BlankDisk(t, 3*gib)}
	at := int64(3*gib - 4096)
	raidtest.Write(t, disks[1].Path, at, []byte("tenant!"))
	m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
	m.o.Kernel = kernel
	failed, passed := false, passedLimits(t)
	m.o.Limits = func(d block.Device) timelimit.Limits {
		if d.Path == disks[1].Path && !failed && strings.HasPrefix(raidtest.Layout(t, disks[0]), "gpt ") {
			failed = true
			return passed
		}
		return timelimit.Disk
	}
	n := nodeWith(t, raidtest.Target(raidtest.LogicalDisk("1", "1", ""),
		`, "properties": {"capabilities": "disk_label:gpt"}`))
	_, err := m.createConfiguration(t.Context(), call{Node: n})
	if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), "no progress for 1ns") {
		t.Errorf("got %v, want a SoftwareRAIDError for the second disk", err)
	}
	if bytes.Contains(imagetest.ReadAt(t, disks[1].Path, at, 7), []byte("tenant!")) {
		t.Errorf("%s holds data", disks[1].Path)
	}
	if got := raidtest.Layout(t, disks[0]); !strings.Contains(got, "no partition table") {
		t.Errorf("got %s, want no partition table", got)
	}
}

// A new array whose content cannot be removed in time is removed again.
func TestCreateWipeStuck(t *testing.T) {
	disks := []block.Device{raidtest.BlankDisk(t, 3*gib), raidtest.BlankDisk(t, 3*gib)}
	m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
	m.o.Kernel = kernel
	passed := passedLimits(t)
	m.o.Limits = func(d block.Device) timelimit.Limits {
		if d.Serial == "" { // the array
			return passed
		}
		return timelimit.Disk
	}
	kernel.OnWipe = func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Second):
			return nil
		}
	}
	n := nodeWith(t, raidtest.Target(raidtest.LogicalDisk("1", "1", ""), ""))
	_, err := m.createConfiguration(t.Context(), call{Node: n})
	if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), "no progress") {
		t.Errorf("got %v, want a SoftwareRAIDError for the time limit", err)
	}
	if diff := cmp.Diff([]string{"/dev/md0"}, kernel.Stopped); diff != "" {
		t.Errorf("stopped arrays differ (-want +got):\n%s", diff)
	}
}

// Arrays are removed from disks and partitions, with the partition tables. Other disks are not changed.
//
// Parity: N3
func TestDeleteConfiguration(t *testing.T) {
	whole := raidtest.MemberDisk(t, testenv.RAID{Name: "data", Level: 1})
	parts := raidtest.PartsDisk(t, 4096, &testenv.RAID{Name: "root", Level: 1, UUID: "uuid-of-the-root"}, nil,
		&testenv.RAID{Name: "data", Level: 1, Member: 1})
	plain := raidtest.PartitionedDisk(t, partition.TypeLinux)
	before := content(t, plain)
	m := onThisMachine(t, whole, parts, plain)
	result, err := m.deleteConfiguration(t.Context(), call{Node: nodeWith(t, `"properties": {}`)})
	if err != nil || result != nil {
		t.Fatalf("got %v and %v, want no result", result, err)
	}
	for _, d := range []block.Device{whole, parts} {
		if left := raidtest.Names(t, d); len(left) > 0 ||
			!strings.Contains(raidtest.Layout(t, d), "no partition table") {
			t.Errorf("%s: got arrays %q and %s, want nothing", d.Path, left, raidtest.Layout(t, d))
		}
		if bytes.Contains(content(t, d), []byte{0xfc, 0x4e, 0x2b, 0xa9}) {
			t.Errorf("%s: a superblock is left", d.Path)
		}
	}
	if !bytes.Equal(content(t, plain), before) {
		t.Error("the disk without arrays was written to")
	}
}

// A protected array of any level is not changed, whatever size raid_config gives for it. The mirrored EFI system
// partition beside it is kept, and the content of other arrays on its disks is removed, but not they.
//
// Parity: N4
func TestDeleteProtected(t *testing.T) {
	for _, level := range []int32{0, 1, 5, 6, 10} {
		text := map[int32]string{10: "1+0"}[level]
		if text == "" {
			text = fmt.Sprint(level)
		}
		var disks []block.Device
		for i := range uint32(4) {
			disks = append(disks, raidtest.PartsDisk(t, 8*mib-8192,
				&testenv.RAID{Name: "tenant:root", Level: level, Devices: 4, Member: i},
				&testenv.RAID{Name: "esp", Level: 1, Devices: 4, Member: i, UUID: "uuid-of-the-esp-"},
				&testenv.RAID{Name: "scratch", Level: 1, Devices: 4, Member: i, UUID: "uuid-of-scratch-"}, nil))
		}
		other := raidtest.MemberDisk(t, testenv.RAID{Name: "other", Level: 1, UUID: "uuid-of-other---"})
		n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}, "raid_config": {`+
			`"logical_disks": [`+raidtest.LogicalDisk(text, "1", `"volume_name": "root"`)+`]}`)
		var before [][]byte
		for _, d := range disks {
			before = append(before, content(t, d))
		}
		if _, err := onThisMachine(t, append(disks, other)...).deleteConfiguration(t.Context(),
			call{Node: n}); err != nil {
			t.Errorf("level %s: %v", text, err)
			continue
		}
		for i, d := range disks {
			after := content(t, d)
			if !bytes.Equal(after[:17*mib], before[i][:17*mib]) || !bytes.Equal(after[25*mib:], before[i][25*mib:]) {
				t.Errorf("level %s: the protected array, its EFI system partition, or what is beside the arrays was "+
					"written to", text)
			}
			if diff := cmp.Diff([]string{"tenant:root", "esp", "scratch"}, fullNames(t, d)); diff != "" {
				t.Errorf("level %s: arrays differ (-want +got):\n%s", text, diff)
			}
			if bytes.Contains(after[17*mib:25*mib-8192], []byte("tenant!")) {
				t.Errorf("level %s: the array beside the protected one holds data", text)
			}
		}
		if left := raidtest.Names(t, other); len(left) > 0 {
			t.Errorf("level %s: got arrays %q on the other disk, want none", text, left)
		}
	}
}

func fullNames(t *testing.T, d block.Device) []string {
	t.Helper()
	members, err := raid.Members(t.Context(), sysfs.Root{}, d)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range members {
		names = append(names, m.Name)
	}
	return names
}

// If it is not clear what must be kept, nothing is changed.
func TestDeleteRefused(t *testing.T) {
	protect := `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`
	for name, tt := range map[string]struct {
		disks  func(t *testing.T) []block.Device
		fields string
		want   []string
	}{
		"half on a skipped disk": {func(t *testing.T) []block.Device {
			return raidtest.MemberDisks(t, "data")
		}, `"properties": {"skip_block_devices": [{"serial": "SECOND"}]}`, []string{
			`raid1 array "data" has members that the step must not change`, "FIRST", "SECOND",
		}},
		"ambiguous": {func(t *testing.T) []block.Device {
			return []block.Device{
				raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1}),
				raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1, Member: 1, UUID: "other-uuid------"}),
			}
		}, protect, []string{`volume_name "root"`, "different UUIDs"}},
		"other array in raid_config": {
			func(t *testing.T) []block.Device {
				return raidtest.MemberDisks(t, "root")
			}, protect + `, "raid_config": {"logical_disks": [` +
				raidtest.LogicalDisk("5", `"MAX"`, `"volume_name": "root"`) + `]}`,
			[]string{"level or size differ", "FIRST"},
		},
		"read-only": {func(t *testing.T) []block.Device {
			second := raidtest.MemberDisk(t, testenv.RAID{Name: "data", Level: 1, Member: 1})
			second.ReadOnly = true
			return []block.Device{raidtest.MemberDisk(t, testenv.RAID{Name: "data", Level: 1}), second}
		}, `"properties": {}`, []string{"SECOND", "read-only"}},
	} {
		disks := tt.disks(t)
		names := strings.NewReplacer("FIRST", disks[0].Path, "SECOND", disks[1].Path)
		before := [][]byte{content(t, disks[0]), content(t, disks[1])}
		m := onThisMachine(t, disks...)
		_, err := m.deleteConfiguration(t.Context(), call{Node: nodeWith(t, names.Replace(tt.fields))})
		for _, want := range tt.want {
			want = names.Replace(want)
			if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), want) {
				t.Errorf("%s: got %v, want a SoftwareRAIDError with %q", name, err, want)
			}
		}
		for i, d := range disks {
			if !bytes.Equal(content(t, d), before[i]) {
				t.Errorf("%s: %s was written to", name, d.Path)
			}
		}
	}
}

// A running array is stopped if it is deleted. One that runs on a disk that must be kept is an error.
func TestDeleteRunning(t *testing.T) {
	disks := raidtest.MemberDisks(t, "data")
	root := sysfs.Root{Path: t.TempDir()}
	raidtest.ListArray(t, root, "md7", disks[0].Name, disks[1].Name)
	m := onThisMachine(t, disks...)
	s, err := m.on(nodeWith(t, `"properties": {}`)).read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.running, err = raid.List(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	del, err := m.on(nil).planDelete(t.Context(), s)
	if err != nil || len(del.stop) != 1 || del.stop[0].Path != "/dev/md7" || len(del.clear) != 2 {
		t.Errorf("got %+v and %v, want /dev/md7 stopped", del, err)
	}
	s.running[0].Slots = append(s.running[0].Slots, raid.Slot{Path: "/dev/other"})
	_, err = m.on(nil).planDelete(t.Context(), s)
	if !strings.Contains(errorText(err), "/dev/md7 runs on devices that must be kept") {
		t.Errorf("got %v, want an error that names /dev/md7", err)
	}
}

// Arrays that skip_block_devices protects are not created again. Other arrays that exist are an error.
func TestCreateKeepsProtected(t *testing.T) {
	protect := `, "properties": {"skip_block_devices": [{"volume_name": "root"}]}`
	volume := func(name, level string) string {
		return raidtest.LogicalDisk(level, `"MAX"`, `"volume_name": "`+name+`"`)
	}
	disks := raidtest.MemberDisks(t, "root")
	before := content(t, disks[0])
	for _, tt := range []struct{ config, want string }{
		{volume("root", "1"), ""},
		{volume("data", "1"), `Existing Software RAID device detected that should not: raid1 array "root"`},
	} {
		m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
		m.o.Kernel = kernel
		_, err := m.createConfiguration(t.Context(), call{Node: nodeWith(t, raidtest.Target(tt.config, protect))})
		if tt.want == "" && err != nil || !strings.Contains(errorText(err), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", tt.config, err, tt.want)
		}
		if len(kernel.Created) > 0 || !bytes.Equal(content(t, disks[0]), before) {
			t.Errorf("%s: got arrays %q, or a disk was written to", tt.config, kernel.Created)
		}
	}
}

// Names of up to 31 bytes fit into a superblock; mdadm writes "any:" only if it fits, too.
func TestArrayName(t *testing.T) {
	for n, prefix := range map[int]string{1: "any:", 27: "any:", 28: "", 31: ""} {
		volume := strings.Repeat("n", n)
		if got := arrayName(volume); got != prefix+volume || len(got) > md.MaxName || !isVolumeName(volume) {
			t.Errorf("%d bytes: got %q, want %q", n, got, prefix+volume)
		}
	}
	if isVolumeName(strings.Repeat("n", 32)) {
		t.Error("32 bytes are accepted")
	}
}
