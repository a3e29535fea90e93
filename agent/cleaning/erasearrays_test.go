package cleaning

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/journal"
	"ironroot/agent/softraid"
	"ironroot/agent/status"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// fakeArrays are arrays whose members are not read back.
type fakeArrays struct {
	raidtest.StubKernel

	checked  []string // members whose data was read back
	zerosErr error
}

// attach makes a machine use the arrays on its disks.
func (k *fakeArrays) attach(t *testing.T, m *Steps, disks []block.Device) {
	t.Helper()
	k.Attach(t, disks)
	m.o.Kernel = k
	fake(m).checkZeros = func(
		_ context.Context, d block.Device, ranges [][2]int64, _ erase.Options,
	) error {
		k.checked = append(k.checked, fmt.Sprint(d.Path, ranges))
		return k.zerosErr
	}
}

// allZeros reports whether a range of a device is zero.
func allZeros(t *testing.T, path string, start, end int64) bool {
	t.Helper()
	for at := start; at < end; at += mib {
		if len(bytes.Trim(imagetest.ReadAt(t, path, at, int(min(mib, end-at))), "\x00")) > 0 {
			return false
		}
	}
	return true
}

// fillUnused fills the gaps between the partitions of a disk, its boot code, and the unused ranges of its members with
// bytes of a tenant. It returns all these ranges.
func fillUnused(t *testing.T, d block.Device) (ranges [][2]int64) {
	t.Helper()
	gaps, err := partition.Gaps(t.Context(), d.Path)
	if err != nil {
		t.Fatal(err)
	}
	ranges = append(ranges, gaps...)
	ranges = append(ranges, [2]int64{0, 440})
	parts, err := block.Partitions(t.Context(), sysfs.Root{}, d.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		found, err := raid.Read(t.Context(), part.Path)
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: got %+v and %v, want a superblock", part.Path, found, err)
		}
		s := found[0]
		end := s.DataOffset + s.DataSize
		if s.Level == "raid0" {
			end -= s.DataSize % s.Chunk
		}
		kept := int64(8192) // where a bitmap begins
		if s.Features&md.FeatureBitmap != 0 {
			kept += 4096
		}
		for _, r := range [][2]int64{{0, 4096}, {4096 + 512, 8192}, {kept, s.DataOffset}, {end, part.Size}} {
			if r[0] < r[1] {
				ranges = append(ranges, [2]int64{part.Start + r[0], part.Start + r[1]})
			}
		}
	}
	for _, r := range ranges {
		testenv.Fill(t, d.Path, r[0], r[1]-r[0], "tenant! ")
	}
	return ranges
}

// Arrays of raid_config survive erase_devices: their devices are overwritten, and every byte of their members that is
// neither superblock, bitmap nor data.
func TestEraseKeepsArrays(t *testing.T) {
	for _, scheme := range []string{"gpt", "msdos"} {
		disks, fields, _ := createdDisks(t, scheme)
		plain := raidtest.PartitionedDisk(t, partition.TypeLinux)
		m, kernel := onThisMachine(t, append(slices.Clone(disks), plain)...), &fakeArrays{}
		kernel.attach(t, m, disks)
		layouts := []string{raidtest.Layout(t, disks[0]), raidtest.Layout(t, disks[1])}
		part := func(d block.Device, number int) string { return block.PartitionPath(m.o.System, d.Path, number) }
		var ranges [][][2]int64
		var before [][]byte
		for _, d := range disks {
			ranges = append(ranges, fillUnused(t, d))
			for number := range 2 {
				before = append(before, imagetest.ReadAt(t, part(d, number+1), 4096, 512))
			}
		}
		j, _ := withJournal(m)
		result, err := m.EraseDevices(t.Context(), nodeWith(t, fields))
		if err != nil {
			t.Errorf("%s: %v", scheme, err)
			continue
		}
		members := func(number int) string {
			return fmt.Sprintf("%s (serial %s), %s (serial %s)", part(disks[0], number), disks[0].Serial,
				part(disks[1], number), disks[1].Serial)
		}
		want := map[string]diskReport{
			plain.Path: {Erased: map[string]erase.Report{plain.Path: {Technique: "overwrite"}}},
		}
		for uuid, d := range kernel.Devices {
			text := `overwrite; content of raid1 array "any:root" on ` + members(1)
			if kernel.uuidOf(t, disks[0], 2) == uuid {
				text = `overwrite; content of raid0 array "any:md1" on ` + members(2)
			}
			want[d.Path] = diskReport{Erased: map[string]erase.Report{d.Path: {Technique: erase.Technique(text)}}}
		}
		for _, d := range disks {
			want[d.Path] = diskReport{
				Erased: map[string]erase.Report{
					d.Path: {Technique: "overwrite; outside of the partitions"},
					part(d, 1): {Technique: `overwrite; not erased: superblock of raid1 array "any:root"; ` +
						`its data was erased through the array and read back on this member`},
					part(d, 2): {Technique: `overwrite; not erased: superblock of raid0 array "any:md1"; ` +
						`its data was erased through the array and read back on this member`},
				},
				Untouched: map[string]string{d.Path: "partition table of a disk with an array that Ironic created"},
			}
		}
		sameResult(t, result, want)
		for path, report := range reports(t, result) {
			for device, text := range report.overwritten() {
				if !strings.HasPrefix(text, "passes: ") || report.Erased[device].Technique == "" {
					t.Errorf("%s: got %q for %s", path, text, device)
				}
			}
			if len(report.Untouched) > 0 && len(report.overwritten()) != 3 {
				t.Errorf("%s: got %v, want the passes of two members and the space around them", path,
					report.overwritten())
			}
		}
		if diff := cmp.Diff([]string{
			"assemble md0 root of 2", "check root raid1 of 2", "stop root",
			"assemble md1 md1 of 2", "check md1 raid0 of 2", "stop md1",
		}, kernel.Calls); diff != "" {
			t.Errorf("%s: calls differ (-want +got):\n%s", scheme, diff)
		}
		for _, d := range kernel.Devices {
			if !allZeros(t, d.Path, 0, d.Size) {
				t.Errorf("%s: the array holds data", scheme)
			}
		}
		if len(kernel.checked) != 4 || !slices.Contains(kernel.checked, dataOf(t, part(disks[1], 2))) {
			t.Errorf("%s: data read back on %q, want each member, as %s", scheme, kernel.checked,
				dataOf(t, part(disks[1], 2)))
		}
		for i, d := range disks {
			for _, r := range ranges[i] {
				if !allZeros(t, d.Path, r[0], r[1]) {
					t.Errorf("%s: disk %d holds data between byte %d and %d", scheme, i+1, r[0], r[1])
				}
			}
			for number := range 2 {
				if !bytes.Equal(imagetest.ReadAt(t, part(d, number+1), 4096, 512), before[2*i+number]) {
					t.Errorf("%s: the superblock on partition %d of disk %d has changed", scheme, number+1, i+1)
				}
			}
			if got := raidtest.Layout(t, d); got != layouts[i] {
				t.Errorf("%s: disk %d: got table %s, want %s", scheme, i+1, got, layouts[i])
			}
		}
		categories := map[string]evidence.Category{}
		for _, text := range archived(t, j) {
			e := parsed(t, text)
			categories[e.Record.Disk.Path] = e.Record.Sanitization.Category
		}
		for _, d := range disks {
			if categories[d.Path] != evidence.None {
				t.Errorf("%s: got category %q for a disk that keeps members, want none", scheme, categories[d.Path])
			}
		}
	}
}

// dataOf describes the data on a member of an array.
func dataOf(t *testing.T, path string) string {
	t.Helper()
	found, err := raid.Read(t.Context(), path)
	if err != nil || len(found) != 1 {
		t.Fatalf("got %+v and %v, want a superblock", found, err)
	}
	s := found[0]
	return fmt.Sprint(path, [][2]int64{{s.DataOffset, s.DataOffset + s.DataSize/s.Chunk*s.Chunk}})
}

// A member that holds data after its array was erased fails its disk and its array, also in the plan. Without a
// last pass of zeros, it cannot be read back.
func TestEraseMemberHoldsData(t *testing.T) {
	for zeroize, want := range map[bool]string{true: "data", false: ""} {
		disks, fields, _ := createdDisks(t, "gpt")
		m, kernel := onThisMachine(t, disks...), &fakeArrays{zerosErr: fmt.Errorf("%w: data", erase.ErrNotErased)}
		kernel.attach(t, m, disks)
		j, _ := withJournal(m)
		board := onBoard(m, fullErase)
		result, err := m.EraseDevices(t.Context(), nodeWith(t, fields+
			fmt.Sprintf(`, "driver_internal_info": {"agent_erase_devices_zeroize": %v}`, zeroize)))
		if err != nil {
			kernel.notErased(t, j, err, kernel.uuidOf(t, disks[0], 1))
			want := map[status.Outcome]int{status.Failed: 4} // both disks and both arrays
			if diff := cmp.Diff(want, board.State().Job.Planned.Finished); diff != "" {
				t.Errorf("outcomes in the plan (-want +got):\n%s", diff)
			}
		}
		if !strings.Contains(errorText(err), want) || (want == "") != (err == nil) ||
			err != nil && !errors.Is(err, erase.ErrNotErased) {
			t.Errorf("zeroize %v: got %v, want %q", zeroize, err, want)
		}
		if err == nil {
			part := block.PartitionPath(m.o.System, disks[0].Path, 1)
			if got := reports(t, result)[disks[0].Path].Erased[part].String(); !strings.HasSuffix(got, "the array") {
				t.Errorf("got %q, want no member read back", got)
			}
		}
	}
}

// notErased checks that neither the error of a step nor the evidence says that the content of an array was erased.
func (k *fakeArrays) notErased(t *testing.T, j *journal.Journal, err error, uuid string) {
	t.Helper()
	path := k.Devices[uuid].Path
	if strings.Contains(errorText(err), path+" (overwrite") {
		t.Errorf("got %v, want %s not to be erased", err, path)
	}
	for _, text := range archived(t, j) {
		if r := parsed(t, text).Record; r.Disk.Path == path {
			if r.Outcome != evidence.Failed || r.Sanitization.Category != evidence.None {
				t.Errorf("%s: got %s, category %q, want %s and none", path, r.Outcome, r.Sanitization.Category,
					evidence.Failed)
			}
			return
		}
	}
	t.Errorf("%s: got no evidence", path)
}

// uuidOf returns the UUID of the array on a partition.
func (k *fakeArrays) uuidOf(t *testing.T, d block.Device, number int) string {
	t.Helper()
	found, err := raid.Read(t.Context(), block.PartitionPath(sysfs.Root{}, d.Path, number))
	if err != nil || len(found) != 1 {
		t.Fatalf("got %+v and %v, want a superblock", found, err)
	}
	return found[0].UUID
}

// An array that cannot be erased fails its disks, which are not written to. The other disks are erased.
func TestEraseArrayFails(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		prepare func(k *fakeArrays, m *Steps)
		calls   int
		stopped bool
	}{
		"assembly": {func(k *fakeArrays, _ *Steps) { k.AssembleErr = broken }, 0, false},
		"member":   {func(k *fakeArrays, _ *Steps) { k.WrittenErr = broken }, 6, true},
		"stop":     {func(k *fakeArrays, _ *Steps) { k.StopErr = broken }, 6, true},
		"write": {func(_ *fakeArrays, m *Steps) {
			full := fake(m).thisMachine.Erase
			fake(m).erase = func(
				ctx context.Context, d block.Device, o erase.Options,
			) error {
				if d.Size == 24*mib && d.Type == "loop" {
					return broken
				}
				return full(ctx, d, o)
			}
		}, 4, true},
		"list": {func(k *fakeArrays, _ *Steps) { k.ListErr = broken }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			disks, fields, positions := createdDisks(t, "gpt")
			plain := raidtest.PartitionedDisk(t, partition.TypeLinux)
			m, kernel := onThisMachine(t, append(slices.Clone(disks), plain)...), &fakeArrays{}
			kernel.attach(t, m, disks)
			tt.prepare(kernel, m)
			_, err := m.EraseDevices(t.Context(), nodeWith(t, fields))
			for _, want := range []string{
				plain.Path + " (overwrite)", disks[0].Path, disks[1].Path, broken.Error(),
				`raid1 array "any:root", which Ironic created`, `raid0 array "any:md1", which Ironic created`,
			} {
				if typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want a BlockDeviceEraseError with %q", err, want)
				}
			}
			if len(kernel.Calls) != tt.calls || slices.Contains(kernel.Calls, "stop root") != tt.stopped {
				t.Errorf("got calls %q, want %d, stop %v", kernel.Calls, tt.calls, tt.stopped)
			}
			checkUntouched(t, disks, positions)
		})
	}
}

// An array whose members keep the kernel busy when it is stopped does not hold up the step forever.
func TestStopStuck(t *testing.T) {
	m := onThisMachine(t)
	fake(m).limits = func(block.Device) timelimit.Limits {
		return timelimit.Limits{NoProgress: time.Millisecond, Grace: time.Millisecond}
	}
	m.o.Kernel = &raidtest.FakeKernel{OnStop: func(string) error { <-t.Context().Done(); return nil }}
	err := m.raid(nil).Stop(t.Context(), &softraid.Volume{Members: make(raid.Array, 1)}, "/dev/md0")
	if !errors.Is(err, timelimit.ErrStuck) {
		t.Errorf("got %v, want %v", err, timelimit.ErrStuck)
	}
}

// countEvents adds two to the events in the superblock of a member: more than a power failure can leave.
func countEvents(t *testing.T, path string) error {
	t.Helper()
	b := imagetest.ReadAt(t, path, 4096, 512)
	b[200] += 2
	binary.LittleEndian.PutUint32(b[216:], binary.LittleEndian.Uint32(b[216:])+2)
	return raidtest.WriteAt(path, 4096, b)
}

// After its content was erased, an array must be complete as before. Otherwise its disks fail, and are not written to.
func TestEraseArrayLosesMember(t *testing.T) {
	disks, fields, positions := createdDisks(t, "gpt")
	m, kernel := onThisMachine(t, disks...), &fakeArrays{}
	kernel.attach(t, m, disks)
	part := block.PartitionPath(m.o.System, disks[1].Path, 1)
	fake(m).erase = func(context.Context, block.Device, erase.Options) error {
		return countEvents(t, part)
	}
	j, _ := withJournal(m)
	_, err := m.EraseDevices(t.Context(), nodeWith(t, fields))
	kernel.notErased(t, j, err, kernel.uuidOf(t, disks[0], 1))
	if typeOf(err) != "BlockDeviceEraseError" || !errors.Is(err, raid.ErrIncomplete) ||
		!strings.Contains(err.Error(), "events, want") {
		t.Errorf("got %v, want a BlockDeviceEraseError with the events", err)
	}
	checkUntouched(t, disks, positions)
}

// An array with a shared file system is not erased, unless the guard is off.
func TestEraseArrayGuard(t *testing.T) {
	for wipe, want := range map[string]string{"false": erase.ErrProtected.Error(), "true": ""} {
		disks, fields, positions := createdDisks(t, "gpt")
		m, kernel := onThisMachine(t, disks...), &fakeArrays{}
		kernel.attach(t, m, disks)
		array := kernel.Devices[kernel.uuidOf(t, disks[0], 1)]
		vmfs := raidtest.PartitionedDisk(t, "AA31E02A-400F-11DB-9590-000C2911D1B8")
		raidtest.Write(t, array.Path, 0, content(t, vmfs)[:mib])
		_, err := m.EraseDevices(t.Context(), nodeWith(t, fields+
			`, "driver_info": {"wipe_special_filesystems": `+wipe+`}`))
		if !strings.Contains(errorText(err), want) || (err == nil) != (want == "") {
			t.Errorf("%s: got %v, want %q", wipe, err, want)
		}
		if want == "" {
			continue
		}
		if kept := content(t, array); !bytes.Contains(kept[8*mib:], []byte("tenant!")) {
			t.Error("the array was written to")
		}
		if !slices.Contains(kernel.Calls, "stop root") {
			t.Errorf("got calls %q, want the array stopped", kernel.Calls)
		}
		checkUntouched(t, disks[:1], positions)
	}
}

// An array is not kept if another partition overlaps a member, or the table would not survive. Nothing is written.
func TestEraseArrayTable(t *testing.T) {
	for scheme, tt := range map[string]struct {
		prepare func(t *testing.T, disk string)
		want    string
	}{
		"msdos": {func(t *testing.T, disk string) {
			entry := imagetest.ReadAt(t, disk, 446, 16)
			entry[4] = 0x83
			raidtest.Write(t, disk, 446+32, entry) // the same sectors as the first partition
		}, "overlap"},
		"gpt": {func(t *testing.T, disk string) {
			testenv.Run(t, "sgdisk", "--resize-table=256", disk)
			if err := partition.Sync(t.Context(), sysfs.Root{}, disk); err != nil {
				t.Fatal(err)
			}
		}, "unusual place"},
	} {
		disks, fields, _ := createdDisks(t, scheme)
		m, kernel := onThisMachine(t, disks...), &fakeArrays{}
		kernel.attach(t, m, disks)
		tt.prepare(t, disks[1].Path)
		before := imagetest.ReadAt(t, disks[1].Path, 0, 64*mib)
		_, err := m.EraseDevices(t.Context(), nodeWith(t, fields))
		if !strings.Contains(errorText(err), tt.want) {
			t.Errorf("%s: got %v, want %q", scheme, err, tt.want)
		}
		if !bytes.Equal(imagetest.ReadAt(t, disks[1].Path, 0, 64*mib), before) ||
			slices.Contains(kernel.Calls, "stop root") {
			t.Errorf("%s: disk or array was written to", scheme)
		}
	}
}

// Arrays that run are stopped for a step that erases, and started again.
func TestEraseRunningArrays(t *testing.T) {
	for _, step := range []string{"erase_devices", "erase_devices_metadata", "erase_devices_express"} {
		disks, fields, positions := createdDisks(t, "gpt")
		m, kernel := onThisMachine(t, disks...), &fakeArrays{}
		kernel.attach(t, m, disks)
		uuid := kernel.uuidOf(t, disks[0], 1)
		running := kernel.Devices[uuid]
		running.Type = "raid1"
		m.o.Disks = disktest.List(append(slices.Clone(disks), running))
		kernel.Running = []raid.Status{{Name: "md0", Path: running.Path, Devices: 2, Slots: []raid.Slot{
			{Path: block.PartitionPath(m.o.System, disks[0].Path, 1)},
			{Path: block.PartitionPath(m.o.System, disks[1].Path, 1)},
		}}}
		if _, err := erasing(m)[step](t.Context(), nodeWith(t, fields)); err != nil {
			t.Errorf("%s: %v", step, err)
		}
		last := len(kernel.Calls) - 2
		if last < 1 || kernel.Calls[0] != "stop root" || !strings.HasPrefix(kernel.Calls[last], "assemble md") ||
			kernel.Calls[last+1] != "resync root" {
			t.Errorf("%s: got calls %q, want root stopped first, and started last", step, kernel.Calls)
		}
		for _, at := range positions[:3] {
			if bytes.Contains(imagetest.ReadAt(t, disks[0].Path, at, 4096), []byte("tenant!")) {
				t.Errorf("%s: data are left at byte %d", step, at)
			}
		}
	}
}

// The superblocks of an array that runs can differ by events. Those that are there after it was stopped count.
func TestEraseRunningEvents(t *testing.T) {
	for stopped, want := range map[bool]string{true: "", false: "events, want"} {
		disks, fields, _ := createdDisks(t, "gpt")
		m, kernel := onThisMachine(t, disks...), &fakeArrays{}
		kernel.attach(t, m, disks)
		array := raid.Status{Name: "md0", Path: "/dev/md0", Devices: 2}
		for _, d := range disks {
			array.Slots = append(array.Slots, raid.Slot{Path: block.PartitionPath(m.o.System, d.Path, 1)})
		}
		kernel.Running = []raid.Status{array}
		if err := countEvents(t, array.Slots[0].Path); err != nil {
			t.Fatal(err)
		}
		kernel.OnStop = func(path string) error {
			if path == array.Path && stopped {
				return countEvents(t, array.Slots[1].Path)
			}
			return nil
		}
		_, err := m.EraseDevices(t.Context(), nodeWith(t, fields))
		if (err == nil) != stopped || !strings.Contains(errorText(err), want) {
			t.Errorf("%v: got %v, want %q", stopped, err, want)
		}
	}
}

// An array that runs with other members, or is in use, is not stopped or kept.
func TestEraseRunningOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		members int // of the array that runs
		more    bool
		lacking int
		busy    error
		want    string
	}{
		"one member": {1, false, 0, nil, "runs with 1 of 2 members"},
		"more":       {2, true, 0, nil, "1 other devices, and 0 missing members"},
		"degraded":   {2, false, 1, nil, "0 other devices, and 1 missing members"},
		"in use":     {2, false, 0, errors.New("device or resource busy"), "device or resource busy"},
	} {
		disks, fields, positions := createdDisks(t, "gpt")
		m, kernel := onThisMachine(t, disks...), &fakeArrays{StubKernel: raidtest.StubKernel{StopErr: tt.busy}}
		kernel.attach(t, m, disks)
		array := raid.Status{Name: "md0", Path: "/dev/md0", Degraded: tt.lacking}
		for _, d := range disks[:tt.members] {
			array.Slots = append(array.Slots, raid.Slot{Path: block.PartitionPath(m.o.System, d.Path, 1)})
		}
		if tt.more {
			array.Slots = append(array.Slots, raid.Slot{Path: "/dev/sdz1"})
		}
		kernel.Running = []raid.Status{array}
		_, err := m.EraseDevices(t.Context(), nodeWith(t, fields))
		if typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want a BlockDeviceEraseError with %q", name, err, tt.want)
		}
		checkUntouched(t, disks[:1], positions)
	}
}

// erase_devices_express erases the content of arrays on NVMe disks unless secure erase is off, and of others the
// metadata.
func TestExpressArrays(t *testing.T) {
	for _, tt := range []struct{ nvme, enabled bool }{{false, true}, {true, false}, {true, true}} {
		disks, fields, positions := createdDisks(t, "gpt")
		if tt.nvme {
			disks[1].Transport = "nvme"
		}
		nvme := tt.nvme && tt.enabled
		fields += fmt.Sprintf(`, "driver_internal_info": {"agent_enable_nvme_secure_erase": %v}`, tt.enabled)
		m, kernel := onThisMachine(t, disks...), &fakeArrays{}
		kernel.attach(t, m, disks)
		ranges := fillUnused(t, disks[1])
		full := fake(m).thisMachine.Erase
		fake(m).erase = func(ctx context.Context, d block.Device, o erase.Options) error {
			if o.Iterations != 0 || !o.Zeroize {
				t.Errorf("%s: got %d random passes, zeros %v, want zeros only", d.Path, o.Iterations, o.Zeroize)
			}
			return full(ctx, d, o)
		}
		result, err := m.EraseExpress(t.Context(), nodeWith(t, fields))
		if err != nil {
			t.Errorf("%v: %v", nvme, err)
			continue
		}
		for _, d := range kernel.Devices {
			if allZeros(t, d.Path, 0, d.Size) != nvme {
				t.Errorf("%v: array erased: %v", nvme, !nvme)
			}
		}
		for _, at := range positions[:3] {
			for _, d := range disks {
				if bytes.Contains(imagetest.ReadAt(t, d.Path, at, 4096), []byte("tenant!")) {
					t.Errorf("%v: %s holds data at byte %d", nvme, d.Path, at)
				}
			}
		}
		left := 0
		for _, r := range ranges {
			if !allZeros(t, disks[1].Path, r[0], r[1]) {
				left++
			}
		}
		if nvme && left > 0 {
			t.Errorf("got %d ranges of the NVMe disk with data, want none", left)
		}
		first := block.PartitionPath(m.o.System, disks[0].Path, 1)
		if got := reports(t, result)[disks[0].Path].Erased[first].String(); !strings.HasPrefix(got, "metadata; not") {
			t.Errorf("%v: got %q for a disk that is no NVMe disk, want metadata", nvme, got)
		}
	}
}

// reports returns the reports in the result of a step.
func reports(t *testing.T, result any) map[string]diskReport {
	t.Helper()
	found := map[string]diskReport{}
	for path, value := range result.(map[string]any) {
		found[path] = value.(diskReport)
	}
	return found
}

// Each array that could not be erased is in the log.
func TestEraseArrayLogs(t *testing.T) {
	disks, fields, _ := createdDisks(t, "gpt")
	m, kernel := onThisMachine(t, disks...), &fakeArrays{}
	kernel.attach(t, m, disks)
	kernel.AssembleErr = errors.New("broken")
	var log testenv.Log
	m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	if _, err := m.EraseDevices(t.Context(), nodeWith(t, fields)); err == nil {
		t.Error("got no error")
	}
	if strings.Count(log.String(), `msg="RAID array not erased"`) != 2 {
		t.Errorf("got log %s, want both arrays", log.String())
	}
}
