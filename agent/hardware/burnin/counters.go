package burnin

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ironroot/storage/sysfs"
)

// Counters describes how the kernel's counters of hardware problems changed during a test.
type Counters struct {
	Changed map[string]Change `json:"changed,omitempty"` // by name
	// Errors are the counters of machine checks and of EDAC by name, whether or not they changed, at most maxCounters.
	// Only a test of the memory reports them.
	Errors map[string]Change `json:"errors,omitempty"`
	// Omitted is the number of counters that are not among Errors.
	Omitted int `json:"omitted,omitempty"`
	// Unavailable are the kinds of counters that the machine does not have or that cannot be read.
	Unavailable []string `json:"unavailable,omitempty"`
}

// maxCounters limits Counters.Errors. A machine with 32 memory modules has about 90 of them.
const maxCounters = 128

// Change has the values of a counter before and after a test.
type Change struct {
	Before uint64 `json:"before"`
	After  uint64 `json:"after"`
}

// The kinds of counters.
const (
	throttling    = "thermal throttling"
	machineChecks = "machine checks"
	memoryErrors  = "memory errors (EDAC)"
)

// sample holds the values of counters at one time, by kind and name.
type sample map[string]map[string]uint64

// readCounters reads all counters that the machine has.
func readCounters(sys sysfs.Root) sample {
	s := sample{
		throttling: readFiles(sys,
			"devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count",
			"devices/system/cpu/cpu[0-9]*/thermal_throttle/package_throttle_count"),
		machineChecks: {},
		memoryErrors: readFiles(sys,
			"devices/system/edac/mc/mc[0-9]*/ce_count",
			"devices/system/edac/mc/mc[0-9]*/ue_count",
			"devices/system/edac/mc/mc[0-9]*/*/dimm_ce_count",
			"devices/system/edac/mc/mc[0-9]*/*/dimm_ue_count"),
	}
	s.addInterrupts(sys)
	return s
}

// readFiles reads counters that are files of sysfs each.
func readFiles(sys sysfs.Root, patterns ...string) map[string]uint64 {
	values := map[string]uint64{}
	for _, pattern := range patterns {
		paths, _ := filepath.Glob(sys.Sys(pattern)) // the only error is a malformed pattern
		for _, path := range paths {
			text, err := sys.Files.Read(path)
			if err != nil {
				continue
			}
			if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
				values[counterName(sys, path)] = n
			}
		}
	}
	return values
}

// counterName returns the file of a counter with the processor or memory controller. The name for a memory module also
// has the module's label, which names its slot.
func counterName(sys sysfs.Root, path string) string {
	dir, file := filepath.Dir(path), filepath.Base(path)
	owner := filepath.Base(dir)
	upper := filepath.Base(filepath.Dir(dir))
	if owner == "thermal_throttle" {
		owner = upper
	} else if label, err := sys.Files.Read(filepath.Join(dir, "dimm_label")); err == nil {
		owner = fmt.Sprintf("%s/%s (%s)", upper, owner, strings.TrimSpace(string(label)))
	}
	return owner + " " + file
}

// interrupt is a line of /proc/interrupts that counts reports of hardware problems.
type interrupt struct{ label, kind, name string }

// interrupts are those that Linux has on x86.
var interrupts = []interrupt{
	{"MCE", machineChecks, machineCheckExceptions},
	{"THR", machineChecks, "threshold interrupts (corrected errors)"},
	{"DFR", machineChecks, "deferred error interrupts"},
	{"TRM", throttling, "thermal event interrupts"},
}

// machineCheckExceptions counts errors that the processor could not correct.
const machineCheckExceptions = "machine check exceptions"

// addInterrupts adds the counters in /proc/interrupts, which has a column for each processor.
func (s sample) addInterrupts(sys sysfs.Root) {
	text, err := sys.Files.Read(sys.Proc("interrupts"))
	if err != nil {
		return
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		label, columns, _ := strings.Cut(strings.TrimSpace(line), ":")
		for _, i := range interrupts {
			if i.label == label {
				s[i.kind][i.name] = sumColumns(columns)
			}
		}
	}
}

// sumColumns adds the numbers in front of the description of an interrupt.
func sumColumns(columns string) (sum uint64) {
	for _, column := range strings.Fields(columns) {
		n, err := strconv.ParseUint(column, 10, 64)
		if err != nil {
			break
		}
		sum += n
	}
	return sum
}

// since returns the change of the counters from an earlier sample. A counter that appeared in between was 0.
func (s sample) since(before sample) Counters {
	var c Counters
	for _, kind := range slices.Sorted(maps.Keys(s)) {
		if len(s[kind]) == 0 {
			c.Unavailable = append(c.Unavailable, kind)
		}
		for name, value := range s[kind] {
			if value == before[kind][name] {
				continue
			}
			if c.Changed == nil {
				c.Changed = map[string]Change{}
			}
			c.Changed[name] = Change{before[kind][name], value}
		}
	}
	return c
}

// addErrors adds the counters of errors, whether or not they changed: first the counters of machine checks and of whole
// memory controllers, then the counters of memory modules.
func (c *Counters) addErrors(before, after sample) {
	c.Errors = map[string]Change{}
	isOfModule := func(name string) bool { return strings.Contains(name, "/") }
	for _, ofModules := range []bool{false, true} {
		for _, kind := range []string{machineChecks, memoryErrors} {
			for _, name := range slices.Sorted(maps.Keys(after[kind])) {
				switch {
				case isOfModule(name) != ofModules:
				case len(c.Errors) < maxCounters:
					c.Errors[name] = Change{before[kind][name], after[kind][name]}
				default:
					c.Omitted++
				}
			}
		}
	}
}

// err returns an error if the hardware has reported errors that it could not correct.
func (c Counters) err() error {
	var failed []string
	for _, name := range slices.Sorted(maps.Keys(c.Changed)) {
		if name == machineCheckExceptions || strings.HasSuffix(name, "ue_count") {
			failed = append(failed, fmt.Sprintf("%s rose from %d to %d",
				name, c.Changed[name].Before, c.Changed[name].After))
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("the hardware reported uncorrected errors: %s", strings.Join(failed, ", "))
}

// counterChanges compares the counters with those before a test and logs the changes.
func (m Machine) counterChanges(before sample) Counters {
	return m.compareCounters(before, readCounters(m.System))
}

// errorCounters is counterChanges with all counters of errors.
func (m Machine) errorCounters(before sample) Counters {
	after := readCounters(m.System)
	c := m.compareCounters(before, after)
	c.addErrors(before, after)
	for _, name := range slices.Sorted(maps.Keys(c.Errors)) {
		if values := c.Errors[name]; values.Before == values.After { // the others are logged as changes
			m.Log.Info("hardware counter unchanged", "counter", name, "before", values.Before, "after", values.After)
		}
	}
	return c
}

func (m Machine) compareCounters(before, after sample) Counters {
	c := after.since(before)
	for _, name := range slices.Sorted(maps.Keys(c.Changed)) {
		m.Log.Warn("hardware counter changed", "counter", name,
			"before", c.Changed[name].Before, "after", c.Changed[name].After)
	}
	if len(c.Unavailable) > 0 {
		m.Log.Info("hardware counters not available", "kinds", strings.Join(c.Unavailable, ", "))
	}
	return c
}
