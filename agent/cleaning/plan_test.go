package cleaning

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"ironroot/agent/node"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/partition"
)

// A conflict on the last disk fails the step before the first disk is written. The evidence names the conflict.
func TestConflictBeforeFirstWrite(t *testing.T) {
	const vmfs = "AA31E02A-400F-11DB-9590-000C2911D1B8"
	protected := `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`
	real := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1})
	for name, c := range map[string]struct {
		last   block.Device
		others []block.Device
		fields string
		kind   string
		want   string
	}{
		"shared file system": {
			raidtest.PartitionedDisk(t, vmfs), nil, `"properties": {}`, "ProtectedDeviceError", "VMFS",
		},
		"ambiguous name": {
			raidtest.MemberDisk(t, testenv.RAID{Name: "tenant:root", Level: 1, Member: 1, UUID: "other-uuid------"}),
			[]block.Device{real},
			protected, "BlockDeviceEraseError", "different UUIDs",
		},
		"spare of a protected array": {
			raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1, Member: 2, Spare: true}),
			[]block.Device{real},
			protected,
			"BlockDeviceEraseError", "has no role in",
		},
		"ambiguous ESP": {
			raidtest.PartsDisk(t, 8*mib-8192,
				&testenv.RAID{Name: "root", Level: 1}, &testenv.RAID{Name: "esp", Level: 1},
				&testenv.RAID{Name: "esp", Level: 1, Member: 1, UUID: "other-uuid------"}),
			nil, protected, "BlockDeviceEraseError", `"esp"`,
		},
	} {
		first := raidtest.PartitionedDisk(t, partition.TypeLinux)
		disks := append([]block.Device{first}, c.others...)
		disks = append(disks, c.last)
		var before [][]byte
		for _, d := range disks {
			before = append(before, content(t, d))
		}
		m := onThisMachine(t, disks...)
		for step, run := range erasing(m) {
			j, _ := withJournal(m)
			result, err := run(t.Context(), nodeWith(t, c.fields))
			if typeOf(err) != c.kind || result != nil || !strings.Contains(errorText(err), c.want) ||
				!strings.Contains(errorText(err), c.last.Path) {
				t.Errorf("%s, %s: got %v and %v, want %s with %q", name, step, result, err, c.kind, c.want)
			}
			for i, d := range disks {
				if !bytes.Equal(content(t, d), before[i]) {
					t.Errorf("%s, %s: %s was written to", name, step, d.Path)
				}
			}
			files := archived(t, j)
			if len(files) != len(disks) {
				t.Errorf("%s, %s: got %d files of evidence, want %d", name, step, len(files), len(disks))
			}
			for _, text := range files {
				r := parsed(t, text).Record
				if r.Outcome != evidence.NotErased ||
					r.Disk.Path == first.Path && !strings.Contains(r.Reason, c.want) {
					t.Errorf("%s, %s: got evidence %s: %s, want not erased: %s",
						name, step, r.Outcome, r.Reason, c.want)
				}
			}
		}
	}
}

// A protected name that several arrays have is a conflict also if other disks cannot be read, and if the disks with the
// name are left as they are. It is none if skip_block_devices names all of these disks.
func TestConflictOfOtherDisks(t *testing.T) {
	broken := block.Device{Name: "broken", Path: "/dev/broken", Type: "disk", Size: diskSize}
	const name = `{"volume_name": "root"}`
	for text, c := range map[string]struct {
		skip     string
		change   func(real, other *block.Device)
		broken   bool
		conflict bool
	}{
		"another disk is unreadable": {name, func(_, _ *block.Device) {}, true, true},
		"skipped and read-only": {
			name + `, {"serial": "R1"}`,
			func(_, other *block.Device) { testenv.Run(t, "blockdev", "--setro", other.Path) }, false, true,
		},
		"both skipped": {name + `, {"serial": "R1"}, {"serial": "R2"}`, func(_, _ *block.Device) {}, false, false},
	} {
		plain := raidtest.PartitionedDisk(t, partition.TypeLinux)
		real := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1})
		other := raidtest.MemberDisk(t, testenv.RAID{
			Name: "tenant:root", Level: 1, Member: 1, UUID: "other-uuid------",
		})
		real.Serials, other.Serials = []string{"R1"}, []string{"R2"}
		c.change(&real, &other)
		disks := []block.Device{plain, real, other}
		if c.broken {
			disks = append(disks, broken)
		}
		before := content(t, plain)
		m := onThisMachine(t, disks...)
		n := nodeWith(t, `"properties": {"skip_block_devices": [`+c.skip+`]}`)
		steps := erasing(m)
		steps["burnin_disk"] = func(ctx context.Context, n *node.Node) (any, error) { return burninDisk(ctx, t, m, n) }
		for step, run := range steps {
			_, err := run(t.Context(), n)
			if (err != nil) != c.conflict || err != nil && !strings.Contains(err.Error(), "does not name one array") {
				t.Errorf("%s, %s: got %v, want a conflict: %v", text, step, err, c.conflict)
			}
			if c.conflict && !bytes.Equal(content(t, plain), before) {
				t.Errorf("%s, %s: the other disk was written to", text, step)
			}
		}
		list, err := m.PreviewErase(t.Context(), n)
		if err != nil && !c.broken {
			t.Fatal(err)
		}
		if got := list[0]; (got.Report.Technique == "") != c.conflict {
			t.Errorf("%s: got preview %+v of the other disk, want it erased: %v", text, got, !c.conflict)
		}
	}
}

// A decision has the number of the disk in the kernel, which differs if another disk gets the name.
func TestDecisionSequence(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	want, err := os.ReadFile("/sys/block/" + disk.Name + "/diskseq")
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // before Linux 5.15
		t.Fatal(err)
	}
	m := onThisMachine(t, disk)
	p, err := m.newDiskRun(nodeWith(t, `"properties": {}`), "", fullErase).decide(t.Context(), disk, nil)
	if err != nil || p.sequence != strings.TrimSpace(string(want)) {
		t.Errorf("got number %q and %v, want %s", p.sequence, err, want)
	}
}

// A decision that no longer holds when it is the disk's turn is an error of that disk, before a write. The other disk
// is erased.
func TestDecisionChanges(t *testing.T) {
	other, disk := raidtest.PartitionedDisk(t, partition.TypeLinux), raidtest.PartitionedDisk(t, partition.TypeLinux)
	before := content(t, disk)
	m := onThisMachine(t, other, disk)
	calls := 0
	fake(m).decide = func(ctx context.Context, d block.Device, o erase.Options) (erase.Report, error) {
		report, err := fake(m).thisMachine.Decide(ctx, d, o)
		if d.Path == disk.Path {
			if calls++; calls == 1 { // the drive does not offer its own erase any more
				report.Technique = erase.ATAEnhanced
			}
		}
		return report, err
	}
	n := nodeWith(t, `"driver_internal_info": {"agent_erase_devices_iterations": 0}`)
	_, err := m.EraseDevices(t.Context(), n)
	want := "erased: " + other.Path + " (overwrite); not erased: " + disk.Path +
		": changed since the step was planned: "
	if typeOf(err) != "BlockDeviceEraseError" || !errors.Is(err, errChanged) ||
		!strings.Contains(errorText(err), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if !bytes.Equal(content(t, disk), before) {
		t.Error("the disk was written to")
	}
	if len(bytes.Trim(content(t, other), "\x00")) > 0 {
		t.Error("the other disk holds data")
	}
}

// A decision holds only for the same disk and the same partitions, and not for a weaker technique.
func TestDecisionCheck(t *testing.T) {
	disk, part := block.Device{Path: "/dev/sda", Size: 100}, block.Device{Path: "/dev/sda2", Size: 10}
	planned := Decision{
		Disk: disk, sequence: "7", unit: []block.Device{disk}, Report: erase.Report{Technique: erase.Overwrite},
		division: division{targets: []block.Device{part}, untouched: map[string]string{"/dev/sda1": "member"}},
	}
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		change  func(planned, now *Decision)
		changed bool
	}{
		"same":         {func(*Decision, *Decision) {}, false},
		"another disk": {func(_, now *Decision) { now.sequence = "8" }, true},
		"read-only":    {func(_, now *Decision) { now.Untouched = "read-only" }, true},
		"other size":   {func(_, now *Decision) { now.targets = []block.Device{{Path: part.Path, Size: 11}} }, true},
		"partition":    {func(_, now *Decision) { now.targets = nil }, true},
		"member":       {func(_, now *Decision) { now.untouched = nil }, true},
		"overwrite":    {func(planned, _ *Decision) { planned.Report.Technique = erase.ATAEnhanced }, true},
		"own erase":    {func(_, now *Decision) { now.Report.Technique = erase.ATAEnhanced }, false},
		"accepted": {func(planned, _ *Decision) {
			planned.refused, planned.Report = broken, erase.Report{}
		}, false},
		"refused": {func(planned, now *Decision) {
			planned.Report.Technique = erase.ATAEnhanced
			now.refused, now.Report = broken, erase.Report{}
		}, false}, // the erase reports it
		"sibling": {func(planned, _ *Decision) {
			planned.unit = []block.Device{disk, part}
			planned.Report.Technique = erase.NVMeUser
		}, false},
	} {
		before, now := planned, planned
		c.change(&before, &now)
		if err := before.check(now); errors.Is(err, errChanged) != c.changed || (err == nil) == c.changed {
			t.Errorf("%s: got %v, want a change: %v", name, err, c.changed)
		}
	}
}

// A preview has the decisions of the step about members of arrays that the node names, and stops no array.
func TestPreviewArrays(t *testing.T) {
	const arrayData = 4 * mib // of both members
	whole := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1, Member: 1, Data: arrayData})
	parts := raidtest.PartsDisk(t, 8*mib-8192, &testenv.RAID{Name: "root", Level: 1, Data: arrayData}, nil)
	m := onThisMachine(t, whole, parts)
	list, err := m.PreviewErase(t.Context(),
		nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`))
	if err != nil || len(list) != 2 {
		t.Fatalf("got %+v and %v, want two decisions", list, err)
	}
	const member = `: member of raid1 array "root", protected by skip_block_devices`
	for i, want := range []string{
		whole.Path + member,
		parts.Path + ": partition table of a disk with a protected array, and the space outside of its partitions; " +
			block.PartitionPath(m.o.System, parts.Path, 1) + member,
	} {
		if got := list[i]; got.Untouched != want || got.Err != nil || got.Report.Technique != "" {
			t.Errorf("got %+v, want untouched: %s", got, want)
		}
	}
	disks, fields, _ := createdDisks(t, "gpt")
	m = onThisMachine(t, disks...)
	if list, err = m.PreviewErase(t.Context(), nodeWith(t, fields)); err != nil {
		t.Fatal(err)
	}
	const kept = ": partition table of a disk with an array that Ironic created"
	for i, d := range disks {
		if got := list[i]; got.Untouched != d.Path+kept || got.Err != nil {
			t.Errorf("got %+v, want untouched: %s%s", got, d.Path, kept)
		}
	}
}
