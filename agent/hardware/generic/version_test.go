package generic

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/hardware"
)

// released lists the versions in their order. Entries are added, never changed. 1.2 is the version of
// ironic-python-agent's manager. The versions with numbers up to 11 lacked steps of it; those with numbers from 12
// follow it.
var released = []struct {
	version string
	// added lists the steps that the version has in addition to the one before: kind, priority, interface and name,
	// whether Ironic may abort the step, and its arguments. A version without a step of the one before repeats that
	// step in removed.
	added, removed string
}{
	{version: "1.2-ironroot.1", added: `
clean 10 deploy.erase_devices abortable
clean 99 deploy.erase_devices_metadata abortable
clean 0 deploy.erase_devices_express abortable
clean 0 deploy.erase_pstore abortable
clean 0 deploy.clean_uefi_nvram abortable match_patterns
deploy 0 deploy.erase_devices_metadata
deploy 0 deploy.clean_uefi_nvram match_patterns
deploy 0 deploy.write_image
service 0 deploy.write_image
`},
	{version: "1.2-ironroot.2", added: `
clean 0 deploy.burnin_cpu abortable
clean 0 deploy.burnin_memory abortable
clean 0 deploy.burnin_disk abortable
service 0 deploy.burnin_cpu abortable
service 0 deploy.burnin_memory abortable
`},
	{version: "1.2-ironroot.3", added: `
clean 0 deploy.burnin_gpu abortable
clean 0 deploy.burnin_network abortable
service 0 deploy.burnin_gpu abortable
service 0 deploy.burnin_network abortable
`},
	{version: "1.2-ironroot.4", added: `
deploy 0 deploy.inject_files files verify_ca
service 0 deploy.inject_files files verify_ca
`},
	{version: "1.2-ironroot.5"}, // erase_devices sanitizes NVMe drives
	{version: "1.2-ironroot.6"}, // erase steps read back and give evidence
	{version: "1.2-ironroot.7", added: `
clean 0 raid.delete_configuration abortable
clean 0 raid.create_configuration abortable
deploy 0 raid.apply_configuration delete_existing raid_config (required)
service 0 raid.delete_configuration abortable
service 0 raid.create_configuration abortable
service 0 raid.apply_configuration delete_existing raid_config (required)
`},
	{version: "1.2-ironroot.8"},  // erase_devices sanitizes NVMe drives with several namespaces
	{version: "1.2-ironroot.9"},  // erase_devices_metadata keeps the arrays of raid_config
	{version: "1.2-ironroot.10"}, // all erase steps keep them
	{version: "1.2-ironroot.11"}, // disks of a network are left untouched
	{version: "1.2", added: `
deploy 0 deploy.execute_bootc_install
service 0 deploy.execute_bootc_install
`}, // the steps of ironic-python-agent
	{version: "1.2-ironroot.12"}, // RAID steps leave disks of a network untouched
	{version: "1.2-ironroot.13"}, // inject_files assembles the array of a named device
}

// stepsOf returns the steps of a version, sorted. It reports whether the version is known.
func stepsOf(version string) (steps []string, known bool) {
	for _, r := range released {
		steps = append(steps, lines(r.added)...)
		steps = slices.DeleteFunc(steps, func(step string) bool { return slices.Contains(lines(r.removed), step) })
		if r.version == version {
			return slices.Sorted(slices.Values(steps)), true
		}
	}
	return nil, false
}

// lines returns the lines of a text that are not empty.
func lines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

// The list of steps of a version never changes: Ironic lists the steps of a node again only if the version of a
// manager has changed.
func TestVersionNamesSteps(t *testing.T) {
	m := newManager(t)
	var got []string
	for _, kind := range []hardware.Kind{hardware.Clean, hardware.Deploy, hardware.Service} {
		for _, step := range m.Steps(kind, nil, nil) {
			words := []string{string(kind), fmt.Sprint(step.Priority), step.Interface + "." + step.Name}
			if step.Abortable != nil && *step.Abortable {
				words = append(words, "abortable")
			}
			for _, name := range slices.Sorted(maps.Keys(step.ArgsInfo)) {
				if step.ArgsInfo[name].Required {
					name += " (required)"
				}
				words = append(words, name)
			}
			got = append(got, strings.Join(words, " "))
		}
	}
	slices.Sort(got)
	want, known := stepsOf(m.Version())
	if !known {
		t.Fatalf("version %s is not known: add what it changes of these steps:\n%s", m.Version(),
			strings.Join(got, "\n"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps of version %s differ: raise the number in Version, and add it with the changes "+
			"(-want +got):\n%s", m.Version(), diff)
	}
}
