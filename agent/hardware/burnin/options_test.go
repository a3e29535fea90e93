package burnin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The defaults are ironic-python-agent's.
//
// Parity: P9 (defaults of settings)
func TestDefaults(t *testing.T) {
	cpu, err := CPUOptionsOf(nil)
	if diff := cmp.Diff(CPUOptions{Timeout: 86400 * time.Second}, cpu); diff != "" || err != nil {
		t.Errorf("cpu: %v (-want +got):\n%s", err, diff)
	}
	memory, err := MemoryOptionsOf(nil)
	if diff := cmp.Diff(MemoryOptions{Timeout: 86400 * time.Second, Percent: 98}, memory); diff != "" || err != nil {
		t.Errorf("memory: %v (-want +got):\n%s", err, diff)
	}
	disk, err := DiskOptionsOf(nil)
	if diff := cmp.Diff(DiskOptions{Loops: 4}, disk); diff != "" || err != nil {
		t.Errorf("disk: %v (-want +got):\n%s", err, diff)
	}
}

// parsed returns the options of settings, whose names lack their prefix.
func parsed(t *testing.T, info string) (options map[string]any, err error) {
	t.Helper()
	var short map[string]any
	if err := json.Unmarshal([]byte("{"+info+"}"), &short); err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	for name, value := range short {
		values["agent_burnin_"+name] = value
	}
	cpu, cpuErr := CPUOptionsOf(values)
	memory, memoryErr := MemoryOptionsOf(values)
	disk, diskErr := DiskOptionsOf(values)
	for _, e := range []error{cpuErr, memoryErr, diskErr} {
		if e != nil {
			err = e
		}
	}
	return map[string]any{"cpu": cpu, "memory": memory, "disk": disk}, err
}

func TestOptions(t *testing.T) {
	cpu := CPUOptions{Timeout: day}
	memory := MemoryOptions{Timeout: day, Percent: 98}
	disk := DiskOptions{Loops: 4}
	for info, want := range map[string]any{
		`"cpu_cpu": 3, "cpu_timeout": 600`:     CPUOptions{Workers: 3, Timeout: 10 * time.Minute},
		`"cpu_cpu": "3", "cpu_timeout": "9m"`:  CPUOptions{Workers: 3, Timeout: 9 * time.Minute},
		`"cpu_outputfile": "/var/log/cpu"`:     CPUOptions{Timeout: day, Output: "/var/log/cpu"},
		`"cpu_cpu": -1, "cpu_outputfile": ""`:  cpu,
		`"cpu_cpu": null, "cpu_timeout": "1d"`: cpu,
		`"cpu_timeout": "10y"`:                 CPUOptions{Timeout: maxDuration},

		`"vm_vm": 2, "vm_timeout": " 2H "`:            MemoryOptions{Workers: 2, Timeout: 2 * time.Hour, Percent: 98},
		`"vm_vm-bytes": "50%"`:                        MemoryOptions{Timeout: day, Percent: 50},
		`"vm_vm-bytes": 96, "vm_outputfile": "/a//b"`: MemoryOptions{Timeout: day, Bytes: 96, Output: "/a/b"},
		`"vm_vm-bytes": "512b"`:                       MemoryOptions{Timeout: day, Bytes: 512},
		`"vm_vm-bytes": "3K"`:                         MemoryOptions{Timeout: day, Bytes: 3 << 10},
		`"vm_vm-bytes": "3m"`:                         MemoryOptions{Timeout: day, Bytes: 3 << 20},
		`"vm_vm-bytes": "3g"`:                         MemoryOptions{Timeout: day, Bytes: 3 << 30},
		`"vm_vm-bytes": "1T"`:                         MemoryOptions{Timeout: day, Bytes: 1 << 40},
		`"vm_vm-bytes": "99.5%"`:                      MemoryOptions{Timeout: day, Percent: 99.5},
		`"memory_vm-bytes": "1"`:                      memory, // not an option

		`"fio_disk_loops": "2", "fio_disk_outputfile": "/x"`: DiskOptions{Loops: 2, Output: "/x"},
		`"fio_disk_runtime": "1h"`:                           DiskOptions{Loops: 4, Runtime: time.Hour},
		`"fio_disk_loops": 0, "fio_disk_runtime": 5`:         DiskOptions{Runtime: 5 * time.Second},
		`"fio_disk_smart_test": "no"`:                        disk,
		`"fio_disk_smart_test": false`:                       disk,
	} {
		got, err := parsed(t, info)
		if err != nil {
			t.Errorf("%s: %v", info, err)
			continue
		}
		all := map[string]any{"cpu": cpu, "memory": memory, "disk": disk}
		switch want.(type) {
		case CPUOptions:
			all["cpu"] = want
		case MemoryOptions:
			all["memory"] = want
		case DiskOptions:
			all["disk"] = want
		}
		if diff := cmp.Diff(all, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", info, diff)
		}
	}
}

// A bad setting is an error with its name and value.
func TestBadOptions(t *testing.T) {
	for info, want := range map[string]string{
		`"cpu_cpu": "all"`:               `"all"`,
		`"cpu_cpu": 1.5`:                 `"1.5"`,
		`"cpu_cpu": 8193`:                `8192`,
		`"cpu_cpu": true`:                `"true"`,
		`"cpu_cpu": [1]`:                 `[1]`,
		`"cpu_timeout": 0`:               "got 0",
		`"cpu_timeout": "-1"`:            `"-1"`,
		`"cpu_timeout": "1.5h"`:          `"1.5h"`,
		`"cpu_timeout": "10ms"`:          `"10ms"`,
		`"cpu_timeout": "h"`:             `"h"`,
		`"cpu_timeout": ""`:              `""`,
		`"cpu_timeout": "11y"`:           `"11y"`,
		`"cpu_timeout": "ȺȺ"`:            `"ȺȺ"`, // longer in lower case
		`"cpu_outputfile": "log"`:        `"log"`,
		`"vm_vm": "x"`:                   `"x"`,
		`"vm_timeout": 0`:                "got 0",
		`"vm_vm-bytes": "0%"`:            `"0%"`,
		`"vm_vm-bytes": "101%"`:          `"101%"`,
		`"vm_vm-bytes": "NaN%"`:          `"NaN%"`,
		`"vm_vm-bytes": "-1g"`:           `"-1g"`,
		`"vm_vm-bytes": 0`:               `"0"`,
		`"vm_vm-bytes": "1gb"`:           `"1gb"`,
		`"vm_vm-bytes": "8388608t"`:      `"8388608t"`,
		`"vm_vm-bytes": {}`:              `map[]`,
		`"vm_vm-bytes": "ȺȺ"`:            `"ȺȺ"`,
		`"fio_disk_loops": 0`:            "at least 1",
		`"fio_disk_loops": -1`:           `"-1"`,
		`"fio_disk_runtime": "soon"`:     `"soon"`,
		`"fio_disk_smart_test": true`:    "not supported",
		`"fio_disk_smart_test": "maybe"`: `"maybe"`,
	} {
		_, err := parsed(t, info)
		name := strings.Split(info, `"`)[1]
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "driver_info agent_burnin_"+name+": ") {
			t.Errorf("%s: got error %v, want one with the name and %s", info, err, want)
		}
	}
}

// Each setting of the table is read, and an invalid value of it is an error that names it.
func TestSettingsAreRead(t *testing.T) {
	for _, setting := range Settings() {
		values := map[string]any{NetworkBackend: "zookeeper://x"}
		values[setting.Name] = []any{1}
		_, cpu := CPUOptionsOf(values)
		_, memory := MemoryOptionsOf(values)
		_, disk := DiskOptionsOf(values)
		_, network := NetworkOptionsOf(values)
		for step, err := range map[string]error{
			"burnin_cpu": cpu, "burnin_memory": memory, "burnin_disk": disk, "burnin_network": network,
		} {
			if named := err != nil && strings.Contains(err.Error(), "driver_info "+setting.Name+": "); named !=
				(step == setting.Step) {
				t.Errorf("%s: got error %v of %s, want one of %s only", setting.Name, err, step, setting.Step)
			}
		}
	}
	s := settings{values: map[string]any{"agent_burnin_other": 1}}
	if v := s.value("agent_burnin_other"); v != nil || s.err() == nil {
		t.Errorf("setting that the table lacks: got %v and no error", v)
	}
}
