//go:build linux && long

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/debtest"
	"ironroot/internal/test/testenv"
	"ironroot/lab/ipa"
)

// recordEnv is the environment variable with the name of the group to record, or "all".
const recordEnv = "IRONROOT_RECORD_IPA"

// recordedPackages are the packages whose versions a recording contains, with the kernel.
var recordedPackages = strings.Fields(`kernel ironic-python-agent python3 python3-hardware python3-oslo.utils
	python3-werkzeug python3-cheroot mdadm parted gdisk util-linux udev qemu-utils lvm2 cryptsetup-bin efibootmgr
	multipath-tools nvme-cli hdparm smartmontools ethtool lshw dosfstools e2fsprogs xfsprogs`)

// TestRecordIPA plays the scenarios with ironic-python-agent. If the environment variable names a group or "all", it
// records the scenarios that are new or have changed. Otherwise it compares ironic-python-agent with the recordings.
// Differences fail the test only if the recordings are of the same version of ironic-python-agent.
func TestRecordIPA(t *testing.T) {
	only := os.Getenv(recordEnv)
	named := func(g group) bool { return only == "all" || only == g.name }
	if only != "" && !slices.ContainsFunc(groups(), named) {
		t.Fatalf("%s: no group has the name %q", recordEnv, only)
	}
	rd := ipaRamdisk(t)
	if only == "" {
		for _, g := range groups() {
			t.Run(g.name, func(t *testing.T) { checkRecording(t, g, rd) })
		}
		return
	}
	machines := map[string]*machine{} // by shape
	for _, g := range groups() {
		if named(g) {
			record(t, rd, g, machines)
		}
	}
}

// record records the missing scenarios of a group in a machine of its shape. After one that fails, it starts a new
// machine and tries the missing ones again, each of them twice.
func record(t *testing.T, rd ramdisk, g group, machines map[string]*machine) {
	t.Helper()
	r := readRecording(t, g.name)
	if r.Machine != g.machineDigest() {
		r = recording{Machine: g.machineDigest()}
	}
	r.prune(g)
	r.write(t, g.name)
	shape, attempts := fmt.Sprintf("%+v", g.shape), map[string]int{}
	missing := func(s scenario) bool { return r.Digests[s.name] != s.digest() }
	wanted := func(s scenario) bool { return missing(s) && attempts[s.name] < 2 }
	for r.Versions == nil || slices.ContainsFunc(g.scenarios, wanted) {
		if machines[shape] == nil {
			machines[shape] = boot(t, rd, g.shape)
		}
		m := machines[shape]
		if versions := packageVersions(t, m); !maps.Equal(r.Versions, versions) {
			r.Versions, r.Scenarios, r.Digests = versions, map[string]observation{}, map[string]string{}
		}
		r.write(t, g.name)
		played := false
		err := g.playAll(t.Context(), m, func(s scenario) bool {
			if !wanted(s) {
				return false
			}
			attempts[s.name]++
			played = true
			return true
		}, func(s scenario, o observation) {
			t.Logf("%s: recorded %s", g.name, s.name)
			r.Scenarios[s.name], r.Digests[s.name] = o, s.digest()
			r.write(t, g.name)
		})
		if err == nil {
			continue
		}
		if !played {
			t.Fatalf("%s: %v", g.name, err)
		}
		t.Logf("%s: %v", g.name, err)
		_ = m.vm.Stop() // it may have ended already
		delete(machines, shape)
	}
	for _, s := range g.scenarios {
		if missing(s) {
			t.Errorf("%s: %s cannot be recorded", g.name, s.name)
		}
	}
}

// prune deletes the scenarios that the group no longer contains.
func (r *recording) prune(g group) {
	if r.Scenarios == nil {
		r.Scenarios, r.Digests = map[string]observation{}, map[string]string{}
	}
	unknown := func(name string) bool {
		return !slices.ContainsFunc(g.scenarios, func(s scenario) bool { return s.name == name })
	}
	maps.DeleteFunc(r.Scenarios, func(name string, _ observation) bool { return unknown(name) })
	maps.DeleteFunc(r.Digests, func(name, _ string) bool { return unknown(name) })
}

// checkRecording compares what ironic-python-agent does today with its recording.
func checkRecording(t *testing.T, g group, rd ramdisk) {
	t.Helper()
	r := readRecording(t, g.name)
	var found []string
	m := g.run(t, rd, func(scenario) bool { return true }, func(s scenario, o observation) {
		for _, d := range differences("", comparison(r.Scenarios[s.name]), comparison(o)) {
			text := fmt.Sprintf("%s: %s: recorded %s, now %s", s.name, d.path, encode(d.want), encode(d.got))
			found = append(found, text)
		}
	})
	const agent = "ironic-python-agent"
	now := packageVersions(t, m)
	t.Logf("%s: recorded %s, now %s", agent, r.Versions[agent], now[agent])
	for _, text := range found {
		if r.Versions[agent] == now[agent] {
			t.Error(text)
		} else {
			t.Log(text)
		}
	}
}

// packageVersions returns the versions of the packages that a recording names.
func packageVersions(t *testing.T, m *machine) map[string]string {
	t.Helper()
	installed, err := m.control.Versions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, name := range recordedPackages {
		if installed[name] == "" {
			t.Errorf("the machine of ironic-python-agent has no package %s", name)
		}
		found[name] = installed[name]
	}
	return found
}

// ipaRamdisk returns the ramdisk with ironic-python-agent.
func ipaRamdisk(t *testing.T) ramdisk {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "mmdebstrap", "cpio", "zstd")
	debs := debtest.Packages(t, "", "linux-image-amd64:amd64", "linux-image-")
	built, err := ipa.Build(t.Context(), debs[len(debs)-1], t.Output())
	if err != nil {
		t.Fatal(err)
	}
	return ramdisk{built.Kernel, built.Initramfs}
}

// write writes the recording of a group.
func (r recording) write(t testing.TB, group string) {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(r); err != nil {
		t.Fatal(err)
	}
	file := recordingFile(t, group)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
