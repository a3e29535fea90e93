//go:build linux && long

package conformance

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/testenv"
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
			"raid", "invalid/two root volumes", "agent/hardware/generic/raidconfig.go", "if root && v.hasRoot",
			"if root && v.named",
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
			"err == nil && isBase64(drive)", "err != nil && isBase64(drive)",
		},
		{
			"options", "file quotes", "agent/config/ini.go", "strings.TrimPrefix(value, quote), quote)", "value, quote)",
		},
		{
			"files", "inject/existing with mode", "agent/hardware/generic/inject.go", "return changeMode(file, f.mode)",
			"return changeMode(file, f.mode|2)",
		},
		{
			"erase", "all/scsi", "agent/hardware/generic/flags.go", `truth(internal["agent_erase_devices_zeroize"], true)`,
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
			"skip", "read-only/all permitted", "agent/hardware/generic/flags.go", `internal["agent_erase_skip_read_only"]`,
			`internal["skip_read_only"]`,
		},
	}
}

// TestInjectedFaults builds the ramdisk with one fault after another, and plays the scenario that must find it. Without
// a fault, these scenarios must show no difference: they are played without those before them.
func TestInjectedFaults(t *testing.T) {
	i := buildRamdisk(t, testenv.Top(t))
	for _, g := range faultyGroups(t) {
		t.Run(g.name+" without a fault", func(t *testing.T) {
			for _, text := range g.compare(t, i, newListed(g.name)) {
				t.Error(text)
			}
		})
	}
	for _, fault := range injectedFaults() {
		t.Run(fault.group+" "+fault.scenario, func(t *testing.T) {
			dir := copySources(t)
			file := filepath.Join(dir, fault.file)
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(content, []byte(fault.old)); n != 1 {
				t.Fatalf("%s contains %q %d times, want once", fault.file, fault.old, n)
			}
			content = bytes.Replace(content, []byte(fault.old), []byte(fault.faulty), 1)
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			g := fault.scenarios(t)
			found := g.compare(t, buildRamdisk(t, dir), newListed(g.name))
			if len(found) == 0 {
				t.Errorf("%s: %q instead of %q: no difference", fault.file, fault.faulty, fault.old)
			}
			t.Log(strings.Join(found, "\n"))
		})
	}
}

// faultyGroups returns the groups of the faults, with the scenarios that must find them.
func faultyGroups(t *testing.T) []group {
	var all []group
	for _, fault := range injectedFaults() {
		g := fault.scenarios(t)
		i := slices.IndexFunc(all, func(other group) bool { return other.name == g.name })
		if i < 0 {
			all = append(all, g)
		} else {
			all[i].scenarios = append(all[i].scenarios, g.scenarios...)
		}
	}
	return all
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

// copySources returns a directory with a copy of the sources of this repository.
func copySources(t *testing.T) string {
	t.Helper()
	top, dir := testenv.Top(t), t.TempDir()
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == ".git" || name == "build" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(dir, name), 0o755)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
