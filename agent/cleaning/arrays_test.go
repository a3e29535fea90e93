package cleaning

import (
	"bytes"
	"strings"
	"testing"

	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

const (
	mib = raidtest.MiB
	gib = raidtest.GiB
)

// erasing returns the steps that erase disks.
func erasing(m *Steps) map[string]stepFunc {
	return map[string]stepFunc{
		"erase_devices": m.EraseDevices, "erase_devices_metadata": m.EraseMetadata,
		"erase_devices_express": m.EraseExpress,
	}
}

// Members of arrays that the node object does not name are erased like any disk, on partitions too.
func TestEraseForeignMembers(t *testing.T) {
	foreign := testenv.RAID{Name: "tenant:data", Level: 1}
	n := nodeWith(t, `"raid_config": {"logical_disks": [
		{"controller": "software", "volume_name": "root", "raid_level": "1", "size_gb": 10},
		{"controller": "PERC", "volume_name": "data", "raid_level": "1", "size_gb": 10}]},
		"properties": {"skip_block_devices": [{"volume_name": "other"}]}`)
	for _, name := range []string{"erase_devices", "erase_devices_metadata", "erase_devices_express"} {
		whole, parts := raidtest.MemberDisk(t, foreign), raidtest.PartsDisk(t, 4096, &foreign, nil)
		m := onThisMachine(t, whole, parts)
		result, err := erasing(m)[name](t.Context(), n)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		method := erase.MetadataOnly
		if name == "erase_devices" {
			method = erase.Overwrite
		}
		sameResult(t, result, map[string]diskReport{
			whole.Path: {Erased: map[string]erase.Report{whole.Path: {Technique: method}}},
			parts.Path: {Erased: map[string]erase.Report{parts.Path: {Technique: method}}},
		})
		for _, d := range []block.Device{whole, parts} {
			data := content(t, d)
			if bytes.Contains(data, []byte{0xfc, 0x4e, 0x2b, 0xa9}) || bytes.Contains(data, []byte("EFI PART")) {
				t.Errorf("%s: %s has a superblock or a table", name, d.Path)
			}
			if method == erase.Overwrite && len(bytes.Trim(data, "\x00")) > 0 {
				t.Errorf("%s: %s holds data", name, d.Path)
			}
		}
	}
}

// A member of an array that Ironic created fails the step, which names disk and array. The other disks are erased.
func TestEraseKeepsCreatedArrays(t *testing.T) {
	created := testenv.RAID{Name: "host:root", Level: 1}
	whole, parts := raidtest.MemberDisk(t, created), raidtest.PartsDisk(t, 0, nil, &created)
	before := [][]byte{content(t, whole), content(t, parts)}
	for _, list := range []string{
		`[{"controller": "software", "volume_name": "root", "raid_level": "1", "size_gb": "MAX"}]`,
		`[{"controller": "software", "volume_name": "root", "raid_level": "5", "size_gb": 500}]`,
		`[{"controller": "software", "raid_level": "1", "size_gb": 500}]`,
		`[{"controller": "software"}]`,
	} {
		n := nodeWith(t, `"raid_config": {"logical_disks": `+list+`}`)
		for _, name := range []string{"erase_devices", "erase_devices_metadata", "erase_devices_express"} {
			plain := raidtest.PartitionedDisk(t, partition.TypeLinux)
			m := onThisMachine(t, whole, plain, parts)
			_, err := erasing(m)[name](t.Context(), n)
			part := block.PartitionPath(m.o.System, parts.Path, 2)
			for _, want := range []string{
				whole.Path, part, `raid1 array "host:root"`, "logical disk 1 of raid_config",
				"remove it by delete_configuration",
			} {
				if typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(err.Error(), want) {
					t.Errorf("%s with %s: got %v, want a BlockDeviceEraseError with %q", name, list, err, want)
				}
			}
			if found, err := block.Probe(t.Context(), plain.Path); err != nil ||
				bytes.Contains(content(t, plain), []byte("EFI PART")) {
				t.Errorf("%s: the plain disk has signature %q and %v, or a table, want none", name, found.Type, err)
			}
		}
	}
	for i, d := range []block.Device{whole, parts} {
		if !bytes.Equal(content(t, d), before[i]) {
			t.Errorf("%s was written to", d.Path)
		}
	}
}

// The array that skip_block_devices names is kept, and so is the table of its disk. The other partitions are erased.
func TestEraseKeepsProtectedArrays(t *testing.T) {
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]},
		"raid_config": {"logical_disks": [{"controller": "software", "volume_name": "root", "raid_level": "1",
		"size_gb": 1}]}`)
	at := int64(8*mib - 8192) // version 1.0
	const arrayData = 4 * mib // of both members
	for _, name := range []string{"erase_devices", "erase_devices_metadata", "erase_devices_express"} {
		whole := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1, Member: 1, Data: arrayData})
		parts := raidtest.PartsDisk(t, at, &testenv.RAID{Name: "host:root", Level: 1, Data: arrayData},
			&testenv.RAID{Name: "esp", Level: 1},
			&testenv.RAID{Name: "scratch", Level: 1}, nil)
		before, beforeParts := content(t, whole), content(t, parts)
		m := onThisMachine(t, whole, parts)
		result, err := erasing(m)[name](t.Context(), n)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		method := erase.MetadataOnly
		if name == "erase_devices" {
			method = erase.Overwrite
		}
		part := func(number int) string { return block.PartitionPath(m.o.System, parts.Path, number) }
		sameResult(t, result, map[string]diskReport{
			whole.Path: {Untouched: map[string]string{
				whole.Path: `member of raid1 array "root", protected by skip_block_devices`,
			}},
			parts.Path: {
				Erased: map[string]erase.Report{part(3): {Technique: method}, part(4): {Technique: method}},
				Untouched: map[string]string{
					part(1): `member of raid1 array "host:root", protected by skip_block_devices`,
					part(2): `member of raid1 array "esp", the EFI system partition of a protected array`,
					parts.Path: "partition table of a disk with a protected array, and the space outside of " +
						"its partitions",
				},
			},
		})
		if !bytes.Equal(content(t, whole), before) {
			t.Errorf("%s wrote to a member of the protected array", name)
		}
		after := content(t, parts)
		if end := 17 * mib; !bytes.Equal(after[:end], beforeParts[:end]) {
			t.Errorf("%s wrote to the table or to a protected partition", name)
		}
		if bytes.Contains(after[17*mib:33*mib], []byte("tenant!")) && method == erase.Overwrite {
			t.Errorf("%s: data are left beside the protected array", name)
		}
		if bytes.Contains(after[17*mib:33*mib], []byte{0xfc, 0x4e, 0x2b, 0xa9}) {
			t.Errorf("%s: a superblock is left beside the protected array", name)
		}
	}
}

// A protected name that several arrays share is an error that contains the name, the disks and the arrays. Their disks
// are neither erased nor reported as untouched, and the step erases no other disk.
func TestEraseAmbiguousName(t *testing.T) {
	skip := `{"volume_name": "root"}`
	const uuid, otherUUID = "30313233-3435-3637-3839-616263646566", "6f746865-722d-7575-6964-2d2d2d2d2d2d"
	other := testenv.RAID{Name: "tenant:root", Level: 1, Member: 1, UUID: "other-uuid------"}
	for name, step := range map[string]func(*Steps) stepFunc{
		"erase_devices": func(m *Steps) stepFunc { return m.EraseDevices },
		"metadata":      func(m *Steps) stepFunc { return m.EraseMetadata },
		"express":       func(m *Steps) stepFunc { return m.EraseExpress },
	} {
		real := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1})
		foreign := raidtest.MemberDisk(t, other)
		plain := raidtest.PartitionedDisk(t, partition.TypeLinux)
		before := [][]byte{content(t, real), content(t, foreign), content(t, plain)}
		for _, named := range []bool{false, true} { // the disk of the real array is on the list, too
			list := skip
			if named {
				list += `, {"serial": "` + real.Serial + `"}`
			}
			_, err := step(onThisMachine(t, plain, real, foreign))(t.Context(),
				nodeWith(t, `"properties": {"skip_block_devices": [`+list+`]}`))
			for _, want := range []string{
				"erased: none", `"root"`, "different UUIDs", real.Path, uuid, "not erased: ",
				foreign.Path, otherUUID,
			} {
				if typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got %v, want a BlockDeviceEraseError with %q", name, err, want)
				}
			}
			if count := strings.Count(err.Error(), "different UUIDs"); count != 1 {
				t.Errorf("%s: got %v, which lists the members %d times", name, err, count)
			}
		}
		for i, d := range []block.Device{real, foreign, plain} {
			if !bytes.Equal(content(t, d), before[i]) {
				t.Errorf("%s wrote to %s", name, d.Path)
			}
		}
	}
}

// The mirrored EFI system partition of a protected array must be one array, too.
func TestEraseAmbiguousESP(t *testing.T) {
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`)
	disk := raidtest.PartsDisk(t, 8*mib-8192,
		&testenv.RAID{Name: "root", Level: 1}, &testenv.RAID{Name: "esp", Level: 1},
		&testenv.RAID{Name: "esp", Level: 1, Member: 1, UUID: "other-uuid------"})
	before := content(t, disk)
	m := onThisMachine(t, disk)
	_, err := m.EraseDevices(t.Context(), n)
	for _, want := range []string{
		`"esp"`, "different UUIDs", block.PartitionPath(m.o.System, disk.Path, 2),
		block.PartitionPath(m.o.System, disk.Path, 3),
	} {
		if typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a BlockDeviceEraseError with %q", err, want)
		}
	}
	if !bytes.Equal(content(t, disk), before) {
		t.Error("the disk was written to")
	}
}

// An array of a tenant with the name of the mirrored EFI system partition, on a disk without a protected array, does
// not make that one ambiguous, and is erased.
func TestEraseForeignESP(t *testing.T) {
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`)
	const at = 8*mib - 8192 // version 1.0
	system := raidtest.PartsDisk(t, at, &testenv.RAID{Name: "root", Level: 1}, &testenv.RAID{Name: "esp", Level: 1})
	foreign := raidtest.PartsDisk(t, at, &testenv.RAID{Name: "esp", Level: 1, UUID: "other-uuid------"})
	before := content(t, system)
	if _, err := onThisMachine(t, system, foreign).EraseDevices(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, system), before) {
		t.Error("the disk with the protected array was written to")
	}
	if len(bytes.Trim(content(t, foreign), "\x00")) > 0 {
		t.Error("the disk of the tenant's array holds data")
	}
}

// The error of an ambiguous name is complete for its first disk in the list. The errors of the others refer to it.
func TestAmbiguous(t *testing.T) {
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`)
	var disks []block.Device
	for _, uuid := range []string{"third-uuid------", "first-uuid------", "other-uuid------"} {
		disks = append(disks, raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1, UUID: uuid}))
	}
	m := onThisMachine(t, disks...)
	see := "whose name is ambiguous: see the error of " + disks[0].Path
	for range 20 {
		decisions, err := m.PreviewErase(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		for i, decision := range decisions {
			text := errorText(decision.Err)
			if strings.Contains(text, see) != (i > 0) || strings.Contains(text, "different UUIDs") != (i == 0) {
				t.Errorf("disk %d: got %v, want the whole text for the first disk", i, text)
			}
		}
	}
	for range 5 {
		_, err := burninDisk(t.Context(), t, m, n)
		for i, d := range disks {
			refers := d.Path + " is a member of raid1 array \"root\", " + see
			if strings.Contains(errorText(err), refers) != (i > 0) {
				t.Errorf("burnin_disk, disk %d: got %v, want the whole text for the first disk", i, err)
			}
		}
	}
}

// A spare of a protected array is an error: it holds no data of the array, but can hold data of a tenant. An
// entry for the disk itself protects it.
func TestEraseSpareOfProtectedArray(t *testing.T) {
	array := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1})
	spare := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1, Member: 2, Spare: true})
	before := content(t, spare)
	for _, named := range []bool{false, true} {
		list := `{"volume_name": "root"}`
		if named {
			list += `, {"serial": "` + spare.Serial + `"}`
		}
		_, err := onThisMachine(t, array, spare).EraseDevices(t.Context(),
			nodeWith(t, `"properties": {"skip_block_devices": [`+list+`]}`))
		if named && err != nil {
			t.Errorf("spare on the skip list: got %v, want no error", err)
		} else if !named &&
			(typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(err.Error(), spare.Path+" has no role in")) {
			t.Errorf("spare: got %v, want a BlockDeviceEraseError that names %s", err, spare.Path)
		}
	}
	if !bytes.Equal(content(t, spare), before) {
		t.Error("the spare was written to")
	}
}

// A name alone protects nothing: not with an invalid superblock, and not if raid_config has another array of that
// name.
func TestEraseProtectsByValidSuperblocks(t *testing.T) {
	skip := `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`
	disk := raidtest.MemberDisk(t, testenv.RAID{Name: "host:root", Level: 1})
	raidtest.Write(t, disk.Path, 4096+100, []byte{1}) // the checksum is wrong now
	if _, err := onThisMachine(t, disk).EraseDevices(t.Context(), nodeWith(t, skip)); err != nil {
		t.Fatal(err)
	}
	if len(bytes.Trim(content(t, disk), "\x00")) > 0 {
		t.Error("the disk with an invalid superblock holds data")
	}
	disk = raidtest.MemberDisk(t, testenv.RAID{Name: "host:root", Level: 1})
	for name, entry := range map[string]string{
		"level": `"raid_level": "0", "size_gb": "MAX"`, "size": `"raid_level": "1", "size_gb": 100`,
	} {
		n := nodeWith(t,
			skip+`, "raid_config": {"logical_disks": [{"controller": "software", "volume_name": "root", `+entry+`}]}`)
		_, err := onThisMachine(t, disk).EraseDevices(t.Context(), n)
		if typeOf(err) != "BlockDeviceEraseError" {
			t.Errorf("other %s: got %v, want a BlockDeviceEraseError", name, err)
		}
	}
	for _, fields := range []string{
		`"raid_config": []`, `"raid_config": {"logical_disks": {}}`, `"raid_config": {"logical_disks": ["root"]}`,
	} {
		_, err := onThisMachine(t, disk).EraseDevices(t.Context(), nodeWith(t, fields))
		if typeOf(err) != "" || !strings.Contains(errorText(err), "raid_config") {
			t.Errorf("%s: got %v, want an error of raid_config without a type", fields, err)
		}
	}
	if !bytes.Contains(content(t, disk), []byte("tenant!")) {
		t.Error("the disk was erased")
	}
}

// The kernel can have partitions of a table that was removed. If one of them is a member of a protected array, nothing
// is erased.
func TestEraseProtectedWithoutTable(t *testing.T) {
	disk := raidtest.PartsDisk(t, 0, &testenv.RAID{Name: "root", Level: 1}, nil)
	raidtest.Write(t, disk.Path, 0, make([]byte, mib))
	raidtest.Write(t, disk.Path, disk.Size-mib, make([]byte, mib))
	before := content(t, disk)
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`)
	for name, step := range erasing(onThisMachine(t, disk)) {
		_, err := step(t.Context(), n)
		if typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(err.Error(), partition.ErrNoTable.Error()) {
			t.Errorf("%s: got %v, want a BlockDeviceEraseError with %q", name, err, partition.ErrNoTable)
		}
		if !bytes.Equal(content(t, disk), before) {
			t.Errorf("%s wrote to the disk", name)
		}
	}
}

// Linux ignores the backup of a GPT. If only the backup names the partitions of a disk, it is not known which of them
// are members of the arrays that the node names: nothing is erased. The other disks are erased, and so is the disk if
// the node names no arrays.
func TestEraseHiddenPartitions(t *testing.T) {
	hidden := raidtest.PartsDisk(t, 0, nil, &testenv.RAID{Name: "root", Level: 1})
	raidtest.Write(t, hidden.Path, 512, make([]byte, 512)) // the primary GPT
	if err := partition.Forget(t.Context(), sysfs.Root{}, hidden.Path); err != nil {
		t.Fatal(err)
	}
	before := content(t, hidden)
	for name, list := range map[string]string{
		"protected": `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`,
		"created": `"raid_config": {"logical_disks": [{"controller": "software", "volume_name": "root", ` +
			`"raid_level": "1"}]}`,
	} {
		for _, step := range []string{"erase_devices", "erase_devices_metadata", "erase_devices_express"} {
			plain := raidtest.MemberDisk(t, testenv.RAID{Name: "tenant", Level: 1})
			_, err := erasing(onThisMachine(t, hidden, plain))[step](t.Context(),
				nodeWith(t, list))
			erased, failed, _ := strings.Cut(errorText(err), "; not erased: ")
			want := "2 of the partitions in the table of " + hidden.Path +
				" (the first is number 1, 8388608 bytes at byte 1048576)"
			if typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(failed, want) ||
				!strings.Contains(erased, plain.Path) {
				t.Errorf("%s: %s: got %v, want a BlockDeviceEraseError with %q", name, step, err, want)
			}
			if !bytes.Equal(content(t, hidden), before) {
				t.Fatalf("%s: %s wrote to the disk", name, step)
			}
		}
	}
	named := nodeWith(t,
		`"properties": {"skip_block_devices": [{"volume_name": "root"}, {"serial": "`+hidden.Serial+`"}]}`)
	if _, err := onThisMachine(t, hidden).EraseDevices(t.Context(), named); err != nil {
		t.Errorf("named by its serial number: got %v, want no error", err)
	}
	if !bytes.Equal(content(t, hidden), before) {
		t.Error("the disk was erased although the node names it")
	}
	if _, err := onThisMachine(t, hidden).EraseDevices(t.Context(),
		nodeWith(t, `"properties": {}`)); err != nil {
		t.Errorf("without arrays: got %v, want no error", err)
	}
	if len(bytes.Trim(content(t, hidden), "\x00")) > 0 {
		t.Error("without arrays: the disk holds data")
	}
}
