//go:build linux

package conformance

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/lab/qemu"
)

// Recordings and listed differences name scenarios, so that names must be unique in a group.
func TestScenarioNames(t *testing.T) {
	for _, g := range append(groups(), unrecorded()...) {
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

// An additional request does not hide a difference of another one, before or after it.
func TestRequestDifferences(t *testing.T) {
	request := func(path, version string) any { return object{"method": "GET", "path": path, "version": version} }
	for _, tt := range []struct {
		name      string
		want, got []any
		paths     []string
	}{
		{
			"additional",
			[]any{request("/", "1"), request("/a", "1"), request("/b", "1")},
			[]any{request("/", "1"), request("/a", "2"), request("/a", "1"), request("/b", "2")},
			[]string{"/1/version", "/+2", "/2/version"},
		},
		{
			"missing",
			[]any{request("/", "1"), request("/a", "1"), request("/b", "1")},
			[]any{request("/", "1"), request("/b", "2")},
			[]string{"/1", "/2/version"},
		},
		{"none", []any{request("/", "1")}, nil, []string{"/0"}},
		{"other lists", []any{"a"}, []any{"a", "b"}, []string{""}},
	} {
		var paths []string
		for _, d := range differences("", tt.want, tt.got) {
			paths = append(paths, d.path)
		}
		if diff := cmp.Diff(tt.paths, paths); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
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
		if former, ok := seen[g.machine()]; ok {
			t.Errorf("%s: the machine is identified like the one of %s", name, former)
		}
		seen[g.machine()] = name
	}
}
