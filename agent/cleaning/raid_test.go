package cleaning

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/softraid"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// checkUntouched fails the test if a position on a disk of createdDisks does not have the content of the tenant.
func checkUntouched(t *testing.T, disks []block.Device, positions []int64) {
	t.Helper()
	for _, d := range disks {
		for _, at := range positions {
			if !bytes.Contains(imagetest.ReadAt(t, d.Path, at, 4096), []byte("tenant!")) {
				t.Errorf("%s was written to at byte %d", d.Path, at)
			}
		}
	}
}

// createdDisks makes two disks with the arrays root and data of raid_config, with content of a tenant at every position
// that the erasure of metadata must reach. It returns the node, and the positions on the disks.
func createdDisks(t *testing.T, scheme string) (disks []block.Device, fields string, positions []int64) {
	t.Helper()
	disks = []block.Device{raidtest.BlankDisk(t, 3*gib), raidtest.BlankDisk(t, 3*gib+mib)}
	config := `{"logical_disks": [` + raidtest.LogicalDisk("1", "1", `"volume_name": "root"`) + ", " +
		raidtest.LogicalDisk("0", `"MAX"`, "") + `]}`
	fields = `"properties": {"capabilities": "boot_mode:bios,disk_label:` + scheme + `"}, "raid_config": ` + config
	m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
	schemes := map[string]string{"gpt": partition.GPT, "msdos": partition.MBR}
	if _, err := softraid.New(softraid.Options{
		Node: nodeWith(t, fields+`, "target_raid_config": `+config), Disks: m, Kernel: kernel, Log: m.o.Log,
		Limits: m.limiter.Limits, Guard: true, Wait: WaitOf(m.o.Config.Get()), Scheme: schemes[scheme],
	}).Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	kernel.StopAll(t)
	table, err := partition.Read(t.Context(), disks[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	members, err := raid.Members(t.Context(), sysfs.Root{}, disks[0])
	if err != nil || len(members) != 2 {
		t.Fatalf("got members %+v and %v, want two", members, err)
	}
	positions = []int64{0, 64 << 10, table.Partitions[0].Start - 4096} // boot code and the space before the partitions
	for i, p := range table.Partitions {
		for _, at := range []int64{
			0, 16 << 10, 32 << 10, 64 << 10, mib, members[i].DataOffset - 4096, members[i].DataOffset,
			members[i].DataOffset + 64<<10, members[i].DataOffset + members[i].DataSize - 4096,
		} {
			positions = append(positions, p.Start+at)
		}
	}
	for _, d := range disks {
		for _, at := range positions {
			raidtest.Write(t, d.Path, at, bytes.Repeat([]byte("tenant! "), 440/8))
		}
	}
	return disks, fields, positions
}

// Arrays of raid_config survive erase_devices_metadata: their content and everything beside them is erased, superblocks
// and partition tables stay as they were.
func TestEraseMetadataKeepsCreated(t *testing.T) {
	for _, scheme := range []string{"gpt", "msdos"} {
		disks, fields, positions := createdDisks(t, scheme)
		layouts := []string{raidtest.Layout(t, disks[0]), raidtest.Layout(t, disks[1])}
		m := onThisMachine(t, disks...)
		part := func(d block.Device, number int) string { return block.PartitionPath(m.o.System, d.Path, number) }
		var before [][]byte
		for _, d := range disks {
			for number := range 2 {
				before = append(before, imagetest.ReadAt(t, part(d, number+1), 4096, 4096))
			}
		}
		result, err := m.EraseMetadata(t.Context(), nodeWith(t, fields))
		if err != nil {
			t.Errorf("%s: %v", scheme, err)
			continue
		}
		want := map[string]diskReport{}
		for _, d := range disks {
			want[d.Path] = diskReport{
				Erased: map[string]erase.Report{
					part(d, 1): {Technique: `metadata; not erased: superblock of raid1 array "any:root"`},
					part(d, 2): {Technique: `metadata; not erased: superblock of raid0 array "any:md1"`},
				},
				Untouched: map[string]string{d.Path: "partition table of a disk with an array that Ironic created"},
			}
		}
		sameResult(t, result, want)
		for i, d := range disks {
			for _, at := range positions {
				if bytes.Contains(imagetest.ReadAt(t, d.Path, at, 4096), []byte("tenant!")) {
					t.Errorf("%s: disk %d holds data at byte %d", scheme, i+1, at)
				}
			}
			for number := range 2 {
				if !bytes.Equal(imagetest.ReadAt(t, part(d, number+1), 4096, 4096), before[2*i+number]) {
					t.Errorf("%s: the superblock on partition %d of disk %d has changed", scheme, number+1, i+1)
				}
			}
			if got := raidtest.Layout(t, d); got != layouts[i] {
				t.Errorf("%s: disk %d: got table %s, want %s", scheme, i+1, got, layouts[i])
			}
		}
	}
}

// An array that may not be the one of raid_config, or is not complete, fails the step, and its disks keep their
// content.
func TestEraseMetadataRejectsArrays(t *testing.T) {
	change := func(at int, value byte) func(t *testing.T, m *Steps, disks []block.Device) {
		return func(t *testing.T, m *Steps, disks []block.Device) {
			editSuperblock(t, block.PartitionPath(m.o.System, disks[1].Path, 1), func(b []byte) { b[at] = value })
		}
	}
	for name, tt := range map[string]struct {
		want    string // in the log
		prepare func(t *testing.T, m *Steps, disks []block.Device)
	}{
		"member missing": {"got 1 members, want 2", func(t *testing.T, m *Steps, disks []block.Device) {
			raidtest.Write(t, block.PartitionPath(m.o.System, disks[1].Path, 1), 4096, make([]byte, 4096))
		}},
		"member skipped": {"got 1 members, want 2", func(_ *testing.T, m *Steps, disks []block.Device) {
			m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) { return disks[:1], nil })
		}},
		"read-only disk": {"device is read-only", func(_ *testing.T, m *Steps, disks []block.Device) {
			m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
				second := disks[1]
				second.ReadOnly = true
				return []block.Device{disks[0], second}, nil
			})
		}},
		"planted array": {`got 2 arrays of name \"root\"`, func(t *testing.T, m *Steps, disks []block.Device) {
			planted := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1})
			m.o.Disks = disktest.List(append(disks, planted))
		}},
		"other UUID":  {`got 2 arrays of name \"root\"`, change(16, 0xff)},
		"same role":   {"two members have role 0", change(256+2, 0)},
		"old member":  {"events of members differ by 9", change(200, 9)},
		"bad blocks":  {"features 0x8 are not supported", change(8, 8)},
		"other level": {"members have different levels", change(72, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			disks, fields, positions := createdDisks(t, "gpt")
			m := onThisMachine(t, disks...)
			var log bytes.Buffer
			m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
			tt.prepare(t, m, disks)
			_, err := m.EraseMetadata(t.Context(), nodeWith(t, fields))
			if typeOf(err) != "BlockDeviceEraseError" ||
				!strings.Contains(err.Error(), `raid1 array "any:root", which Ironic created`) {
				t.Errorf("got %v, want a BlockDeviceEraseError that names the array", err)
			}
			const phrase = `msg="RAID array cannot be kept" volume_name=root `
			_, reason, _ := strings.Cut(log.String(), phrase)
			reason, _, _ = strings.Cut(reason, "\n")
			if !strings.Contains(reason, tt.want) || strings.Count(log.String(), phrase) != 1 {
				t.Errorf("got log %s, want the reason %q once", &log, tt.want)
			}
			checkUntouched(t, disks[:1], positions)
		})
	}
}

// If no array of raid_config can be kept, the log has the reason once.
func TestPrepareArraysLog(t *testing.T) {
	missing := block.Device{Name: "missing", Path: "/dev/missing", Type: "disk"}
	config := `"raid_config": {"logical_disks": [` + raidtest.LogicalDisk("1", `"MAX"`, `"volume_name": "data"`) + `]}`
	for name, tt := range map[string]struct {
		fields string
		disks  []block.Device
		want   string // "" for none
	}{
		"no arrays":     {`"properties": {}`, nil, ""},
		"array missing": {config, nil, `volume_name=data err="got 0 arrays of name \"data\", want 1"`},
		"invalid": {
			`"raid_config": {"logical_disks": [` + raidtest.LogicalDisk("9", "1", "") + `]}`, nil, "RAID-1",
		},
		"unreadable":      {config, []block.Device{missing}, "/dev/missing"},
		"protected":       {config + `, "properties": {"skip_block_devices": [{"volume_name": "data"}]}`, nil, ""},
		"other protected": {config + `, "properties": {"skip_block_devices": [{"volume_name": "x"}]}`, nil, "another"},
	} {
		var log bytes.Buffer
		m := onThisMachine(t)
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		n := nodeWith(t, tt.fields)
		arrays, err := softraid.RulesOf(n)
		if err != nil {
			t.Fatal(err)
		}
		data := raid.Member{Superblock: md.Superblock{Name: "data", Level: "raid1"}}
		r := &diskRun{
			m: m, disks: tt.disks, arrays: namedArrays{Rules: arrays, members: []raid.Member{data}},
		}
		r.prepareArrays(t.Context(), n)
		lines := strings.Count(log.String(), "\n")
		if tt.want == "" && lines > 0 || tt.want != "" && (lines != 1 || !strings.Contains(log.String(), tt.want)) {
			t.Errorf("%s: got log %q, want one line with %q", name, &log, tt.want)
		}
	}
}

// The steps wait for holders of a disk as configured by disk_partitioner.
func TestRAIDWait(t *testing.T) {
	m := onThisMachine(t)
	m.o.Config.Update(func(c *config.Config) {
		c.DiskPartitioner.CheckDeviceInterval, c.DiskPartitioner.CheckDeviceMaxRetries = 7*time.Second, 11
	})
	want := erase.Wait{Interval: 7 * time.Second, Retries: 11}
	if got := WaitOf(m.o.Config.Get()); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
