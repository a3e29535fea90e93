package generic

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/hardware"
	"ironroot/internal/test/testenv"
)

// stepVersion is the version of the manager of the same name in ironic-python-agent.
const stepVersion = "1.2"

// stepTable has the steps of this manager in this version, from its documentation, without the descriptions of
// arguments. It changes only when they do, and then together with stepVersion.
var stepTable = map[hardware.Kind]string{
	hardware.Clean: `[
	{"step": "erase_devices", "interface": "deploy", "priority": 10, "reboot_requested": false, "abortable": true},
	{"step": "erase_devices_metadata", "interface": "deploy", "priority": 99, "reboot_requested": false,
		"abortable": true},
	{"step": "erase_devices_express", "interface": "deploy", "priority": 0, "reboot_requested": false,
		"abortable": true},
	{"step": "erase_pstore", "interface": "deploy", "priority": 0, "reboot_requested": false, "abortable": true},
	{"step": "clean_uefi_nvram", "interface": "deploy", "priority": 0, "reboot_requested": false, "abortable": true,
		"argsinfo": {"match_patterns": {"required": false}}},
	{"step": "delete_configuration", "interface": "raid", "priority": 0, "reboot_requested": false, "abortable": true},
	{"step": "create_configuration", "interface": "raid", "priority": 0, "reboot_requested": false, "abortable": true},
	{"step": "burnin_cpu", "interface": "deploy", "priority": 0, "reboot_requested": false, "abortable": true},
	{"step": "burnin_gpu", "interface": "deploy", "priority": 0, "reboot_requested": false, "abortable": true},
	{"step": "burnin_memory", "interface": "deploy", "priority": 0, "reboot_requested": false, "abortable": true},
	{"step": "burnin_network", "interface": "deploy", "priority": 0, "reboot_requested": false, "abortable": true},
	{"step": "burnin_disk", "interface": "deploy", "priority": 0, "reboot_requested": false, "abortable": true}
	]`,
	hardware.Deploy: `[
	{"step": "erase_devices_metadata", "interface": "deploy", "priority": 0, "reboot_requested": false},
	{"step": "clean_uefi_nvram", "interface": "deploy", "priority": 0, "reboot_requested": false,
		"argsinfo": {"match_patterns": {"required": false}}},
	{"step": "apply_configuration", "interface": "raid", "priority": 0, "reboot_requested": false,
		"argsinfo": {"raid_config": {"required": true}, "delete_existing": {"required": false}}},
	{"step": "write_image", "interface": "deploy", "priority": 0, "reboot_requested": false},
	{"step": "inject_files", "interface": "deploy", "priority": 0, "reboot_requested": false,
		"argsinfo": {"files": {"required": false}, "verify_ca": {"required": false}}},
	{"step": "execute_bootc_install", "interface": "deploy", "priority": 0, "reboot_requested": false}
	]`,
	hardware.Service: `[
	{"step": "delete_configuration", "interface": "raid", "priority": 0, "reboot_requested": false, "abortable": true},
	{"step": "create_configuration", "interface": "raid", "priority": 0, "reboot_requested": false, "abortable": true},
	{"step": "apply_configuration", "interface": "raid", "priority": 0, "reboot_requested": false,
		"argsinfo": {"raid_config": {"required": true}, "delete_existing": {"required": false}}},
	{"step": "burnin_cpu", "interface": "deploy", "priority": 0, "reboot_requested": false, "abortable": true},
	{"step": "burnin_gpu", "interface": "deploy", "priority": 0, "reboot_requested": false, "abortable": true},
	{"step": "burnin_memory", "interface": "deploy", "priority": 0, "reboot_requested": false, "abortable": true},
	{"step": "burnin_network", "interface": "deploy", "priority": 0, "reboot_requested": false, "abortable": true},
	{"step": "write_image", "interface": "deploy", "priority": 0, "reboot_requested": false},
	{"step": "inject_files", "interface": "deploy", "priority": 0, "reboot_requested": false,
		"argsinfo": {"files": {"required": false}, "verify_ca": {"required": false}}},
	{"step": "execute_bootc_install", "interface": "deploy", "priority": 0, "reboot_requested": false}
	]`,
}

// Steps and version are the same as in ironic-python-agent: Ironic lists the steps of a node again only if
// the version of a manager has changed.
//
// Parity: F3 (table of steps)
func TestStepTable(t *testing.T) {
	m := newManager(t)
	if m.Class() != "GenericHardwareManager" || m.Name() != "generic_hardware_manager" ||
		m.Version() != stepVersion {
		t.Errorf("got manager %s, %s %s, want GenericHardwareManager, generic_hardware_manager %s",
			m.Class(), m.Name(), m.Version(), stepVersion)
	}
	for _, kind := range []hardware.Kind{hardware.Clean, hardware.Deploy, hardware.Service} {
		table := stepTable[kind]
		text, err := json.Marshal(m.Steps(kind, nil, nil))
		if err != nil {
			t.Fatal(err)
		}
		var got, want []map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(table), &want); err != nil {
			t.Fatal(err)
		}
		for _, step := range got {
			arguments, _ := step["argsinfo"].(map[string]any)
			for name, argument := range arguments {
				if description, _ := argument.(map[string]any)["description"].(string); description == "" {
					t.Errorf("%s step %s: argument %s has no description", kind, step["step"], name)
				}
				delete(argument.(map[string]any), "description")
			}
		}
		byName := func(steps []map[string]any) map[any]any { // their order has no meaning
			named := map[any]any{}
			for _, step := range steps {
				named[step["step"]] = step
			}
			return named
		}
		if diff := cmp.Diff(byName(want), byName(got)); diff != "" || len(got) != len(want) {
			t.Errorf("%s steps: Manager.table in steps.go differs from stepTable of this test (-want +got):\n%s",
				kind, diff)
		}
	}
}

// The table lists every method that is a step.
func TestStepsAreListed(t *testing.T) {
	var functions []any
	for _, r := range newManager(t).table() {
		functions = append(functions, r.step.Run)
	}
	testenv.CheckListed(t, ".", "func(context.Context, hardware.Call) (any, error)",
		"Manager.table in agent/hardware/generic/steps.go", functions...)
}

// stepOf returns the function of a step, which checks the names of its arguments.
func stepOf(t *testing.T, m *Manager, kind hardware.Kind, name string) hardware.StepFunc {
	t.Helper()
	steps := m.Steps(kind, nil, nil)
	at := slices.IndexFunc(steps, func(s hardware.Step) bool { return s.Name == name })
	if at < 0 {
		t.Fatalf("%s: no such step", name)
	}
	return steps[at].Run
}
