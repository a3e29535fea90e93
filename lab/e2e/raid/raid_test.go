//go:build linux

package raid

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
	"ironroot/storage/block"
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
	config := qemu.Config{Memory: 768 * rig.MiB}
	for _, serial := range serials {
		files[serial] = rig.File(t, serial, size, nil)
		config.Disks = append(config.Disks, qemu.Disk{File: files[serial], Serial: serial})
	}
	r := rig.Start(t, rig.Setup{Append: "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1", Machine: config})
	r.WaitAgent(t)
	r.DiskNames(t, serials...)
	t.Run("create", func(t *testing.T) { createRAID(t, r, files) })
	t.Run("levels", func(t *testing.T) { applyRAID(t, r, files) })
	t.Run("refused", func(t *testing.T) { refuseRAID(t, r) })
	t.Run("keep", func(t *testing.T) { keepRAID(t, r, files) })
	t.Run("delete", func(t *testing.T) { r.DeleteRAID(t, files) })
	console := r.Machine.Console().String()
	for _, text := range []string{"RAID array created", "RAID array stopped"} {
		if !strings.Contains(console, text) {
			t.Errorf("the console does not show %q", text)
		}
	}
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
func createRAID(t *testing.T, r *rig.Rig, files map[string]string) {
	config := map[string]any{"logical_disks": []any{
		rig.RAIDDisk("1", "MAX", map[string]any{
			"volume_name": "root", "is_root_volume": true,
			"physical_disks": []any{map[string]any{"serial": "third"}, map[string]any{"serial": "first"}},
		}),
	}}
	record := r.RAIDStep(t, "clean", "create_configuration", map[string]any{"target_raid_config": config}, nil)
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
	if err := json.Unmarshal([]byte(r.Succeed(t, "poll.get_hardware_info", nil)), &inventory); err != nil {
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
func applyRAID(t *testing.T, r *rig.Rig, files map[string]string) {
	for _, level := range []string{"0", "1", "1+0", "6", "5"} {
		name := "raid" + strings.ReplaceAll(level, "1+0", "10")
		config := raidOf(level)
		record := r.RAIDStep(t, "deploy", "apply_configuration", nil, map[string]any{"raid_config": config})
		if record.Status != conductor.Succeeded {
			t.Fatalf("%s: got %s (%v), want %s", name, record.Status, record.Error, conductor.Succeeded)
		}
		for i, path := range []string{"first", "second", "third", "fourth"} {
			checkMembers(t, files[path], fmt.Sprintf("%s 4 %d any:md0", name, i), fmt.Sprintf("raid1 4 %d any:root", i))
		}
	}
}

// raidOf is a configuration of two arrays on all disks. The array of size MAX is on the second partitions.
func raidOf(level string) map[string]any {
	return map[string]any{"logical_disks": []any{
		rig.RAIDDisk("1", "MAX", map[string]any{"volume_name": "root"}), rig.RAIDDisk(level, 1, nil),
	}}
}

// keepRAID restarts the machine and erases the metadata: the arrays of raid_config are not assembled, and kept.
func keepRAID(t *testing.T, r *rig.Rig, files map[string]string) {
	if err := r.Machine.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Node.Rebooted()
	r.WaitAgent(t)
	names := r.DiskNames(t, "first", "second", "third", "fourth")
	positions := map[string][]int64{}
	for serial, path := range files {
		positions[serial] = []int64{64 << 10}
		for _, m := range rig.MembersIn(t, path) {
			positions[serial] = append(positions[serial], m.Device.Start, m.Device.Start+m.DataOffset)
		}
		for _, at := range positions[serial] {
			rig.Patch(t, path, at, rig.OldText)
		}
	}
	record := r.EraseStep(t, "erase_devices_metadata", map[string]any{"raid_config": raidOf("5")})
	if record.Status != conductor.Succeeded ||
		!strings.Contains(string(record.Result), "a disk with an array that Ironic created") {
		t.Errorf("got %s (%v, %s), want %s", record.Status, record.Error, record.Result, conductor.Succeeded)
	}
	for i, serial := range []string{"first", "second", "third", "fourth"} {
		if !strings.Contains(string(record.Result), names[serial]) {
			t.Errorf("got result %s, want one with %s", record.Result, names[serial])
		}
		for _, at := range positions[serial] {
			if !rig.AllZero(rig.Read(t, files[serial], at, int64(len(rig.OldText)))) {
				t.Errorf("%s holds data at byte %d", serial, at)
			}
		}
		checkMembers(t, files[serial], fmt.Sprintf("raid5 4 %d any:md0", i), fmt.Sprintf("raid1 4 %d any:root", i))
	}
}

// refuseRAID checks that nothing is created on disks with arrays.
func refuseRAID(t *testing.T, r *rig.Rig) {
	record := r.RAIDStep(t, "clean", "create_configuration", map[string]any{
		"target_raid_config": map[string]any{"logical_disks": []any{rig.RAIDDisk("1", "MAX", nil)}},
	}, nil)
	if record.Status != conductor.Failed || record.Error.Type != "SoftwareRAIDError" ||
		!strings.Contains(record.Error.Details, "Partitions detected on devices") {
		t.Errorf("got %s (%v), want a SoftwareRAIDError", record.Status, record.Error)
	}
}
