//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/qemu"
	"ironroot/storage/block"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// TestRAID creates arrays of each level through the agent's API, reads their members with mdadm on the host, erases
// their metadata after a restart, and deletes them.
func TestRAID(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "mdadm")
	testenv.Root(t)
	const size = 2 << 30
	serials := []string{"first", "second", "third", "fourth"}
	files := map[string]string{}
	config := qemu.Config{Memory: 768 * mib}
	for _, serial := range serials {
		files[serial] = file(t, serial, size, nil)
		config.Disks = append(config.Disks, qemu.Disk{File: files[serial], Serial: serial})
	}
	r := start(t, setup{append: "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1", machine: config})
	r.waitAgent(t)
	r.diskNames(t, serials...)
	t.Run("create", func(t *testing.T) { r.createRAID(t, files) })
	t.Run("levels", func(t *testing.T) { r.applyRAID(t, files) })
	t.Run("refused", func(t *testing.T) { r.refuseRAID(t) })
	t.Run("keep", func(t *testing.T) { r.keepRAID(t, files) })
	t.Run("delete", func(t *testing.T) { r.deleteRAID(t, files) })
	console := r.machine.Console().String()
	for _, text := range []string{"RAID array created", "RAID array stopped"} {
		if !strings.Contains(console, text) {
			t.Errorf("the console does not show %q", text)
		}
	}
}

// raidStep runs a step of the interface raid.
func (r *rig) raidStep(t *testing.T, kind, name string, fields, args map[string]any) *conductor.Record {
	t.Helper()
	node := map[string]any{"uuid": r.node.UUID(), "properties": map[string]any{}, "instance_info": map[string]any{}}
	for key, value := range fields {
		node[key] = value
	}
	step := map[string]any{"step": name, "interface": "raid"}
	if args != nil {
		step["args"] = args
	}
	return r.command(t, kind+".execute_"+kind+"_step", map[string]any{"step": step, "node": node, "ports": []any{}})
}

// raidDisk is an entry of logical_disks.
func raidDisk(level string, size any, fields map[string]any) map[string]any {
	disk := map[string]any{"controller": "software", "raid_level": level, "size_gb": size}
	for key, value := range fields {
		disk[key] = value
	}
	return disk
}

// checkMembers checks the partitions of a disk, and what mdadm says about each of them: its level, the number of
// members, its role and its name, as "raid1 4 0 root".
func checkMembers(t *testing.T, path string, want ...string) {
	t.Helper()
	loop := testenv.Loop(t, path, 512)
	if err := partition.Sync(t.Context(), sysfs.Root{}, loop); err != nil {
		t.Fatal(err)
	}
	parts, err := block.Partitions(t.Context(), sysfs.Root{}, loop)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, part := range parts {
		values := map[string]string{}
		for line := range strings.Lines(testenv.Run(t, "mdadm", "--examine", part.Path)) {
			if key, value, ok := strings.Cut(line, " : "); ok {
				values[strings.TrimSpace(key)] = strings.TrimSpace(value)
			}
		}
		if !strings.HasSuffix(values["Checksum"], "- correct") || values["Version"] != "1.2" {
			t.Errorf("%s: got %q, want a superblock of version 1.2", part.Path, values)
		}
		if state, _, _ := strings.Cut(values["Array State"], " "); strings.Trim(state, "A") != "" || state == "" {
			t.Errorf("%s: got array state %q, want one without missing members", part.Path, state)
		}
		got = append(got, fmt.Sprintf("%s %s %s %s", values["Raid Level"], values["Raid Devices"],
			strings.TrimPrefix(values["Device Role"], "Active device "), values["Name"]))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: arrays differ (-want +got):\n%s", path, diff)
	}
}

// createRAID creates two arrays as a clean step. The first is on two disks that hints choose.
//
// Parity: N2 (hints)
func (r *rig) createRAID(t *testing.T, files map[string]string) {
	config := map[string]any{"logical_disks": []any{
		raidDisk("1", "MAX", map[string]any{
			"volume_name": "root", "is_root_volume": true,
			"physical_disks": []any{map[string]any{"serial": "third"}, map[string]any{"serial": "first"}},
		}),
	}}
	record := r.raidStep(t, "clean", "create_configuration", map[string]any{"target_raid_config": config}, nil)
	if record.Status != conductor.Succeeded {
		t.Fatalf("got %s (%v), want %s", record.Status, record.Error, conductor.Succeeded)
	}
	var result struct {
		CleanResult any `json:"clean_result"`
	}
	if err := json.Unmarshal(record.Result, &result); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any(config), result.CleanResult); diff != "" {
		t.Errorf("result differs (-want +got):\n%s", diff)
	}
	checkMembers(t, files["third"], "raid1 2 0 any:root")
	checkMembers(t, files["first"], "raid1 2 1 any:root")
	checkMembers(t, files["second"])
	var inventory struct {
		Disks []struct {
			Name string
			Size int64
		}
	}
	if err := json.Unmarshal([]byte(r.succeed(t, "poll.get_hardware_info", nil)), &inventory); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(inventory.Disks, func(d struct {
		Name string
		Size int64
	},
	) bool {
		return d.Name == "/dev/md0" && d.Size > 1<<30
	}) {
		t.Errorf("got disks %+v, want /dev/md0 among them", inventory.Disks)
	}
}

// applyRAID replaces the arrays by others, as a deploy step. The array of size MAX is on the last partition.
//
// Parity: N2 (levels)
func (r *rig) applyRAID(t *testing.T, files map[string]string) {
	for _, level := range []string{"0", "1", "1+0", "6", "5"} {
		name := "raid" + strings.ReplaceAll(level, "1+0", "10")
		config := raidOf(level)
		record := r.raidStep(t, "deploy", "apply_configuration", nil, map[string]any{"raid_config": config})
		if record.Status != conductor.Succeeded {
			t.Fatalf("%s: got %s (%v), want %s", name, record.Status, record.Error, conductor.Succeeded)
		}
		for i, path := range []string{"first", "second", "third", "fourth"} {
			checkMembers(t, files[path], fmt.Sprintf("%s 4 %d any:md0", name, i), fmt.Sprintf("raid1 4 %d any:root", i))
		}
	}
}

// raidOf is a configuration of two arrays on all disks. That of size MAX is on the second partitions.
func raidOf(level string) map[string]any {
	return map[string]any{"logical_disks": []any{
		raidDisk("1", "MAX", map[string]any{"volume_name": "root"}), raidDisk(level, 1, nil),
	}}
}

// keepRAID restarts the machine and erases the metadata: the arrays of raid_config are not assembled, and kept.
func (r *rig) keepRAID(t *testing.T, files map[string]string) {
	if err := r.machine.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.node.Rebooted()
	r.waitAgent(t)
	names := r.diskNames(t, "first", "second", "third", "fourth")
	positions := map[string][]int64{}
	for serial, path := range files {
		positions[serial] = []int64{64 << 10}
		for _, m := range membersIn(t, path) {
			positions[serial] = append(positions[serial], m.Device.Start, m.Device.Start+m.DataOffset)
		}
		for _, at := range positions[serial] {
			patch(t, path, at, secret)
		}
	}
	record := r.eraseStep(t, "erase_devices_metadata", map[string]any{"raid_config": raidOf("5")})
	if record.Status != conductor.Succeeded ||
		!strings.Contains(string(record.Result), "a disk with an array that Ironic created") {
		t.Errorf("got %s (%v, %s), want %s", record.Status, record.Error, record.Result, conductor.Succeeded)
	}
	for i, serial := range []string{"first", "second", "third", "fourth"} {
		if !strings.Contains(string(record.Result), names[serial]) {
			t.Errorf("got result %s, want one with %s", record.Result, names[serial])
		}
		for _, at := range positions[serial] {
			if !allZero(read(t, files[serial], at, int64(len(secret)))) {
				t.Errorf("%s holds data at byte %d", serial, at)
			}
		}
		checkMembers(t, files[serial], fmt.Sprintf("raid5 4 %d any:md0", i), fmt.Sprintf("raid1 4 %d any:root", i))
	}
}

// refuseRAID checks that nothing is created on disks with arrays.
func (r *rig) refuseRAID(t *testing.T) {
	record := r.raidStep(t, "clean", "create_configuration", map[string]any{
		"target_raid_config": map[string]any{"logical_disks": []any{raidDisk("1", "MAX", nil)}},
	}, nil)
	if record.Status != conductor.Failed || record.Error.Type != "SoftwareRAIDError" ||
		!strings.Contains(record.Error.Details, "Partitions detected on devices") {
		t.Errorf("got %s (%v), want a SoftwareRAIDError", record.Status, record.Error)
	}
}

// deleteRAID deletes all arrays. No superblock is left where the partitions were.
func (r *rig) deleteRAID(t *testing.T, files map[string]string) {
	tables := map[string]*partition.Table{}
	for serial, path := range files {
		table, err := partition.Read(t.Context(), path)
		if err != nil || len(table.Partitions) != 2 {
			t.Fatalf("%s: got %+v and %v, want two partitions", serial, table, err)
		}
		tables[serial] = table
	}
	record := r.raidStep(t, "clean", "delete_configuration", nil, nil)
	if record.Status != conductor.Succeeded {
		t.Fatalf("got %s (%v), want %s", record.Status, record.Error, conductor.Succeeded)
	}
	for serial, path := range files {
		if _, err := partition.Read(t.Context(), path); err == nil {
			t.Errorf("%s: a partition table is left", serial)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, p := range append(tables[serial].Partitions, partition.Partition{Size: tables[serial].DiskSize}) {
			left, err := md.Find(io.NewSectionReader(f, p.Start, p.Size), p.Size)
			if err != nil || len(left) > 0 {
				t.Errorf("%s: got superblocks %+v and %v at byte %d, want none", serial, left, err, p.Start)
			}
		}
	}
}
