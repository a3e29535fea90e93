//go:build linux

package conformance

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

// injected is a fault of the agent that a scenario must find.
type injected struct {
	group, scenario string // scenario is a pattern of path.Match
	file            string // below the top directory
	old, faulty     string // a text that occurs once, and what replaces it
}

func injectedFaults() []injected {
	return []injected{
		{"protocol", "busy", "agent/fault/kinds.go", `"Agent is busy", "executing`, `"Agent works", "executing`},
		{"protocol", "names", "agent/ironic/lookup.go", `"addresses"`, `"address"`},
		{"protocol", "version 1.36", "agent/ironic/heartbeat.go", `body["agent_version"] =`, `body["version"] =`},
		{
			"hints", "rotational: false", "storage/block/list.go", "slices.Compare(a.number[:], b.number[:])",
			"slices.Compare(b.number[:], a.number[:])",
		},
		{
			"hints", `serial: *in* 0815"`, "storage/hint/expression.go", "strings.Contains(value, want)",
			"strings.HasPrefix(value, want)",
		},
		{
			"images", "drive, gpt on a large disk", "storage/configdrive/configdrive.go", "MaxSize = 64 << 20",
			"MaxSize = 32 << 20",
		},
		{
			"images", "qcow2 with a backing file", "storage/image/qcow2/header.go",
			"binary.BigEndian.Uint64(b[8:]) != 0 || binary.BigEndian.Uint32(b[16:]) != 0", "false",
		},
		{
			"raidrefused", "invalid/two root volumes", "agent/softraid/config.go", "if root && c.hasRoot",
			"if root && c.named",
		},
		{
			"raid", "bios msdos", "agent/softraid/create.go", "raidStartMBR  = 1 << 20",
			"raidStartMBR = 2 << 20",
		},
		{
			"raiddelete", "keep/delete", "agent/softraid/delete.go",
			`g.mark(actionKeep, "protected by skip_block_devices", kept)`, `g.mark(actionDelete, "", kept)`,
		},
		{
			"raidapply", "apply/delete_existing null", "agent/hardware/generic/raid.go",
			"remove = value != nil && *value", "remove = value == nil || *value",
		},
		{
			"hardware", "inspection extra-hardware", "agent/inspection/extradisk.go", `"wwn-"+wwn`, "wwn",
		},
		{"steps", "step/versions", "agent/command/record.go", `= "CLEAN_VERSION_MISMATCH"`, `= "VERSION_MISMATCH"`},
		{
			"steps", "steps of clean", "agent/hardware/generic/steps.go", "{priority: 10, abortable: true}",
			"{priority: 11, abortable: true}",
		},
		{
			"commands", "image hash without algo", "agent/imaging/info.go",
			`return fault.InvalidCommandParams("image_info has 'os_hash_value' without 'os_hash_algo'")`, "return nil",
		},
		{
			"drives", "url of base64 that is not gzip", "storage/configdrive/configdrive.go",
			"blockSize(drive) < math.MaxInt64", "blockSize(drive) > 0",
		},
		{
			"options", "file quotes", "agent/config/ini.go",
			"strings.TrimPrefix(value, quote), quote)", "value, quote)",
		},
		{
			"files", "inject/existing with mode", "agent/inject/inject.go", "return changeMode(file, f.mode)",
			"return changeMode(file, f.mode|2)",
		},
		{
			"erase", "all/scsi", "agent/cleaning/flags.go",
			`truth(internal["agent_erase_devices_zeroize"], true)`,
			`truth(internal["agent_erase_devices_zeroize"], false)`,
		},
		{
			"metadata", "metadata/gpt", "storage/erase/metadata.go", "err := metadata(ctx, sys, device, wait); err",
			"err := wait.free(ctx, sys, device); err",
		},
		{"images", "partition/swap", "agent/imaging/partitions.go", `= "swap1"`, `= "swap"`},
		{
			"images", "download/status 206", "agent/imaging/imaging.go", "download.Status != http.StatusOK",
			"download.Status >= http.StatusBadRequest",
		},
		{
			// The first scenario: what another one finds depends on those before it.
			"bootentries", "default loader", "storage/bootloader/loaders.go", `"ironic%d", i+1`, `"ironic%d", i`,
		},
		{
			"skip", "read-only/all permitted", "agent/cleaning/flags.go",
			`internal["agent_erase_skip_read_only"]`,
			`internal["skip_read_only"]`,
		},
	}
}

// scenarios returns the fault's group with the scenarios that its pattern matches.
func (f injected) scenarios(t *testing.T) group {
	t.Helper()
	for _, g := range groups() {
		if g.name != f.group {
			continue
		}
		g.scenarios = slices.DeleteFunc(g.scenarios, func(s scenario) bool {
			matches, err := path.Match(f.scenario, s.name)
			return err != nil || !matches
		})
		if len(g.scenarios) > 0 {
			return g
		}
	}
	t.Fatalf("no scenario %q in the group %s", f.scenario, f.group)
	return group{}
}

// inject returns the fault's file with the fault.
func (f injected) inject(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(testenv.Top(t), f.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(content), f.old); n != 1 {
		t.Fatalf("%s contains %q %d times, want once", f.file, f.old, n)
	}
	return strings.Replace(string(content), f.old, f.faulty, 1)
}

// Each fault can still be injected, and each group has one. TestInjectedFaults, which takes longer, injects them.
func TestInjectableFaults(t *testing.T) {
	faulty := map[string]bool{}
	for _, fault := range injectedFaults() {
		fault.inject(t)
		fault.scenarios(t)
		faulty[fault.group] = true
	}
	for _, g := range groups() {
		if !faulty[g.name] {
			t.Errorf("the group %s has no injected fault", g.name)
		}
	}
}
