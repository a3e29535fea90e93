//go:build linux

package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"testing"

	"ironroot/initramfs"
	"ironroot/internal/test/testenv"
)

// group contains the scenarios that share a machine.
type group struct {
	name  string
	shape shape
	// shared scenarios use one agent, which is started before the first one. Otherwise each scenario starts its own.
	shared bool
	// start starts the agent of a shared group.
	start scenario
	// publish puts files on the server of images.
	publish   func(m *machine)
	scenarios []scenario
}

func groups() []group {
	return []group{
		commands(), protocol(), hints(), images(), drives(), raid(), raidRefusedGroup(), raidDeleteGroup(),
		raidApplyGroup(), steps(), options(), files(), erase(), metadata(), skip(), bootentries(), hardware(),
	}
}

// digest identifies what a scenario does. Functions do not belong to it.
func (s scenario) digest() string {
	text := fmt.Sprintf("%q %q %s %v %q %s", s.cmdline, s.config, encode(s.node), s.until, s.disks, s.describe())
	return identify(text)
}

// machineDigest identifies the machine of a group, and what a shared agent is started with. Functions do not belong
// to it.
func (g group) machineDigest() string {
	s := g.shape
	text := fmt.Sprintf("%d %v %q %q %q", s.memory, s.firmware, s.append, s.extra, s.variables)
	if s.nic != "" {
		text += " " + s.nic
	}
	for _, d := range s.disks {
		text += setFields(d.Disk)
	}
	for _, n := range s.nics {
		text += setFields(n)
	}
	if g.shared {
		text += " " + g.start.digest()
	}
	return identify(text)
}

// identify returns a short digest of a text.
func identify(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

// setFields returns the fields of a struct that are not zero: a field that lab/qemu adds changes no recorded machine.
func setFields(value any) (text string) {
	v := reflect.ValueOf(value)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			text += fmt.Sprintf(" %s=%v", v.Type().Field(i).Name, f)
		}
	}
	return text + ";"
}

// describe returns what a scenario does, for its digest. The text contains the names of the fields of replies, reply
// and request: one that is added or renamed requires new recordings. Fields of scenario that were added later are part
// of the text only if they are set. boot is not part of it: without boot entries, a recording differs anyway.
func (s scenario) describe() string {
	text := fmt.Sprintf("%+v %+v %v%s%s", s.ironic, s.do, s.ranges, s.prepared, s.marker)
	if len(s.files) > 0 {
		text += fmt.Sprintf(" %q", s.files)
	}
	if s.then != (until{}) {
		text += fmt.Sprintf(" %v", s.then)
	}
	if s.passes {
		text += " passes"
	}
	if len(s.clear) > 0 {
		text += fmt.Sprintf(" %+v", s.clear)
	}
	return text
}

// buildRamdisk builds the ramdisk from the sources in a directory, with the init of these machines.
func buildRamdisk(t *testing.T, dir string) ramdisk {
	t.Helper()
	testenv.Programs(t, "apt-get")
	report, err := initramfs.Build(t.Context(), initramfs.Options{
		Dir: dir, Out: t.TempDir(), Init: "ironroot/lab/conformance/agentinit",
	})
	if err != nil {
		t.Fatal(err)
	}
	return ramdisk{report.Kernel, report.Initramfs}
}

// run plays the scenarios of a group that want selects, and calls done with each observation.
func (g group) run(t *testing.T, rd ramdisk, want func(scenario) bool, done func(scenario, observation)) *machine {
	t.Helper()
	m := boot(t, rd, g.shape)
	if err := g.playAll(t.Context(), m, want, done); err != nil {
		t.Error(err)
	}
	return m
}

// playAll plays the scenarios of a group in a running machine of its shape. In a shared group, it ends at the first one
// that cannot be played, because others would find what that one left.
func (g group) playAll(
	ctx context.Context, m *machine, want func(scenario) bool, done func(scenario, observation),
) error {
	if g.publish != nil {
		g.publish(m)
	}
	if g.shared {
		if _, err := m.play(ctx, g.start, false); err != nil {
			return err
		}
	}
	var problems []error
	for _, s := range g.scenarios {
		if !want(s) {
			continue
		}
		o, err := m.play(ctx, s, g.shared)
		if err == nil {
			done(s, o)
			continue
		}
		problems = append(problems, fmt.Errorf("%s: %w", s.name, err))
		if g.shared {
			break
		}
	}
	return errors.Join(problems...)
}

// TestConformance compares this ramdisk with the recordings of ironic-python-agent.
func TestConformance(t *testing.T) {
	rd := buildRamdisk(t, testenv.Top(t))
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, text := range g.check(t, rd) {
				t.Error(text)
			}
		})
	}
}

// check plays a group. It returns the differences that are not listed, or, if there are none, the listed ones that
// did not occur, and in both cases the recorded scenarios that the table does not contain.
func (g group) check(t *testing.T, rd ramdisk) []string {
	t.Helper()
	listed := newListed(g.name)
	found := g.compare(t, rd, listed)
	if len(found) == 0 {
		found = listed.missing(g)
	}
	for _, name := range slices.Sorted(maps.Keys(readRecording(t, g.name).Scenarios)) {
		if !slices.ContainsFunc(g.scenarios, func(s scenario) bool { return s.name == name }) {
			found = append(found, name+": recorded, and not in the table")
		}
	}
	return found
}

// compare plays a group and returns the differences that are not listed, and the scenarios that were not recorded or
// have changed since.
func (g group) compare(t *testing.T, rd ramdisk, listed *listed) (found []string) {
	t.Helper()
	recorded := readRecording(t, g.name)
	report := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if recorded.Machine != g.machineDigest() {
		report("the machine is not recorded as it is now: make record-ipa ONLY=%s", g.name)
		return found
	}
	g.run(t, rd, scenario.isPlayed, func(s scenario, got observation) {
		if recorded.Digests[s.name] != s.digest() {
			report("%s: not recorded as it is now: make record-ipa ONLY=%s", s.name, g.name)
			return
		}
		for _, problem := range got.problems {
			report("%s: %s", s.name, problem)
		}
		for _, d := range differences("", listed.expected(recorded, s), comparison(got)) {
			if !listed.mark(s.name, d) {
				report("%s: %s: ironic-python-agent %s, ironroot %s", s.name, d.path, encode(d.want), encode(d.got))
			}
		}
	})
	return found
}

// difference is a value at which two observations differ. nil means that it is missing.
type difference struct {
	path      string
	want, got any
}

// differences returns the differences of two values of the types of package json.
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
		} else if ok && areRequests(want) && areRequests(got) {
			return requestDifferences(at, want, got)
		}
	}
	return []difference{{at, want, got}}
}

// areRequests reports whether a list has requests of an agent to Ironic.
func areRequests(list []any) bool {
	return !slices.ContainsFunc(list, func(value any) bool {
		fields, ok := value.(object)
		return !ok || fields["method"] == nil || fields["path"] == nil
	})
}

// requestDifferences compares two lists of requests of different length. Requests with the same method and path are
// compared. The path of an additional request of this ramdisk ends with a plus sign and its index.
func requestDifferences(at string, want, got []any) (found []difference) {
	same := func(a, b any) bool {
		return a.(object)["method"] == b.(object)["method"] && a.(object)["path"] == b.(object)["path"]
	}
	for i, j := 0, 0; i < len(want) || j < len(got); {
		switch {
		case i < len(want) && j < len(got) && same(want[i], got[j]):
			found = append(found, differences(fmt.Sprintf("%s/%d", at, i), want[i], got[j])...)
			i, j = i+1, j+1
		case len(got)-j > len(want)-i:
			found = append(found, difference{fmt.Sprintf("%s/+%d", at, j), nil, got[j]})
			j++
		default:
			found = append(found, difference{fmt.Sprintf("%s/%d", at, i), want[i], nil})
			i++
		}
	}
	return found
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

// expected returns the recorded observation of a scenario. If an entry says that disks are as in another scenario, it
// contains the recorded disks of that one.
func (l *listed) expected(r recording, s scenario) any {
	want := comparison(r.Scenarios[s.name])
	for _, d := range l.entries {
		if d.Like == "" || !slices.Contains(d.Scenarios, s.name) {
			continue
		}
		disks, others := want.(object)["disks"].(object), comparison(r.Scenarios[d.Like]).(object)["disks"].(object)
		for _, serial := range s.disks {
			if ok, err := path.Match(d.Path, "/disks/"+serial); !ok || err != nil {
				continue
			}
			other := others[serial].(object)
			if len(s.ranges) == 0 {
				delete(other, "ranges")
			}
			if !reflect.DeepEqual(disks[serial], any(other)) {
				l.found[d.key(s.name)] = true
			}
			disks[serial] = other
		}
	}
	return want
}

// mark reports whether a difference of a scenario is listed, and marks the entries that list it.
func (l *listed) mark(scenario string, found difference) bool {
	contained := false
	for _, d := range l.entries {
		for _, s := range d.Scenarios {
			inScenario, err := path.Match(s, scenario)
			inPath, err2 := path.Match(d.Path, found.path)
			values := d.permits(encode(found.want), encode(found.got))
			if err == nil && err2 == nil && inScenario && inPath && values && d.Like == "" {
				l.found[d.key(s)] = true
				contained = true
			}
		}
	}
	return contained
}

// isPlayed reports whether this run plays the scenario.
func (s scenario) isPlayed() bool { return playLong || !s.long }

// missing returns the listed differences that did not occur in the group, without differences of scenarios that were
// not played.
func (l *listed) missing(g group) (texts []string) {
	for _, d := range l.entries {
		for _, s := range d.Scenarios {
			skipped := slices.ContainsFunc(g.scenarios, func(other scenario) bool {
				matches, err := path.Match(s, other.name)
				return err == nil && matches && !other.isPlayed()
			})
			if !skipped && !l.found[d.key(s)] {
				texts = append(texts, fmt.Sprintf("%s: %s is listed as a difference, and there is none", s, d.Path))
			}
		}
	}
	return texts
}
