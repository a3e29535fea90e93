package softraid

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/md"
	"ironroot/storage/raid"
)

// The content of an array is not removed if it would destroy a kept one: a superblock that the kept array did not
// overwrite names the same space.
func TestDeleteOverlapping(t *testing.T) {
	root := func(member uint32) *testenv.RAID { return &testenv.RAID{Name: "root", Level: 1, Member: member} }
	stale := testenv.RAID{Name: "stale", Level: 1, UUID: "uuid-of-the-old-"}
	onPartition := func(t *testing.T, d block.Device, number int, at int64) {
		t.Helper()
		array := stale
		array.Size = 8 * mib
		raidtest.Write(t, block.PartitionPath(onThisMachine(t).o.System, d.Path, number), at, array.Superblock(at))
	}
	for name, tt := range map[string]struct {
		add  func(t *testing.T, d block.Device)
		want string
	}{
		"same partition": {func(t *testing.T, d block.Device) {
			t.Helper()
			onPartition(t, d, 1, 8*mib-8192)
		}, "would destroy"},
		"whole disk": {func(t *testing.T, d block.Device) {
			t.Helper()
			array := stale
			array.Size = d.Size
			at := md.Offsets(d.Size)["1.0"] // in the backup of the table
			raidtest.Write(t, d.Path, at, array.Superblock(at))
		}, "would destroy"},
		"beside it": {func(t *testing.T, d block.Device) {
			t.Helper()
			onPartition(t, d, 2, 4096)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := raidtest.PartsDisk(t, 4096, root(0), nil), raidtest.PartsDisk(t, 4096, root(1), nil)
			tt.add(t, second)
			before := content(t, second)
			_, err := onThisMachine(t, first, second).deleteConfiguration(t.Context(), call{
				Node: nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`),
			})
			if tt.want == "" && err != nil || !strings.Contains(errorText(err), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			after := content(t, second)
			if tt.want != "" && !bytes.Equal(after, before) || !bytes.Equal(after[:9*mib], before[:9*mib]) {
				t.Error("the protected array was written to")
			}
		})
	}
}

// A member with the UUID of a protected array and another name is not kept silently.
func TestDeleteCopiedUUID(t *testing.T) {
	disks := append(raidtest.MemberDisks(t, "root"),
		raidtest.MemberDisk(t, testenv.RAID{Name: "planted", Level: 1, Member: 1}))
	before := content(t, disks[0])
	_, err := onThisMachine(t, disks...).deleteConfiguration(t.Context(), call{
		Node: nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`),
	})
	if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), "two members have number 1") {
		t.Errorf("got %v, want a SoftwareRAIDError with the member that occurs twice", err)
	}
	if !bytes.Equal(content(t, disks[0]), before) {
		t.Error("the protected array was written to")
	}
}

// Members are compared once, not once for each of thousands that a tenant has written: that took minutes. Each
// comparison of members copies their list, so the test counts allocations, which do not depend on the machine's load.
func TestDecideMany(t *testing.T) {
	arrays, err := RulesOf(nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	const members = 200
	g := &group{}
	for i := range members {
		spare := md.Superblock{Name: fmt.Sprintf("host%d:root", i), Level: "raid1", Devices: 2, Number: i, Role: -1}
		g.Array = append(g.Array, raid.Member{Superblock: spare, Disk: block.Device{Path: "/dev/sda"}})
	}
	allocations := testing.AllocsPerRun(1, func() {
		g.action = actionUndecided
		s := &state{groups: []*group{g}, rules: arrays}
		if err := s.decide(); err != nil || g.action != actionKeep {
			t.Errorf("got action %v and %v, want the array kept", g.action, err)
		}
	})
	t.Logf("%v allocations for %d members", allocations, members)
	if allocations >= members {
		t.Errorf("got %v allocations for %d members, want less than one for each", allocations, members)
	}
}

// Each protected name of the members of an array is compared, also if another one of them is not ambiguous.
func TestDecideNames(t *testing.T) {
	arrays, err := RulesOf(nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "a:root"},
		{"volume_name": "b:root"}, {"volume_name": "c:root"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	s := &state{rules: arrays}
	for uuid, names := range map[string][]string{"1": {"a:root", "b:root"}, "2": {"c:root", "b:root"}} {
		g := &group{}
		for i, name := range names {
			array := md.Superblock{UUID: uuid, Name: name, Level: "raid1", Devices: 2, Number: i, Role: i}
			g.Array = append(g.Array, raid.Member{Superblock: array, Disk: block.Device{Path: "/dev/sda"}})
		}
		s.groups = append(s.groups, g)
	}
	want := `volume_name "b:root" of skip_block_devices does not name`
	if err := s.decide(); !strings.Contains(errorText(err), want) {
		t.Errorf("got %v, want an error for b:root", err)
	}
}

// All disks of arrays whose content is removed are checked before the first of them is written to.
func TestDeleteWipeReadOnly(t *testing.T) {
	var disks []block.Device
	for i := range uint32(2) {
		disks = append(disks, raidtest.PartsDisk(t, 4096, &testenv.RAID{Name: "root", Level: 1, Member: i},
			&testenv.RAID{Name: "scratch", Level: 1, Member: i, UUID: "uuid-of-scratch-"}))
	}
	disks[1].ReadOnly = true
	before := content(t, disks[0])
	_, err := onThisMachine(t, disks...).deleteConfiguration(t.Context(), call{
		Node: nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`),
	})
	if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), "read-only") {
		t.Errorf("got %v, want a SoftwareRAIDError for the read-only disk", err)
	}
	if !bytes.Equal(content(t, disks[0]), before) {
		t.Error("the other disk was written to")
	}
}

// All members whose content is removed are checked before the first of them is written to.
func TestDeleteWipeUnsupported(t *testing.T) {
	var disks []block.Device
	for i := range uint32(2) {
		disks = append(disks, raidtest.PartsDisk(t, 4096, &testenv.RAID{Name: "root", Level: 1, Member: i}, nil))
		b := testenv.RAID{Name: "data", Level: 1, Member: i, UUID: "uuid-of-the-data", Size: 8 * mib}.Superblock(4096)
		const badBlocks = 8 // MD_FEATURE_BAD_BLOCKS
		b[8] = byte(badBlocks * i)
		binary.LittleEndian.PutUint32(b[216:], binary.LittleEndian.Uint32(b[216:])+badBlocks*i) // the checksum
		raidtest.Write(t, block.PartitionPath(onThisMachine(t).o.System, disks[i].Path, 2), 4096, b)
	}
	before := content(t, disks[0])
	_, err := onThisMachine(t, disks...).deleteConfiguration(t.Context(), call{
		Node: nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`),
	})
	if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), disks[1].Path) ||
		!strings.Contains(errorText(err), "features 0x8 are not supported") {
		t.Errorf("got %v, want a SoftwareRAIDError with the feature and the member", err)
	}
	if !bytes.Equal(content(t, disks[0]), before) {
		t.Error("the other disk was written to")
	}
}

// A member whose content cannot be removed in time is an error.
func TestDeleteWipeStuck(t *testing.T) {
	var disks []block.Device
	for i := range uint32(2) {
		disks = append(disks, raidtest.PartsDisk(t, 4096, &testenv.RAID{Name: "root", Level: 1, Member: i},
			&testenv.RAID{Name: "scratch", Level: 1, Member: i, UUID: "uuid-of-scratch-"}))
	}
	m := onThisMachine(t, disks...)
	member := block.PartitionPath(m.o.System, disks[1].Path, 2)
	passed := passedLimits(t)
	m.o.Limits = func(d block.Device) timelimit.Limits {
		if d.Path == member {
			return passed
		}
		return timelimit.Disk
	}
	_, err := m.deleteConfiguration(t.Context(), call{
		Node: nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`),
	})
	if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), "no progress") ||
		!strings.Contains(errorText(err), member) {
		t.Errorf("got %v, want a SoftwareRAIDError for the time limit of %s", err, member)
	}
}

// busyMembers makes two members of an array. A partition of the second disk is open until the end of the test, which
// the manager does not wait for.
func busyMembers(t *testing.T) (m *rig, first block.Device, open string) {
	t.Helper()
	first = raidtest.MemberDisk(t, testenv.RAID{Name: "data", Level: 1})
	second := raidtest.PartsDisk(t, 4096, &testenv.RAID{Name: "data", Level: 1, Member: 1}, nil)
	m = onThisMachine(t, first, second)
	m.o.Wait.Retries = 0
	open = block.PartitionPath(m.o.System, second.Path, 2)
	holder, err := os.Open(open)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Close() }) // only read
	return m, first, open
}

// If a disk is in use, no other is written to.
func TestDeleteBusy(t *testing.T) {
	m, first, open := busyMembers(t)
	before := content(t, first)
	_, err := m.deleteConfiguration(t.Context(), call{Node: nodeWith(t, `"properties": {}`)})
	if typeOf(err) != "SoftwareRAIDError" || !errors.Is(err, erase.ErrBusy) ||
		!strings.Contains(errorText(err), open) {
		t.Errorf("got %v, want a SoftwareRAIDError that names the holder of %s", err, open)
	}
	if !bytes.Equal(content(t, first), before) {
		t.Error("the other disk was written to")
	}
}

// If a member whose content is to be removed is in use, no other member is written to.
func TestDeleteWipeBusy(t *testing.T) {
	var disks []block.Device
	for i := range uint32(2) {
		disks = append(disks, raidtest.PartsDisk(t, 4096, &testenv.RAID{Name: "root", Level: 1, Member: i},
			&testenv.RAID{Name: "scratch", Level: 1, Member: i, UUID: "uuid-of-scratch-"}))
	}
	m := onThisMachine(t, disks...)
	m.o.Wait.Retries = 0
	member := block.PartitionPath(m.o.System, disks[1].Path, 2)
	holder, err := os.OpenFile(member, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close() //nolint:errcheck // only held
	before := content(t, disks[0])
	_, err = m.deleteConfiguration(t.Context(), call{
		Node: nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`),
	})
	if typeOf(err) != "SoftwareRAIDError" || !errors.Is(err, erase.ErrBusy) ||
		!strings.Contains(errorText(err), member) {
		t.Errorf("got %v, want a SoftwareRAIDError that names the holder of %s", err, member)
	}
	if !bytes.Equal(content(t, disks[0]), before) {
		t.Error("the other disk was written to")
	}
}

// apply_configuration refuses a configuration without software RAID with all its problems, and writes to no disk.
//
// Parity: N1 (apply_configuration)
func TestApplyWithoutSoftwareRAID(t *testing.T) {
	const none = "RAID config contains no logical disks"
	disks := raidtest.MemberDisks(t, "old")
	before := [][]byte{content(t, disks[0]), content(t, disks[1])}
	m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
	m.o.Kernel = kernel
	for config, want := range map[string][]string{
		`{}`: {none}, `null`: {none}, `{"logical_disks": []}`: {none}, `{"logical_disks": null}`: {none},
		`{"logical_disks": {"controller": "software"}}`: {none},
		`{"logical_disks": [{"controller": "megaraid", "raid_level": "1", "size_gb": 1}]}`: {
			"requires all logical disks to have 'controller'='software'",
		},
		`{"logical_disks": [{"raid_level": "5", "size_gb": "MAX"}, "md1", {"raid_level": "7", "size_gb": "MAX"}]}`: {
			"requires one or two logical disks", "requires all logical disks to have 'controller'='software'",
			"requires RAID-1 for the first logical disk", "logical disk 2: got md1, want an object",
			"does not support RAID level 7", "only one RAID device with size 'MAX'",
		},
	} {
		for _, remove := range []string{"", "true", "false"} {
			call := applied(nodeWith(t, `"properties": {}`), config)
			if remove != "" {
				call.Args[deleteExisting] = json.RawMessage(remove)
			}
			result, err := m.applyConfiguration(t.Context(), call)
			for _, text := range want {
				if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), text) {
					t.Errorf("%s, delete_existing %q: got %v and %v, want a SoftwareRAIDError with %q", config, remove,
						result, err, text)
				}
			}
			for i, d := range disks {
				if !bytes.Equal(content(t, d), before[i]) {
					t.Fatalf("%s, delete_existing %q: %s was written to", config, remove, d.Path)
				}
			}
		}
	}
	if len(kernel.Created)+len(kernel.Stopped) > 0 {
		t.Errorf("got arrays %q created and %q stopped, want none", kernel.Created, kernel.Stopped)
	}
}

// The size of the whole member of the mirrored EFI system partition is limited: its superblock can name a small part
// of a large one.
func TestESPMember(t *testing.T) {
	esp := md.Superblock{Version: "1.0", Name: "host:esp", Level: "raid1", DataSize: 512 << 20, ArraySize: 512 << 20}
	for size, want := range map[int64]bool{513 << 20: true, 1 << 30: true, 2 << 30: false} {
		if got := IsESPMember(raid.Member{Device: block.Device{Size: size}, Superblock: esp}); got != want {
			t.Errorf("member of %d bytes: got %v, want %v", size, got, want)
		}
	}
}
