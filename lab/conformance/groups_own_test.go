//go:build linux

package conformance

import "testing"

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
