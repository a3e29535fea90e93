//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/qemu"
	"ironroot/storage/block"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
)

// twoArrays is a configuration with a mirror and the rest of the disks as RAID 5.
func twoArrays() map[string]any {
	return map[string]any{"logical_disks": []any{
		raidDisk("1", 1, map[string]any{"volume_name": "root", "is_root_volume": true}),
		raidDisk("5", "MAX", map[string]any{"volume_name": "data"}),
	}}
}

// createArrays boots a machine that creates arrays on its disks, which are full of old data, and stops it.
func createArrays(t *testing.T, config map[string]any, disks ...qemu.Disk) {
	t.Helper()
	serials := make([]string, len(disks))
	for i, d := range disks {
		serials[i] = d.Serial
	}
	r := start(t, setup{
		append:  "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1",
		machine: qemu.Config{Memory: 768 * mib, Disks: disks},
	})
	r.waitAgent(t)
	r.diskNames(t, serials...)
	record := r.raidStep(t, "clean", "create_configuration", map[string]any{"target_raid_config": config}, nil)
	if record.Status != conductor.Succeeded {
		t.Fatalf("got %s (%v), want %s", record.Status, record.Error, conductor.Succeeded)
	}
	if err := r.machine.Stop(); err != nil {
		t.Fatal(err)
	}
}

// TestRAIDErase creates arrays, inspects the machine, which must not change the disks, and erases all disks. The arrays
// stay, and of the old data nothing. Then it erases them with an incomplete array.
func TestRAIDErase(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "mdadm")
	testenv.Root(t)
	const size = 1200 * mib
	serials := []string{"first", "second", "third"}
	files := map[string]string{}
	var disks []qemu.Disk
	for _, serial := range serials {
		files[serial] = file(t, serial, size, old{})
		disks = append(disks, qemu.Disk{File: files[serial], Serial: serial, NoDiscard: true})
	}
	createArrays(t, twoArrays(), disks...)
	uuids := map[string]string{}
	before := map[string]string{}
	for _, serial := range serials {
		before[serial] = sumAll(t, files[serial])
		for i, m := range membersIn(t, files[serial]) {
			uuids[fmt.Sprint(serial, i)] = m.UUID
		}
	}
	plain := file(t, "plain", 64*mib, old{})
	before["plain"] = sumAll(t, plain)
	r := start(t, setup{
		machine: qemu.Config{
			Memory: 768 * mib, Disks: append(disks, qemu.Disk{File: plain, Serial: "plain", NoDiscard: true}),
		},
		prepare: func(r *rig, c *qemu.Config) {
			c.Append += fmt.Sprintf(" ipa-inspection-callback-url=https://%s:%d/v1/continue_inspection"+
				" ipa-inspection-collectors=default,logs,pci-devices", host, apiPort)
			r.node.SetState(conductor.InspectWait)
		},
	})
	if err := r.node.WaitInspection(soon(t)); err != nil {
		t.Fatal(err)
	}
	r.node.SetState(conductor.DeployWait)
	r.waitAgent(t)
	names := r.diskNames(t, append(serials, "plain")...)
	for i, path := range []string{files["first"], files["second"], files["third"], plain} {
		serial := append(serials, "plain")[i]
		if got := sumAll(t, path); got != before[serial] {
			t.Errorf("%s: inspection has changed the disk", serial)
		}
	}
	t.Run("erase", func(t *testing.T) { r.eraseArrays(t, names, files, uuids, plain) })
	t.Run("incomplete", func(t *testing.T) { r.eraseIncomplete(t, files, plain) })
}

// membersIn returns the members of arrays on the partitions of a disk, with the offsets of the partitions.
func membersIn(t *testing.T, path string) []raid.Member {
	t.Helper()
	table, err := partition.Read(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var members []raid.Member
	for _, p := range table.Partitions {
		found, err := md.Find(io.NewSectionReader(f, p.Start, p.Size), p.Size)
		if err != nil || len(found) != 1 || found[0].Problem != nil {
			t.Fatalf("%s: got %+v and %v, want a superblock", path, found, err)
		}
		members = append(members, raid.Member{Device: block.Device{Start: p.Start, Size: p.Size}, Superblock: found[0]})
	}
	return members
}

// eraseFields are the fields of a node that is erased with one pass of zeros.
func eraseFields() map[string]any {
	return map[string]any{
		"raid_config": twoArrays(), "driver_internal_info": map[string]any{"agent_erase_devices_iterations": 0},
	}
}

// eraseArrays erases all disks. What is not zero afterwards is the partition tables, superblocks and bitmaps.
func (r *rig) eraseArrays(t *testing.T, names, files, uuids map[string]string, plain string) {
	record := r.eraseStep(t, "erase_devices", eraseFields())
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
		for i, m := range membersIn(t, path) {
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
	if console := r.machine.Console().String(); !strings.Contains(console, "RAID array assembled") {
		t.Error("the console does not show that an array was assembled")
	}
	if out := r.succeed(t, "poll.get_hardware_info", nil); strings.Contains(out, "/dev/md") {
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
	data := make([]byte, mib)
	for at := int64(0); ; at += int64(len(data)) {
		n, err := f.ReadAt(data, at)
		for _, r := range kept {
			if start, end := max(r[0]-at, 0), min(r[1]-at, int64(n)); start < end {
				clear(data[start:end])
			}
		}
		if !allZero(data[:n]) {
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
func (r *rig) eraseIncomplete(t *testing.T, files map[string]string, plain string) {
	table, err := partition.Read(t.Context(), files["second"])
	if err != nil {
		t.Fatal(err)
	}
	patch(t, files["second"], table.Partitions[1].Start+4096, make([]byte, 4096))
	patch(t, plain, 0, secret)
	patch(t, files["first"], table.Partitions[1].Start+64<<10, secret)
	if err := r.machine.Reset(t.Context()); err != nil { // the kernel's cache has the superblock
		t.Fatal(err)
	}
	r.node.Rebooted()
	r.node.SetState(conductor.InspectWait)
	if err := r.node.WaitInspection(soon(t)); err != nil {
		t.Fatal(err)
	}
	r.node.SetState(conductor.DeployWait)
	r.waitAgent(t)
	names := r.diskNames(t, "first", "second", "third", "plain")
	record := r.eraseStep(t, "erase_devices", eraseFields())
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
	if !allZero(read(t, plain, 0, mib)) {
		t.Error("the plain disk holds data")
	}
	got := read(t, files["first"], table.Partitions[1].Start+64<<10, int64(len(secret)))
	if string(got) != string(secret) {
		t.Error("the member of the incomplete array was written to")
	}
}
