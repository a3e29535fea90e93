//go:build linux

package disks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// TestBurnin tests processors, memory and disks of a machine with 512 MiB of memory. One disk cannot be read in its
// middle, others must not be written to. The agent sends heartbeats all the time.
//
// Parity: P9 (results in a machine)
func TestBurnin(t *testing.T) {
	t.Parallel()
	good, failing := rig.File(t, "good", rig.DiskSize, marker{}), rig.File(t, "failing", rig.DiskSize, marker{})
	skipped, readOnly := rig.File(t, "skipped", rig.DiskSize, marker{}), rig.File(t, "readonly", rig.DiskSize, marker{})
	member, floppy := rig.File(t, "member", rig.DiskSize, marker{}), rig.FATImage(t, 4*rig.MiB, "ir-vfd-dev", "")
	rig.Patch(t, member, 4096, testenv.RAID{Name: "host:root", Level: 1, Size: rig.DiskSize}.Superblock(4096))
	r := rig.Start(t, rig.Setup{
		Append: "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1",
		Config: map[string]any{"heartbeat_timeout": 10},
		Machine: qemu.Config{Memory: 512 * rig.MiB, Disks: []qemu.Disk{
			{File: good, Serial: "good"},
			{File: failing, Serial: "failing", Faults: []qemu.Fault{{Type: "read", Offset: 20 * rig.MiB}}},
			{File: skipped, Serial: "skipped"},
			{File: readOnly, Serial: "readonly", ReadOnly: true},
			{File: member, Serial: "member"},
			{File: floppy, Serial: "floppy", Bus: qemu.USB},
		}},
	})
	r.WaitAgent(t)
	names := r.DiskNames(t, "good", "failing", "skipped", "readonly", "member", "floppy")
	t.Run("processors", func(t *testing.T) { burnCPU(t, r) })
	t.Run("memory", func(t *testing.T) { burnMemory(t, r) })
	kept := map[string]string{}
	for _, path := range []string{skipped, readOnly, member, floppy} {
		kept[path] = rig.SumAll(t, path)
	}
	t.Run("failing disk", func(t *testing.T) { burnFailingDisk(t, r, names) })
	t.Run("disks", func(t *testing.T) { burnDisks(t, r, names) })
	for path, want := range kept {
		if got := rig.SumAll(t, path); got != want {
			t.Errorf("%s: got SHA-256 %s, want %s as before", path, got, want)
		}
	}
	if data, err := os.ReadFile(good); err != nil || bytes.Contains(data, rig.OldText) {
		t.Errorf("the tested disk holds old data (%v)", err)
	}
}

// burn runs a burn-in step with fields of the node, and returns its record and the number of heartbeats before its
// end. It looks for the end after each heartbeat: the agent sends one then.
func burn(t *testing.T, r *rig.Rig, step string, fields map[string]any) (record *conductor.Record, heartbeats int) {
	t.Helper()
	node := map[string]any{"uuid": r.Node.UUID(), "instance_info": map[string]any{}}
	for key, value := range fields {
		node[key] = value
	}
	record, err := r.Node.Command(t.Context(), "clean.execute_clean_step", map[string]any{
		"step": map[string]any{"step": step, "interface": "deploy"}, "node": node, "ports": []any{},
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	for id := record.ID; ; heartbeats++ {
		if err := r.Node.WaitHeartbeat(rig.Soon(t)); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		list, err := r.Node.Commands(rig.Soon(t))
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		i := slices.IndexFunc(list, func(c conductor.Record) bool { return c.ID == id })
		if i < 0 {
			t.Fatalf("%s: the agent's list of commands lacks it: it was restarted", step)
		}
		if list[i].Status != conductor.Running {
			return &list[i], heartbeats
		}
	}
}

// burned is burn for a step that must succeed. It decodes the result.
func burned(t *testing.T, r *rig.Rig, step string, fields map[string]any, result any) (heartbeats int) {
	t.Helper()
	record, heartbeats := burn(t, r, step, fields)
	if record.Status != conductor.Succeeded {
		t.Fatalf("%s: got %s (%v), want %s", step, record.Status, record.Error, conductor.Succeeded)
	}
	var outer struct {
		Result json.RawMessage `json:"clean_result"`
	}
	if err := json.Unmarshal(record.Result, &outer); err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(outer.Result))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(result); err != nil {
		t.Fatalf("%s: got result %s: %v", step, outer.Result, err)
	}
	t.Logf("%s: %s, %d heartbeats before its end", step, outer.Result, heartbeats)
	return heartbeats
}

const burnSeconds = 40 // several intervals of heartbeats, which take seconds on a busy host

func burnCPU(t *testing.T, r *rig.Rig) {
	var got struct {
		Processors, Workers int
		Seconds             float64
		Computations        int64
		Counters            struct{ Unavailable []string }
	}
	heartbeats := burned(t, r, "burnin_cpu", map[string]any{
		"driver_info": map[string]any{"agent_burnin_cpu_timeout": burnSeconds},
	}, &got)
	if got.Processors != 2 || got.Workers != 2 || got.Seconds < burnSeconds || got.Computations < 8 ||
		!slices.Contains(got.Counters.Unavailable, "memory errors (EDAC)") {
		t.Errorf("got %+v, want both processors of a machine without EDAC tested for %d s", got, burnSeconds)
	}
	if heartbeats == 0 {
		t.Error("got no heartbeat during the test")
	}
}

func burnMemory(t *testing.T, r *rig.Rig) {
	var got struct {
		Workers                            int
		Available, Bytes, Verified, Passes int64
		Seconds                            float64
		Counters                           struct {
			Unavailable []string
			Errors      map[string]struct{ Before, After uint64 }
		}
	}
	heartbeats := burned(t, r, "burnin_memory", map[string]any{
		"driver_info": map[string]any{"agent_burnin_vm_timeout": fmt.Sprint(burnSeconds)},
	}, &got)
	if got.Workers != 2 || got.Seconds < burnSeconds || got.Available > 512*rig.MiB ||
		got.Bytes > got.Available-64*rig.MiB ||
		got.Bytes < (got.Available-64*rig.MiB)*15/16 || got.Verified < got.Bytes {
		t.Errorf("got %+v, want most of the available memory without 64 MiB tested for %d s", got, burnSeconds)
	}
	if checks, known := got.Counters.Errors["machine check exceptions"]; !known || checks.After != 0 {
		t.Errorf("got counters %+v, want those of machine checks, without one", got.Counters.Errors)
	}
	if heartbeats == 0 {
		t.Error("got no heartbeat during the test")
	}
	if lost := regexp.MustCompile(`(?i)out of memory|oom|panic`).FindString(r.Machine.Console().String()); lost != "" {
		t.Errorf("the console contains %q", lost)
	}
	r.Succeed(t, "poll.get_hardware_info", nil)
}

// protection has the fields of a node that protect two disks.
func protection(more ...any) map[string]any {
	return map[string]any{
		"driver_info": map[string]any{"agent_burnin_fio_disk_loops": 1},
		"properties": map[string]any{"skip_block_devices": append([]any{
			map[string]any{"serial": "skipped"}, map[string]any{"volume_name": "root"},
		}, more...)},
	}
}

// burnFailingDisk checks that the error names the disks that failed, and those that passed.
func burnFailingDisk(t *testing.T, r *rig.Rig, names map[string]string) {
	record, _ := burn(t, r, "burnin_disk", protection())
	if record.Status != conductor.Failed || record.Error.Type != "CommandExecutionError" {
		t.Fatalf("got %s (%v), want a CommandExecutionError", record.Status, record.Error)
	}
	details := record.Error.Details
	for _, want := range []string{
		fmt.Sprintf("%s: read 262144 bytes at byte %d: ", names["failing"], 20*rig.MiB), "input/output error",
		names["readonly"] + ": device is read-only", "tested without errors: " + names["good"],
	} {
		if !strings.Contains(details, want) {
			t.Errorf("got error %s, want one with %q", details, want)
		}
	}
	for _, serial := range []string{"skipped", "member", "floppy"} {
		if strings.Contains(details, names[serial]) {
			t.Errorf("got error %s, which names %s", details, serial)
		}
	}
}

// burnDisks checks that the result has what was tested, and the reasons for what was not.
func burnDisks(t *testing.T, r *rig.Rig, names map[string]string) {
	fields := protection(map[string]any{"serial": "failing"})
	fields["driver_internal_info"] = map[string]any{"agent_erase_skip_read_only": true}
	var got map[string]struct {
		Size, Written, Verified int64
		Seconds                 float64
		Untouched               map[string]string
	}
	burned(t, r, "burnin_disk", fields, &got)
	if g := got[names["good"]]; g.Size != rig.DiskSize || g.Written != rig.DiskSize || g.Verified != rig.DiskSize ||
		g.Seconds <= 0 || len(g.Untouched) != 0 {
		t.Errorf("got %+v for the tested disk, want %d bytes", g, rig.DiskSize)
	}
	for serial, reason := range map[string]string{
		"failing": "named by skip_block_devices", "skipped": "named by skip_block_devices", "readonly": "read-only",
		"member": `member of raid1 array "host:root", protected by skip_block_devices`,
		"floppy": "virtual floppy with the agent's parameters",
	} {
		if g := got[names[serial]]; g.Written != 0 || g.Untouched[names[serial]] != reason {
			t.Errorf("%s: got %+v, want it untouched: %s", serial, g, reason)
		}
	}
	if len(got) != len(names) {
		t.Errorf("got %d disks, want %d", len(got), len(names))
	}
}
