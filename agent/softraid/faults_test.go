package softraid

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/agent/node"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/hint"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// Disks and hints that the RAID steps cannot read or compare are an error.
func TestRAIDUnread(t *testing.T) {
	broken := errors.New("broken")
	disk := block.Device{Name: "missing", Path: "/dev/missing", Type: "disk", Serial: "S3X9", Serials: []string{"S3X9"}}
	disks := []block.Device{disk}
	skip := func(entries string) string { return `"properties": {"skip_block_devices": [` + entries + `]}` }
	for name, c := range map[string]struct {
		disks   []block.Device
		err     error
		entries string // of skip_block_devices
		want    string
	}{
		"array":           {nil, nil, `{"volume_name": 5}`, "entry 1 of skip_block_devices"},
		"hint":            {nil, nil, `{"colour": "blue"}`, "colour"},
		"list":            {nil, broken, "", "list disks: broken"},
		"comparison":      {disks, nil, `{"serial": ">= 100"}`, "entry 1 of skip_block_devices"},
		"disk":            {disks, nil, "", "/dev/missing: "},
		"protected array": {disks, nil, `{"serial": "S3X9"}, {"volume_name": "root"}`, "/dev/missing: "},
	} {
		m := onThisMachine(t)
		m.list = func(context.Context) ([]block.Device, error) { return c.disks, c.err }
		config := raidtest.LogicalDisk("1", "1", `"volume_name": "root"`)
		n := nodeWith(t, raidtest.Target(config, ", "+skip(c.entries)))
		for step, err := range map[string]error{
			"create": second(m.createConfiguration(t.Context(), call{Node: n})),
			"delete": second(m.deleteConfiguration(t.Context(), call{Node: n})),
			"apply":  second(m.applyConfiguration(t.Context(), applied(n, `{"logical_disks": [`+config+`]}`))),
			"check":  m.on(n).checkDeleted(t.Context()),
		} {
			if !strings.Contains(errorText(err), c.want) || step != "check" && typeOf(err) != "SoftwareRAIDError" {
				t.Errorf("%s, %s: got %v, want a SoftwareRAIDError with %q", name, step, err, c.want)
			}
		}
	}
	m := onThisMachine(t)
	m.list = func(context.Context) ([]block.Device, error) { return nil, broken }
	wrong := applied(nodeWith(t, skip("")), `{"logical_disks": [`+raidtest.LogicalDisk("5", "1", "")+`]}`)
	if _, err := m.applyConfiguration(t.Context(), wrong); !strings.Contains(errorText(err), "requires RAID-1 for") {
		t.Errorf("got %v, want the problem of the configuration first", err)
	}
	m = newManager(t) // the machine is an empty directory
	if _, err := m.deleteConfiguration(t.Context(), call{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("arrays of the kernel: got %v, want %v", err, fs.ErrNotExist)
	}
}

func second(_ any, err error) error { return err }

// applied is a call of apply_configuration.
func applied(n *node.Node, config string) call {
	return call{Node: n, Args: map[string]json.RawMessage{raidConfig: json.RawMessage(config)}}
}

// A disk that skip_block_devices names, and an array, need not be readable.
func TestDeleteBesideUnreadDisk(t *testing.T) {
	disks := append(raidtest.MemberDisks(t, "old"), block.Device{Name: "missing", Path: "/dev/missing", Type: "disk"},
		block.Device{Name: "md9", Path: "/dev/md9", Type: "raid1"})
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"name": "/dev/missing"}]}`)
	if _, err := onThisMachine(t, disks...).deleteConfiguration(t.Context(), call{Node: n}); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	for _, d := range disks[:2] {
		if left := raidtest.Names(t, d); len(left) > 0 {
			t.Errorf("%s: got arrays %q, want none", d.Path, left)
		}
	}
}

// Partitions that the kernel does not show can be members of a protected array.
func TestDeleteHiddenPartitions(t *testing.T) {
	disks := append(raidtest.MemberDisks(t, "old"), raidtest.PartsDisk(t, 4096, nil))
	raidtest.Write(t, disks[2].Path, 512, make([]byte, 512)) // the primary GPT: Linux ignores the backup
	if err := partition.Forget(t.Context(), sysfs.Root{}, disks[2].Path); err != nil {
		t.Fatal(err)
	}
	before := content(t, disks[0])
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`)
	_, err := onThisMachine(t, disks...).deleteConfiguration(t.Context(), call{Node: n})
	if typeOf(err) != "SoftwareRAIDError" ||
		!strings.Contains(errorText(err), disks[2].Path+": the kernel does not show") {
		t.Errorf("got %v, want a SoftwareRAIDError for the third disk", err)
	}
	if !bytes.Equal(content(t, disks[0]), before) {
		t.Error("the first disk was written to")
	}
}

// A target_raid_config that is no object is an error.
func TestRAIDTargetType(t *testing.T) {
	m := onThisMachine(t)
	n := nodeWith(t, `"target_raid_config": [5]`)
	if _, err := m.createConfiguration(t.Context(), call{Node: n}); typeOf(err) != "SoftwareRAIDError" ||
		!strings.Contains(err.Error(), "target_raid_config is not an object") {
		t.Errorf("got %v, want a SoftwareRAIDError for target_raid_config", err)
	}
}

// Two arrays that look like the EFI system partition of a protected array are ambiguous: nothing is deleted.
func TestDeleteAmbiguousESP(t *testing.T) {
	at := int64(8*mib - 8192)
	var disks []block.Device
	for i, uuid := range []string{"uuid-of-the-esp-", "uuid-of-another-"} {
		disks = append(disks, raidtest.PartsDisk(t, at, &testenv.RAID{Name: "root", Level: 1, Member: uint32(i)},
			&testenv.RAID{Name: "esp", Level: 1, UUID: uuid},
			&testenv.RAID{Name: "data", Level: 1, UUID: "uuid-of-the-data", Member: uint32(i)}))
	}
	before := content(t, disks[0])
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`)
	_, err := onThisMachine(t, disks...).deleteConfiguration(t.Context(), call{Node: n})
	if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(err.Error(), `"esp" is not the name of one array`) {
		t.Errorf("got %v, want a SoftwareRAIDError for the EFI system partition", err)
	}
	if !bytes.Equal(content(t, disks[0]), before) {
		t.Error("a disk was written to")
	}
}

// Disks with a shared file system, and zoned ones, are not written to, nor are the others.
func TestDeleteProtectedDisks(t *testing.T) {
	const vmfs = "AA31E02A-400F-11DB-9590-000C2911D1B8"
	shared := raidtest.PartitionedDisk(t, vmfs)
	raidtest.Write(t, block.PartitionPath(sysfs.Root{}, shared.Path, 1), 4096,
		testenv.RAID{Name: "data", Level: 1, Member: 1, Size: 8 * mib}.Superblock(4096))
	zoned := raidtest.MemberDisk(t, testenv.RAID{Name: "data", Level: 1, Member: 1})
	zoned.Zoned = "host-managed"
	for want, d := range map[string]block.Device{"ProtectedDeviceError": shared, "SoftwareRAIDError": zoned} {
		first := raidtest.MemberDisk(t, testenv.RAID{Name: "data", Level: 1})
		before := content(t, first)
		for name, err := range map[string]error{
			"delete": second(onThisMachine(t, first, d).deleteConfiguration(t.Context(), call{})),
			"apply": second(onThisMachine(t, first, d).applyConfiguration(t.Context(),
				applied(nil,
					`{"logical_disks": [`+raidtest.LogicalDisk("1", `"MAX"`, "")+`]}`))),
		} {
			if typeOf(err) != want || !errors.Is(err, erase.ErrProtected) && !errors.Is(err, erase.ErrZoned) {
				t.Errorf("%s: got %v, want a %s", name, err, want)
			}
		}
		if !bytes.Equal(content(t, first), before) {
			t.Errorf("%s: the first disk was written to", want)
		}
	}
}

// runningDisks makes two members of an array, and a machine in a directory on which the array runs as md7.
func runningDisks(t *testing.T) (*rig, []block.Device) {
	t.Helper()
	disks := raidtest.MemberDisks(t, "data")
	m := newManager(t, disks...)
	for _, d := range disks {
		raidtest.ListDisks(t, m.o.System, fmt.Sprint(d.Size/512), d.Name)
	}
	raidtest.ListArray(t, m.o.System, "md7", disks[0].Name, disks[1].Name)
	return m, disks
}

// An array that cannot be stopped is an error, and its disks are not written to. One that was stopped is deleted.
func TestDeleteStops(t *testing.T) {
	m, disks := runningDisks(t)
	before := content(t, disks[0])
	broken := errors.New("broken")
	kernel := &raidtest.FakeKernel{System: m.o.System, OnStop: func(string) error { return broken }}
	m.o.Kernel = kernel
	if _, err := m.deleteConfiguration(t.Context(), call{}); !errors.Is(err, broken) ||
		typeOf(err) != "SoftwareRAIDError" {
		t.Errorf("got %v, want a SoftwareRAIDError for %v", err, broken)
	}
	if !bytes.Equal(content(t, disks[0]), before) {
		t.Error("a member of an array that runs was written to")
	}
	err := m.on(nil).checkDeleted(t.Context())
	want := "Remaining " + disks[0].Path + ", " + disks[1].Path + ", /dev/md7"
	if typeOf(err) != "SoftwareRAIDError" || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
	var stopped []string
	kernel.OnStop = func(path string) error {
		stopped = append(stopped, path)
		return os.RemoveAll(m.o.System.Sys("class/block/md7"))
	}
	if _, err := m.deleteConfiguration(t.Context(), call{}); err != nil ||
		!slices.Equal(stopped, []string{"/dev/md7"}) {
		t.Errorf("got %v and stopped %q, want /dev/md7 stopped", err, stopped)
	}
	for _, d := range disks {
		if left := raidtest.Names(t, d); len(left) > 0 {
			t.Errorf("%s: got arrays %q, want none", d.Path, left)
		}
	}
}

// An array that was not deleted is named, also if it cannot be deleted.
func TestCheckDeletedReadOnly(t *testing.T) {
	disks := raidtest.MemberDisks(t, "data")
	disks[1].ReadOnly = true
	if err := onThisMachine(t, disks...).on(nil).checkDeleted(t.Context()); !errors.Is(err, erase.ErrReadOnly) {
		t.Errorf("got %v, want %v", err, erase.ErrReadOnly)
	}
}

// An array that skip_block_devices protects, by its name or its disks, continues to run. The log has it if it is kept
// for its name.
func TestDeleteLeavesRunning(t *testing.T) {
	m, disks := runningDisks(t)
	m.o.Kernel = &raidtest.FakeKernel{System: m.o.System, OnStop: func(path string) error {
		return fmt.Errorf("%s was stopped", path)
	}}
	before := content(t, disks[0])
	serials := `{"serial": "` + disks[0].Serial + `"}, {"serial": "` + disks[1].Serial + `"}`
	for entries, want := range map[string]bool{serials: false, `{"volume_name": "data"}`: true} {
		var log bytes.Buffer
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		n := nodeWith(t, `"properties": {"skip_block_devices": [`+entries+`]}`)
		if _, err := m.deleteConfiguration(t.Context(), call{Node: n}); err != nil {
			t.Errorf("%s: got %v, want no error", entries, err)
		}
		if got := strings.Contains(log.String(), `msg="RAID array kept" array="raid1 array`); got != want {
			t.Errorf("%s: got log %s, want the array: %v", entries, &log, want)
		}
		if !bytes.Equal(content(t, disks[0]), before) {
			t.Errorf("%s: a protected disk was written to", entries)
		}
	}
}

// Arrays on a member or a disk that is written to are stopped, arrays beside it are not.
func TestPlanDeleteStops(t *testing.T) {
	groupOf := func(action action, disk, part string) *group {
		return &group{action: action, Array: raid.Array{{
			Device: block.Device{Path: part}, Superblock: md.Superblock{Version: "1.0"}, Disk: block.Device{Path: disk},
		}}}
	}
	s := &state{
		disks: []block.Device{{Path: "/dev/sda"}, {Path: "/dev/sdb"}, {Path: "/dev/sdc", ReadOnly: true}},
		groups: []*group{
			groupOf(actionDelete, "/dev/sda", "/dev/sda1"), groupOf(actionWipe, "/dev/sdb", "/dev/sdb1"),
			groupOf(actionKeep, "/dev/sdb", "/dev/sdb2"),
		},
	}
	for i, member := range []string{"/dev/sda1", "/dev/sda", "/dev/sdb1", "/dev/sdb2", "/dev/sdb", "/dev/sdc"} {
		s.running = append(s.running, raid.Status{
			Path: fmt.Sprintf("/dev/md%d", i), Slots: []raid.Slot{{Path: member}},
		})
	}
	del, err := newManager(t).on(nil).planDelete(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	var stopped []string
	for _, a := range del.stop {
		stopped = append(stopped, a.Path)
	}
	if want := []string{"/dev/md0", "/dev/md1", "/dev/md2"}; !slices.Equal(stopped, want) {
		t.Errorf("got %q stopped, want %q", stopped, want)
	}
	if len(del.wipe) != 1 || del.wipe[0] != s.groups[1] || !slices.Equal(paths(del.clear), []string{"/dev/sda"}) {
		t.Errorf("got %d arrays wiped and %q cleared, want one and /dev/sda", len(del.wipe), paths(del.clear))
	}
}

// The arrays on all disks of arrays that are wiped are wiped too, in whatever order they were found.
func TestDecideChain(t *testing.T) {
	arrays, err := RulesOf(nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	s := &state{rules: arrays}
	for i, disks := range [][]string{{"/dev/sdd"}, {"/dev/sdb", "/dev/sdc"}, {"/dev/sda", "/dev/sdb"}, {"/dev/sda"}} {
		g := &group{}
		for role, disk := range disks {
			array := md.Superblock{
				UUID: fmt.Sprint(i), Name: []string{"a", "b", "c", "root"}[i], Level: "raid1", Devices: len(disks),
				Number: role, Role: role,
			}
			g.Array = append(g.Array, raid.Member{Superblock: array, Disk: block.Device{Path: disk}})
		}
		s.groups = append(s.groups, g)
	}
	if err := s.decide(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []action{actionDelete, actionWipe, actionWipe, actionKeep} {
		if got := s.groups[i].action; got != want {
			t.Errorf("array %d: got action %d, want %d", i, got, want)
		}
	}
}

// The result of apply_configuration is its argument, with the digits of all numbers.
func TestApplyKeepsNumbers(t *testing.T) {
	const config = `{"logical_disks":[{"controller":"software","n":9007199254740993,"raid_level":"1","size_gb":1}]}`
	disks := []block.Device{raidtest.BlankDisk(t, 3*gib), raidtest.BlankDisk(t, 3*gib)}
	m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
	m.o.Kernel = kernel
	result, err := m.applyConfiguration(t.Context(), applied(nil, config))
	if text, jsonErr := json.Marshal(result); err != nil || jsonErr != nil || string(text) != config {
		t.Errorf("got %s, %v and %v, want %s", text, err, jsonErr, config)
	}
}

// The error of a configuration that cannot be created contains why its arrays and partitions were not removed.
func TestCreateNotRemoved(t *testing.T) {
	broken, running := errors.New("broken"), errors.New("still runs")
	disks := []block.Device{raidtest.BlankDisk(t, 3*gib), raidtest.BlankDisk(t, 3*gib)}
	m, kernel := impatient(onThisMachine(t, disks...)), raidtest.NewKernel(t)
	m.o.Kernel, kernel.CheckErr = kernel, broken
	kernel.OnStop = func(string) error { return running }
	config := raidtest.Target(raidtest.LogicalDisk("1", "1", ""), "")
	_, err := m.createConfiguration(t.Context(), call{Node: nodeWith(t, config)})
	if typeOf(err) != "SoftwareRAIDError" || !errors.Is(err, broken) || !errors.Is(err, running) {
		t.Errorf("got %v, want a SoftwareRAIDError for %v and %v", err, broken, running)
	}
	array := Volume{Level: "raid1", Members: raid.Array{
		{Disk: block.Device{Path: "/dev/sda"}}, {Disk: block.Device{Path: "/dev/sdb"}},
	}}
	if err := array.checkMembers(); !strings.Contains(errorText(err), "on /dev/sda, /dev/sdb: ") {
		t.Errorf("got %v, want an error with the disks", err)
	}
}

// Superblocks that cannot be removed in time are an error.
func TestDeleteMetadataStuck(t *testing.T) {
	disks := raidtest.MemberDisks(t, "data")
	m := onThisMachine(t, disks...)
	passed := passedLimits(t)
	m.o.Limits = func(d block.Device) timelimit.Limits {
		if d.Path == disks[1].Path && len(raidtest.Names(t, disks[0])) == 0 {
			return passed
		}
		return timelimit.Disk
	}
	_, err := m.deleteConfiguration(t.Context(), call{})
	if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(err.Error(), "no progress for 1ns") {
		t.Errorf("got %v, want a SoftwareRAIDError for the second disk", err)
	}
}

// A disk that cannot be cleared is an error with its cause, although the array is found again afterwards.
func TestDeleteMetadataBusy(t *testing.T) {
	disks := raidtest.MemberDisks(t, "data")
	m := onThisMachine(t, disks...)
	m.o.Wait.Retries = 0
	var holder *os.File
	m.o.Limits = func(d block.Device) timelimit.Limits {
		if d.Path == disks[1].Path && holder == nil && len(raidtest.Names(t, disks[0])) == 0 {
			var err error
			if holder, err = os.Open(d.Path); err != nil {
				t.Error(err)
			}
		}
		return timelimit.Disk
	}
	_, err := m.deleteConfiguration(t.Context(), call{})
	if typeOf(err) != "SoftwareRAIDError" || !errors.Is(err, erase.ErrBusy) {
		t.Errorf("got %v, want a SoftwareRAIDError that wraps %v", err, erase.ErrBusy)
	}
	if err := holder.Close(); err != nil {
		t.Error(err)
	}
}

// An array that appears again after it was deleted is an error.
func TestDeleteChecks(t *testing.T) {
	disks := raidtest.MemberDisks(t, "data")
	m := onThisMachine(t, disks...)
	again := testenv.RAID{Name: "data", Level: 1, Size: disks[0].Size}
	written := false
	m.o.Limits = func(block.Device) timelimit.Limits {
		if !written && len(raidtest.Names(t, disks[0])) == 0 && len(raidtest.Names(t, disks[1])) == 0 {
			written = true
			raidtest.Write(t, disks[0].Path, 4096, again.Superblock(4096))
		}
		return timelimit.Disk
	}
	_, err := m.deleteConfiguration(t.Context(), call{})
	want := "Remaining " + disks[0].Path
	if typeOf(err) != "SoftwareRAIDError" || !strings.HasSuffix(errorText(err), want) {
		t.Errorf("got %v, want a SoftwareRAIDError with %q", err, want)
	}
}

// Members overlap on one disk only, by their place or because one is the whole disk.
func TestMembersOverlap(t *testing.T) {
	member := func(disk, path string, start, size int64) raid.Member {
		return raid.Member{Device: block.Device{Path: path, Start: start, Size: size}, Disk: block.Device{Path: disk}}
	}
	first := member("/dev/sda", "/dev/sda1", 4*mib, 8*mib)
	for name, tt := range map[string]struct {
		other raid.Member
		want  bool
	}{
		"itself":               {first, true},
		"whole disk":           {member("/dev/sda", "/dev/sda", 0, 64*mib), true},
		"begins within":        {member("/dev/sda", "/dev/sda2", 8*mib, 8*mib), true},
		"ends within":          {member("/dev/sda", "/dev/sda2", mib, 4*mib), true},
		"beside":               {member("/dev/sda", "/dev/sda2", 12*mib, 8*mib), false},
		"before":               {member("/dev/sda", "/dev/sda2", mib, 3*mib), false},
		"same place elsewhere": {member("/dev/sdb", "/dev/sdb1", 4*mib, 8*mib), false},
		"whole disk elsewhere": {member("/dev/sdb", "/dev/sdb", 0, 64*mib), false},
	} {
		if got, back := overlap(first, tt.other), overlap(tt.other, first); got != tt.want || back != tt.want {
			t.Errorf("%s: got %v and %v, want %v", name, got, back, tt.want)
		}
	}
}

// Arrays on disks that skip_block_devices names do not prevent arrays on other disks.
func TestCreateBesideSkippedDisks(t *testing.T) {
	skipped := raidtest.MemberDisks(t, "data")
	disks := append([]block.Device{raidtest.BlankDisk(t, 3*gib), raidtest.BlankDisk(t, 3*gib)}, skipped...)
	m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
	m.o.Kernel = kernel
	n := nodeWith(t, raidtest.Target(raidtest.LogicalDisk("1", "1", ""),
		`, "properties": {"skip_block_devices": [{"serial": "`+skipped[0].Serial+`"}, {"serial": "`+
			skipped[1].Serial+`"}]}`))
	_, err := m.createConfiguration(t.Context(), call{Node: n})
	if err != nil || len(kernel.Created) != 1 {
		t.Errorf("got %v and arrays %q, want one array", err, kernel.Created)
	}
}

// A disk that is not cleared must be empty, also beside one that is.
func TestApplyBesidePartitions(t *testing.T) {
	old, partitioned := raidtest.BlankDisk(t, 3*gib), raidtest.PartitionedDisk(t, partition.TypeLinux)
	raidtest.Write(t, old.Path, 4096, testenv.RAID{Name: "old", Level: 1, Size: old.Size}.Superblock(4096))
	before := content(t, partitioned)
	m, kernel := onThisMachine(t, old, partitioned), raidtest.NewKernel(t)
	m.o.Kernel = kernel
	_, err := m.applyConfiguration(t.Context(), applied(nil,
		`{"logical_disks": [`+raidtest.LogicalDisk("1", `"MAX"`, "")+`]}`))
	want := "Partitions detected on devices " + partitioned.Path + " during"
	if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), want) {
		t.Errorf("got %v, want a SoftwareRAIDError with %q", err, want)
	}
	if !bytes.Equal(content(t, partitioned), before) || len(raidtest.Names(t, old)) == 0 {
		t.Error("a disk was written to")
	}
}

// If the existing arrays cannot be deleted, no array is created.
func TestApplyBusy(t *testing.T) {
	m, first, _ := busyMembers(t)
	kernel := raidtest.NewKernel(t)
	m.o.Kernel = kernel
	_, err := m.applyConfiguration(t.Context(), applied(nil,
		`{"logical_disks": [`+raidtest.LogicalDisk("1", `"MAX"`, "")+`]}`))
	if typeOf(err) != "SoftwareRAIDError" || !errors.Is(err, erase.ErrBusy) {
		t.Errorf("got %v, want a SoftwareRAIDError that wraps %v", err, erase.ErrBusy)
	}
	if len(kernel.Created) > 0 || len(raidtest.Names(t, first)) == 0 {
		t.Errorf("got arrays %q created, or the first disk written to", kernel.Created)
	}
}

// Arrays are not created on media of a BMC.
func TestPlanCreateWithoutMedia(t *testing.T) {
	disks := []block.Device{
		raidtest.BlankDisk(t, 3*gib), {Name: "sr0", Path: "/dev/sr0", Size: 3 * gib}, raidtest.BlankDisk(t, 3*gib),
	}
	m := newManager(t)
	for _, d := range disks {
		raidtest.ListDisks(t, m.o.System, "6291456", d.Name)
	}
	kind := m.o.System.Sys("class/block/sr0/device/type") // SCSI: 5 is an optical drive
	err := os.MkdirAll(filepath.Dir(kind), 0o755)
	if err = errors.Join(err, os.WriteFile(kind, []byte("5\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	volumes := []Volume{{Name: "root", Level: "raid1", Size: gib}}
	del := deletion{state: &state{disks: disks}}
	plan, err := m.on(nil).planCreate(t.Context(), volumes, del)
	if got, want := paths(plan.disks), []string{disks[0].Path, disks[2].Path}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v and %v, want %v", got, err, want)
	}
	v, fives := &configuration{}, []Volume{{Name: "root", Level: "raid5"}}
	if err := m.on(nil).checkDisks(t.Context(), fives, v, del.state); err != nil || len(v.problems) != 1 ||
		!strings.Contains(v.problems[0], "with only 2 block devices") {
		t.Errorf("got %q and %v, want the number of disks without the medium", v.problems, err)
	}
	disks[1].Name = "gone"
	if _, err := m.on(nil).planCreate(t.Context(), volumes, del); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
	if err := m.on(nil).checkDisks(t.Context(), fives, v, del.state); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("number of disks: got %v, want %v", err, fs.ErrNotExist)
	}
}

// Arrays that remain are not created again if they match the configuration.
func TestMissingVolumes(t *testing.T) {
	protected, err := RulesOf(nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	const own, other = "/dev/sda", "/dev/sdb"
	groupOf := func(action action, name, level, disk string) *group {
		return &group{action: action, Array: raid.Array{{
			Superblock: md.Superblock{Name: name, Level: level}, Disk: block.Device{Path: disk},
		}}}
	}
	for name, c := range map[string]struct {
		group   *group
		cleared bool
		names   []string // of the arrays to create
		want    string
	}{
		"kept":                   {groupOf(actionKeep, "root", "raid1", own), false, []string{"data"}, ""},
		"wiped":                  {groupOf(actionWipe, "data", "raid0", own), false, []string{"root"}, ""},
		"EFI system partition":   {groupOf(actionKeep, "esp", "raid1", own), false, []string{"root", "data"}, ""},
		"wiped esp":              {groupOf(actionWipe, "esp", "raid1", own), false, nil, "that should not"},
		"deleted before":         {groupOf(actionDelete, "x", "raid1", own), true, []string{"root", "data"}, ""},
		"on a disk that is kept": {groupOf(actionDelete, "x", "raid1", other), false, []string{"root", "data"}, ""},
		"not deleted":            {groupOf(actionDelete, "data", "raid0", own), false, nil, "that should not"},
		"no name":                {groupOf(actionKeep, "", "raid1", own), false, nil, "does not have a volume name"},
		"other level":            {groupOf(actionKeep, "root", "raid5", own), false, nil, "got raid5, want raid1"},
	} {
		disks := []block.Device{{Path: own}}
		del := deletion{state: &state{rules: protected, disks: disks, groups: []*group{c.group}}}
		if c.cleared {
			del.clear = disks
		}
		volumes, err := missing([]Volume{{Name: "root", Level: "raid1"}, {Name: "data", Level: "raid0"}}, del)
		var names []string
		for _, v := range volumes {
			names = append(names, v.Name)
		}
		if !slices.Equal(names, c.names) || (err == nil) != (c.want == "") ||
			!strings.Contains(errorText(err), c.want) {
			t.Errorf("%s: got %q and %v, want %q and %q", name, names, err, c.names, c.want)
		}
	}
}

// A new array gets the first number that no array has. The number of an array that is stopped is free.
func TestFreeNumber(t *testing.T) {
	arrays := []raid.Status{{Name: "md0"}, {Name: "md1"}, {Name: "md3"}}
	for want, stopped := range map[int][]raid.Status{2: nil, 1: arrays[1:2], 0: arrays} {
		del := deletion{state: &state{running: arrays}, stop: stopped}
		if got := (&creation{}).freeNumber(del); got != want {
			t.Errorf("%d arrays stopped: got %d, want %d", len(stopped), got, want)
		}
	}
}

// Hints that cannot be compared with a disk are an error, and so is a disk whose table cannot be read.
func TestPlanCreateFails(t *testing.T) {
	disk := block.Device{
		Name: "sda", Path: "/dev/missing/sda", Serial: "S3X9", Serials: []string{"S3X9"}, Size: 3 * gib,
	}
	hints, err := hint.Parse(map[string]any{"serial": ">= 100"})
	if err != nil {
		t.Fatal(err)
	}
	if chosen, err := choose(Volume{hints: []hint.Hints{hints}}, []block.Device{disk}, nil); err == nil {
		t.Errorf("got %v and no error, want one of the hint", paths(chosen))
	}
	m := newManager(t)
	raidtest.ListDisks(t, m.o.System, "6291456", "sda", "missing!sda")
	if empty, err := m.on(nil).isEmpty(t.Context(), disk, deletion{state: &state{}}); empty ||
		!errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v and %v, want %v", empty, err, fs.ErrNotExist)
	}
}

// Partitions that the kernel cannot drop, and those that do not appear, are errors.
func TestCreatePartitionsNotShown(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	m, kernel := impatient(onThisMachine(t, disk)), raidtest.NewKernel(t)
	m.o.Kernel = kernel
	holder, err := os.Open(block.PartitionPath(m.o.System, disk.Path, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close() //nolint:errcheck // only read
	plan := creation{
		disks: []block.Device{disk},
		layouts: map[string]partition.Layout{disk.Path: {Scheme: partition.GPT, Partitions: []partition.Planned{{
			Role:      roleRAID,
			Partition: partition.Partition{Number: 1, Type: partition.TypeLinux, Start: 2 * mib, Size: mib},
		}}}},
	}
	err = m.on(nil).createArrays(t.Context(), plan)
	if !errors.Is(err, unix.EBUSY) || !errors.Is(err, erase.ErrBusy) { // of the new table, and of its removal
		t.Errorf("got %v, want two errors for the partition in use", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	plan = creation{volumes: []Volume{{Members: raid.Array{{Disk: disk, Device: block.Device{Number: 9}}}}}}
	if err := m.on(nil).createArrays(cancelled, plan); !errors.Is(err, context.Canceled) || len(kernel.Created) > 0 {
		t.Errorf("got %v and arrays %q, want %v and none", err, kernel.Created, context.Canceled)
	}
}

// A disk with the metadata of a firmware RAID is refused by name before anything is written, unless
// skip_block_devices names it or the configuration does not use it.
func TestRAIDExternalMetadata(t *testing.T) {
	mark := func(d block.Device) {
		f, err := os.OpenFile(d.Path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte("Intel Raid ISM Cfg Sig. 1.1.00"), d.Size-1024)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	const hinted = `"physical_disks": [{"serial": "A"}, {"serial": "B"}]`
	const skip = `"properties": {"skip_block_devices": [{"serial": "C"}]}`
	config := `{"logical_disks": [` + raidtest.LogicalDisk("1", "1", "") + `]}`
	some := `{"logical_disks": [` + raidtest.LogicalDisk("1", "1", hinted) + `]}`
	for name, tt := range map[string]struct {
		fields string
		run    func(*rig, *node.Node) (any, error)
		want   string // in the error; "" for success
	}{
		"create": {`"target_raid_config": ` + config, func(m *rig, n *node.Node) (any, error) {
			return m.createConfiguration(t.Context(), call{Node: n})
		}, "RAID metadata of Intel"},
		"create on others": {`"target_raid_config": ` + some, func(m *rig, n *node.Node) (any, error) {
			return m.createConfiguration(t.Context(), call{Node: n})
		}, ""},
		"delete": {`"properties": {}`, func(m *rig, n *node.Node) (any, error) {
			return m.deleteConfiguration(t.Context(), call{Node: n})
		}, "RAID metadata of Intel"},
		"delete others": {skip, func(m *rig, n *node.Node) (any, error) {
			return m.deleteConfiguration(t.Context(), call{Node: n})
		}, ""},
		"apply": {`"properties": {}`, func(m *rig, n *node.Node) (any, error) {
			return m.applyConfiguration(t.Context(), applied(n, some))
		}, "RAID metadata of Intel"},
	} {
		t.Run(name, func(t *testing.T) {
			disks := []block.Device{
				raidtest.BlankDisk(t, 3*gib), raidtest.BlankDisk(t, 3*gib), raidtest.BlankDisk(t, 3*gib),
			}
			for i, serial := range []string{"A", "B", "C"} {
				disks[i].Serial, disks[i].Serials = serial, []string{serial}
			}
			mark(disks[2])
			m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
			m.o.Kernel = kernel
			_, err := tt.run(m, nodeWith(t, tt.fields))
			if tt.want == "" {
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}
			for _, want := range []string{tt.want, disks[2].Path, "skip_block_devices"} {
				if typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), want) {
					t.Errorf("got %v, want a SoftwareRAIDError with %q", err, want)
				}
			}
			for _, d := range disks[:2] {
				if _, err := partition.ReadAll(t.Context(), d.Path); !errors.Is(err, partition.ErrNoTable) {
					t.Errorf("%s was changed: got %v, want %v", d.Path, err, partition.ErrNoTable)
				}
			}
		})
	}
}
