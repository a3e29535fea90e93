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

// released lists the steps of each version: kind, priority, interface and name, whether Ironic may abort the step, and
// its arguments. Entries are added, never changed.
var released = map[string]string{
	"1.2-ironroot.1": `
clean 10 deploy.erase_devices abortable
clean 99 deploy.erase_devices_metadata abortable
clean 0 deploy.erase_devices_express abortable
clean 0 deploy.erase_pstore abortable
clean 0 deploy.clean_uefi_nvram abortable match_patterns
deploy 0 deploy.erase_devices_metadata
deploy 0 deploy.clean_uefi_nvram match_patterns
deploy 0 deploy.write_image
service 0 deploy.write_image
`,
	"1.2-ironroot.2": `
clean 10 deploy.erase_devices abortable
clean 99 deploy.erase_devices_metadata abortable
clean 0 deploy.erase_devices_express abortable
clean 0 deploy.erase_pstore abortable
clean 0 deploy.clean_uefi_nvram abortable match_patterns
clean 0 deploy.burnin_cpu abortable
clean 0 deploy.burnin_memory abortable
clean 0 deploy.burnin_disk abortable
deploy 0 deploy.erase_devices_metadata
deploy 0 deploy.clean_uefi_nvram match_patterns
deploy 0 deploy.write_image
service 0 deploy.write_image
service 0 deploy.burnin_cpu abortable
service 0 deploy.burnin_memory abortable
`,
	"1.2-ironroot.3": `
clean 10 deploy.erase_devices abortable
clean 99 deploy.erase_devices_metadata abortable
clean 0 deploy.erase_devices_express abortable
clean 0 deploy.erase_pstore abortable
clean 0 deploy.clean_uefi_nvram abortable match_patterns
clean 0 deploy.burnin_cpu abortable
clean 0 deploy.burnin_gpu abortable
clean 0 deploy.burnin_memory abortable
clean 0 deploy.burnin_network abortable
clean 0 deploy.burnin_disk abortable
deploy 0 deploy.erase_devices_metadata
deploy 0 deploy.clean_uefi_nvram match_patterns
deploy 0 deploy.write_image
service 0 deploy.write_image
service 0 deploy.burnin_cpu abortable
service 0 deploy.burnin_gpu abortable
service 0 deploy.burnin_memory abortable
service 0 deploy.burnin_network abortable
`,
	"1.2-ironroot.4": `
clean 10 deploy.erase_devices abortable
clean 99 deploy.erase_devices_metadata abortable
clean 0 deploy.erase_devices_express abortable
clean 0 deploy.erase_pstore abortable
clean 0 deploy.clean_uefi_nvram abortable match_patterns
clean 0 deploy.burnin_cpu abortable
clean 0 deploy.burnin_gpu abortable
clean 0 deploy.burnin_memory abortable
clean 0 deploy.burnin_network abortable
clean 0 deploy.burnin_disk abortable
deploy 0 deploy.erase_devices_metadata
deploy 0 deploy.clean_uefi_nvram match_patterns
deploy 0 deploy.write_image
deploy 0 deploy.inject_files files verify_ca
service 0 deploy.write_image
service 0 deploy.inject_files files verify_ca
service 0 deploy.burnin_cpu abortable
service 0 deploy.burnin_gpu abortable
service 0 deploy.burnin_memory abortable
service 0 deploy.burnin_network abortable
`,
}

// The list of steps of a version never changes: Ironic lists the steps of a node again only if the version of a
// manager has changed.
func TestVersionNamesSteps(t *testing.T) {
	m := newManager(t)
	got := "\n"
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
			got += strings.Join(words, " ") + "\n"
		}
	}
	want, known := released[m.Version()]
	if !known {
		t.Fatalf("version %s is not known: add it with these steps:%s", m.Version(), got)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps of version %s differ: raise the number in Version, and add it with its steps (-want +got):\n%s",
			m.Version(), diff)
	}
}
