//go:build linux

package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"testing"

	"ironroot/initramfs"
	"ironroot/internal/testenv"
)

// group contains the scenarios that share a machine.
type group struct {
	name  string
	shape shape
	// shared scenarios use one agent, which is started before the first one. Otherwise each scenario starts its own.
	shared bool
	// publish puts files on the server of images.
	publish   func(m *machine)
	scenarios []scenario
}

func groups() []group {
	return []group{protocol(), bootentries()}
}

// digest identifies what a scenario does. Functions do not belong to it.
func (s scenario) digest() string {
	text := fmt.Sprintf("%q %q %s %v %q %s", s.cmdline, s.config, encode(s.node), s.until, s.disks, s.describe())
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

func (s scenario) describe() string {
	return fmt.Sprintf("%+v %+v %v%s", s.ironic, s.do, s.ranges, s.prepared)
}

func buildRamdisk(t *testing.T) image {
	t.Helper()
	testenv.Programs(t, "apt-get")
	report, err := initramfs.Build(t.Context(), initramfs.Options{
		Dir: testenv.Top(t), Out: t.TempDir(), Init: "ironroot/lab/conformance/agentinit",
	})
	if err != nil {
		t.Fatal(err)
	}
	return image{report.Kernel, report.Initramfs}
}

// run plays the scenarios of a group that want selects, and calls done with each observation.
func (g group) run(t *testing.T, i image, want func(scenario) bool, done func(scenario, observation)) *machine {
	t.Helper()
	m := boot(t, i, g.shape)
	if g.publish != nil {
		g.publish(m)
	}
	if g.shared {
		if _, err := m.play(t.Context(), scenario{name: "start"}, false); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range g.scenarios {
		if !want(s) {
			continue
		}
		o, err := m.play(t.Context(), s, g.shared)
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
			continue
		}
		done(s, o)
	}
	return m
}

// TestConformance compares this ramdisk with the recordings of ironic-python-agent.
func TestConformance(t *testing.T) {
	i := buildRamdisk(t)
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			recorded := readRecording(t, g.name)
			listed := newListed(g.name)
			g.run(t, i, func(scenario) bool { return true }, func(s scenario, got observation) {
				want, ok := recorded.Scenarios[s.name]
				if !ok || recorded.Digests[s.name] != s.digest() {
					t.Errorf("%s: not recorded as it is now, make record-ipa ONLY=%s; ironroot %s", s.name, g.name, encode(got))
					return
				}
				for _, d := range differences("", plain(want), plain(got)) {
					if !listed.contains(s.name, d.path) {
						t.Errorf("%s: %s: ironic-python-agent %s, ironroot %s", s.name, d.path, encode(d.want), encode(d.got))
					}
				}
			})
			if !t.Failed() {
				listed.check(t)
			}
			for name := range recorded.Scenarios {
				if !slices.ContainsFunc(g.scenarios, func(s scenario) bool { return s.name == name }) {
					t.Errorf("%s: recorded, and not in the table", name)
				}
			}
		})
	}
}

// difference is a value at which two observations differ. nil means that it is missing.
type difference struct {
	path      string
	want, got any
}

// differences compares values of the types of package json.
func differences(at string, want, got any) []difference {
	if reflect.DeepEqual(want, got) {
		return nil
	}
	var found []difference
	switch want := want.(type) {
	case object:
		if got, ok := got.(object); ok {
			keys := maps.Clone(want)
			maps.Copy(keys, got)
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				_, wanted := want[key]
				_, there := got[key]
				switch {
				case wanted && there:
					found = append(found, differences(at+"/"+key, want[key], got[key])...)
				default:
					found = append(found, difference{at + "/" + key, want[key], got[key]})
				}
			}
			return found
		}
	case []any:
		if got, ok := got.([]any); ok && len(got) == len(want) {
			for i := range want {
				found = append(found, differences(fmt.Sprintf("%s/%d", at, i), want[i], got[i])...)
			}
			return found
		}
	}
	return []difference{{at, want, got}}
}

// listed are the listed differences of a group.
type listed struct {
	entries []Deviation
	found   map[string]bool
}

func newListed(group string) *listed {
	l := &listed{found: map[string]bool{}}
	for _, d := range Deviations() {
		if d.Group == group {
			l.entries = append(l.entries, d)
		}
	}
	return l
}

func (l *listed) contains(scenario, at string) bool {
	contained := false
	for _, d := range l.entries {
		for _, s := range d.Scenarios {
			inScenario, err := path.Match(s, scenario)
			inPath, err2 := path.Match(d.Path, at)
			if err == nil && err2 == nil && inScenario && inPath {
				l.found[s+" "+d.Path] = true
				contained = true
			}
		}
	}
	return contained
}

func (l *listed) check(t *testing.T) {
	t.Helper()
	for _, d := range l.entries {
		for _, s := range d.Scenarios {
			if !l.found[s+" "+d.Path] {
				t.Errorf("%s: %s is listed as a difference, and there is none", s, d.Path)
			}
		}
	}
}
