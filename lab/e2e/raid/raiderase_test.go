//go:build linux

package raid

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

// twoArrays is a configuration with a mirror and the rest of the disks as RAID 5.
func twoArrays() map[string]any {
	return map[string]any{"logical_disks": []any{
		rig.RAIDDisk("1", 1, map[string]any{"volume_name": "root", "is_root_volume": true}),
		rig.RAIDDisk("5", "MAX", map[string]any{"volume_name": "data"}),
	}}
}

// createArrays boots a machine that creates arrays on its disks, which are full of old data, and stops it.
func createArrays(t *testing.T, config map[string]any, disks ...qemu.Disk) {
	t.Helper()
	serials := make([]string, len(disks))
	for i, d := range disks {
		serials[i] = d.Serial
	}
	r := rig.Start(t, rig.Setup{
		Append:  "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1",
		Machine: qemu.Config{Memory: 768 * rig.MiB, Disks: disks},
	})
	r.WaitAgent(t)
	r.DiskNames(t, serials...)
	record := r.RAIDStep(t, "clean", "create_configuration", map[string]any{"target_raid_config": config}, nil)
	if record.Status != conductor.Succeeded {
		t.Fatalf("got %s (%v), want %s", record.Status, record.Error, conductor.Succeeded)
	}
	if err := r.Machine.Stop(); err != nil {
		t.Fatal(err)
	}
}

// TestRAIDErase creates arrays, inspects the machine, which must not change the disks, and erases all disks. The arrays
// stay, and of the old data nothing. Then it erases them with an incomplete array.
func TestRAIDErase(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "mdadm")
	testenv.Root(t)
	const size = 1200 * rig.MiB
	serials := []string{"first", "second", "third"}
	files := map[string]string{}
	var disks []qemu.Disk
	for _, serial := range serials {
		files[serial] = rig.File(t, serial, size, rig.OldContent{})
		disks = append(disks, qemu.Disk{File: files[serial], Serial: serial, NoDiscard: true})
	}
	createArrays(t, twoArrays(), disks...)
	uuids := map[string]string{}
	before := map[string]string{}
	for _, serial := range serials {
		before[serial] = rig.SumAll(t, files[serial])
		for i, m := range rig.MembersIn(t, files[serial]) {
			uuids[fmt.Sprint(serial, i)] = m.UUID
		}
	}
	plain := rig.File(t, "plain", 64*rig.MiB, rig.OldContent{})
	before["plain"] = rig.SumAll(t, plain)
	r := rig.Start(t, rig.Setup{
		Machine: qemu.Config{
			Memory: 768 * rig.MiB, Disks: append(disks, qemu.Disk{File: plain, Serial: "plain", NoDiscard: true}),
		},
		Prepare: func(r *rig.Rig, c *qemu.Config) {
			c.Append += fmt.Sprintf(" ipa-inspection-callback-url=https://%s:%d/v1/continue_inspection"+
				" ipa-inspection-collectors=default,logs,pci-devices", rig.Host, rig.APIPort)
			r.Node.SetState(conductor.InspectWait)
		},
	})
	if err := r.Node.WaitInspection(rig.Soon(t)); err != nil {
		t.Fatal(err)
	}
	r.Node.SetState(conductor.DeployWait)
	r.WaitAgent(t)
	names := r.DiskNames(t, append(serials, "plain")...)
	for i, path := range []string{files["first"], files["second"], files["third"], plain} {
		serial := append(serials, "plain")[i]
		if got := rig.SumAll(t, path); got != before[serial] {
			t.Errorf("%s: inspection has changed the disk", serial)
		}
	}
	t.Run("erase", func(t *testing.T) { eraseArrays(t, r, names, files, uuids, plain) })
	t.Run("incomplete", func(t *testing.T) { eraseIncomplete(t, r, files, plain) })
}

// eraseFields are the fields of a node that is erased with one pass of zeros.
func eraseFields() map[string]any {
	return map[string]any{
		"raid_config": twoArrays(), "driver_internal_info": map[string]any{"agent_erase_devices_iterations": 0},
	}
}

// eraseArrays erases all disks. Afterwards only the partition tables, superblocks and bitmaps are not zero.
func eraseArrays(t *testing.T, r *rig.Rig, names, files, uuids map[string]string, plain string) {
	record := r.EraseStep(t, "erase_devices", eraseFields())
	if record.Status != conductor.Succeeded {
		t.Fatalf("got %s (%v), want %s", record.Status, record.Error, conductor.Succeeded)
	}
	var result struct {
		Devices map[string]struct {
			Erased    map[string]string
			Untouched map[string]string
			Evidence  struct {
				Evidence struct {
					Record struct {
						Sanitization struct {
							Category string `json:"nist_sp_800_88r2"`
							Limits   []string
						}
					}
				}
			}
		} `json:"clean_result"`
	}
	if err := json.Unmarshal(record.Result, &result); err != nil {
		t.Fatal(err)
	}
	for i, array := range []string{"/dev/md0", "/dev/md1"} {
		report := result.Devices[array]
		claimed := report.Evidence.Evidence.Record.Sanitization
		for serial := range files {
			member := fmt.Sprintf("%s%d (serial %s)", names[serial], i+1, serial)
			if !strings.Contains(report.Erased[array], member) ||
				!strings.Contains(fmt.Sprint(claimed.Limits), member) {
				t.Errorf("%s: got %+v, want the member %s", array, report, member)
			}
		}
		if claimed.Category != "clear" {
			t.Errorf("%s: got category %q, want clear", array, claimed.Category)
		}
	}
	for serial, path := range files {
		report := result.Devices[names[serial]]
		if len(report.Erased) != 3 || len(report.Untouched) != 1 ||
			report.Evidence.Evidence.Record.Sanitization.Category != "" {
			t.Errorf("%s: got %+v, want the disk and both partitions erased, the table untouched, and no category",
				serial, report)
		}
		kept := [][2]int64{{440, 512}}
		table, err := partition.Read(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range rig.MembersIn(t, path) {
			if m.UUID != uuids[fmt.Sprint(serial, i)] {
				t.Errorf("%s: got UUID %s on partition %d, want %s", serial, m.UUID, i+1, uuids[fmt.Sprint(serial, i)])
			}
			at := table.Partitions[i].Start + m.Offset
			kept = append(kept, [2]int64{at, at + 512}, [2]int64{at + 4096, at + 8192})
		}
		onlyKept(t, path, kept)
		role := map[string]int{"first": 0, "second": 1, "third": 2}[serial]
		checkMembers(t, path, fmt.Sprintf("raid1 3 %d any:root", role), fmt.Sprintf("raid5 3 %d any:data", role))
	}
	onlyKept(t, plain, nil)
	if console := r.Machine.Console().String(); !strings.Contains(console, "RAID array assembled") {
		t.Error("the console does not show that an array was assembled")
	}
	if out := r.Succeed(t, "poll.get_hardware_info", nil); strings.Contains(out, "/dev/md") {
		t.Errorf("an array runs after the step: %s", out)
	}
}

// onlyKept fails the test if a file holds other bytes than zeros outside of ranges.
func onlyKept(t *testing.T, path string, kept [][2]int64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := make([]byte, rig.MiB)
	for at := int64(0); ; at += int64(len(data)) {
		n, err := f.ReadAt(data, at)
		for _, r := range kept {
			if start, end := max(r[0]-at, 0), min(r[1]-at, int64(n)); start < end {
				clear(data[start:end])
			}
		}
		if !rig.AllZero(data[:n]) {
			t.Errorf("%s holds data within 1 MiB from byte %d", path, at)
			return
		}
		if err != nil {
			return
		}
	}
}

// eraseIncomplete erases disks of which one has lost its member of the second array: they fail, and only the array that
// is complete and the other disk are erased.
func eraseIncomplete(t *testing.T, r *rig.Rig, files map[string]string, plain string) {
	table, err := partition.Read(t.Context(), files["second"])
	if err != nil {
		t.Fatal(err)
	}
	rig.Patch(t, files["second"], table.Partitions[1].Start+4096, make([]byte, 4096))
	rig.Patch(t, plain, 0, rig.OldText)
	rig.Patch(t, files["first"], table.Partitions[1].Start+64<<10, rig.OldText)
	if err := r.Machine.Reset(t.Context()); err != nil { // the kernel's cache has the superblock
		t.Fatal(err)
	}
	r.Node.Rebooted()
	r.Node.SetState(conductor.InspectWait)
	if err := r.Node.WaitInspection(rig.Soon(t)); err != nil {
		t.Fatal(err)
	}
	r.Node.SetState(conductor.DeployWait)
	r.WaitAgent(t)
	names := r.DiskNames(t, "first", "second", "third", "plain")
	record := r.EraseStep(t, "erase_devices", eraseFields())
	if record.Status != conductor.Failed || record.Error.Type != "BlockDeviceEraseError" {
		t.Fatalf("got %s (%v), want a BlockDeviceEraseError", record.Status, record.Error)
	}
	for _, want := range []string{
		names["plain"] + " (overwrite)", "/dev/md0 (overwrite", "got 2 members, want 3",
		names["first"] + "2 is a member of", names["third"] + "2 is a member of",
	} {
		if !strings.Contains(record.Error.Details, want) {
			t.Errorf("got error %s, want one with %q", record.Error.Details, want)
		}
	}
	if !rig.AllZero(rig.Read(t, plain, 0, rig.MiB)) {
		t.Error("the plain disk holds data")
	}
	got := rig.Read(t, files["first"], table.Partitions[1].Start+64<<10, int64(len(rig.OldText)))
	if string(got) != string(rig.OldText) {
		t.Error("the member of the incomplete array was written to")
	}
}
