//go:build linux

package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"ironroot/lab/qemu"
)

// contradictions returns the contradictions between the evidence of this ramdisk and the disks of a scenario: an erased
// disk without a write, an erased disk with planted text after erase_devices, an overwritten disk whose outcome is
// another one, and a disk without evidence after a step that erases. written is by serial number. erase_devices and
// erase_devices_express can erase NVMe disks without a write.
func contradictions(o observation, disks map[string]qemu.Disk, written map[string]writes) (problems []string) {
	for _, x := range o.Agent {
		step := ""
		outcomes := map[string]any{}
		each(x.Body, func(fields object) {
			if name, ok := fields["step"].(string); ok {
				step = name
			}
			if record, ok := fields["record"].(object); ok {
				disk, _ := record["disk"].(object)
				serial, _ := disk["serial"].(string)
				outcomes[serial] = record["outcome"]
			}
		})
		if x.failed() || !strings.HasPrefix(step, "erase_devices") {
			continue
		}
		for _, serial := range slices.Sorted(maps.Keys(o.Disks)) {
			noWrites := written[serial].bytes == 0 &&
				(disks[serial].Bus != qemu.NVMe || step == "erase_devices_metadata")
			planted := slices.ContainsFunc(o.Disks[serial].Content, func(s span) bool {
				return strings.Contains(s.What, "planted")
			})
			outcome, found := outcomes[serial]
			switch {
			case !found, outcome == "erased" && (noWrites || step == "erase_devices" && planted),
				outcome != "erased" && o.Passes[serial] > 0:
				problems = append(problems, fmt.Sprintf("evidence of %s: disk %s is %v, planted text remains: %v, %+v",
					step, serial, outcome, planted, written[serial]))
			}
		}
	}
	return problems
}

func TestContradictions(t *testing.T) {
	disks := map[string]qemu.Disk{"A": {Bus: qemu.SCSI}, "N": {Bus: qemu.NVMe}}
	for _, tt := range []struct {
		serial, step, outcome, content string
		written                        int64
		want                           bool
	}{
		{"A", "erase_devices", "erased", "data", 100, false},
		{"A", "erase_devices", "erased", "data", 0, true},
		{"A", "erase_devices", "erased", "planted, data", 100, true},
		{"A", "erase_devices", "not erased", "data", 100, true},
		{"A", "erase_devices", "not erased", "planted", 0, false},
		{"A", "erase_devices", "", "data", 100, true},
		{"A", "erase_devices_metadata", "erased", "planted", 100, false},
		{"N", "erase_devices", "erased", "data", 0, false},
		{"N", "erase_devices_metadata", "erased", "data", 0, true},
		{"A", "inject_files", "", "data", 100, false},
	} {
		result := object{}
		if tt.outcome != "" {
			result["record"] = object{"outcome": tt.outcome, "disk": object{"serial": tt.serial}}
		}
		o := observation{
			Agent: []exchange{{Body: object{
				"clean_step": object{"step": tt.step}, "clean_result": object{"/dev/sda": result},
			}}},
			Disks:  map[string]*diskState{tt.serial: {Content: []span{{What: tt.content}}}},
			Passes: map[string]int64{tt.serial: tt.written / 100},
		}
		got := contradictions(o, disks, map[string]writes{tt.serial: {bytes: tt.written}})
		if (len(got) > 0) != tt.want {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
}
