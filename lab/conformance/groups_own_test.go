//go:build linux

package conformance

import (
	"testing"

	"ironroot/lab/qemu"
)

// Recordings and listed differences name scenarios, so that names must be unique in a group.
func TestScenarioNames(t *testing.T) {
	for _, g := range groups() {
		names := map[string]bool{}
		for _, s := range g.scenarios {
			if names[s.name] {
				t.Errorf("%s: two scenarios %q", g.name, s.name)
			}
			names[s.name] = true
		}
		t.Logf("%s: %d scenarios", g.name, len(names))
	}
}

// A recording is of the machine and of the start of the shared agent that a group has.
func TestRecordedMachine(t *testing.T) {
	seen := map[string]string{}
	for name, change := range map[string]func(g *group){
		"none":      func(*group) {},
		"parameter": func(g *group) { g.shape.append = "ipa-debug=0" },
		"disk":      func(g *group) { g.shape.disks[1].Serial = "another" },
		"interface": func(g *group) { g.shape.nics = []qemu.NIC{{MAC: "52:54:00:00:00:99"}} },
		"variable":  func(g *group) { g.shape.variables = map[string][]byte{"Boot0007": {1}} },
		"argument":  func(g *group) { g.shape.extra = g.shape.extra[2:] },
		"start":     func(g *group) { g.start.cmdline += " ipa-disk-wait-delay=1" },
	} {
		g := hints()
		change(&g)
		if former, ok := seen[g.machineDigest()]; ok {
			t.Errorf("%s: the machine is identified like the one of %s", name, former)
		}
		seen[g.machineDigest()] = name
	}
}
