package burnin

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"ironroot/internal/oslo"
)

// Setting describes a setting of a burn-in step: a key of the node's driver_info.
type Setting struct {
	Step, Name string
	Default    string // what is used if the value is missing or null, in the form of the value; "" means nothing
	Help       string
}

// NetworkBackend is the setting with the URL of the backend for pairing. It can contain a password.
const NetworkBackend = "agent_burnin_fio_network_pairing_backend_url"

// Settings returns all settings with their defaults. Names and defaults are ironic-python-agent's. The steps read no
// others, and docs/steps.md lists them.
func Settings() []Setting {
	return []Setting{
		{
			"burnin_cpu", "agent_burnin_cpu_cpu", "0",
			"number of workers; 0 and negative numbers mean one for each processor that is online",
		},
		{"burnin_cpu", "agent_burnin_cpu_timeout", "86400", "duration of the test; 0 is refused"},
		{"burnin_cpu", "agent_burnin_cpu_outputfile", "", "path of a file of the ramdisk for the report"},

		{
			"burnin_memory", "agent_burnin_vm_vm", "0",
			"number of workers; 0 and negative numbers mean one for each processor that is online",
		},
		{
			"burnin_memory", "agent_burnin_vm_vm-bytes", "98%",
			"memory that all workers together test: a percentage of the available memory, or bytes, which can have " +
				"one of the suffixes b, k, m, g, t",
		},
		{"burnin_memory", "agent_burnin_vm_timeout", "86400", "duration of the test; 0 is refused"},
		{"burnin_memory", "agent_burnin_vm_outputfile", "", "path of a file of the ramdisk for the report"},

		{
			"burnin_disk", "agent_burnin_fio_disk_loops", "4",
			"number of times each disk is written and verified; 0 only with a runtime",
		},
		{
			"burnin_disk", "agent_burnin_fio_disk_runtime", "",
			"duration of the test of each disk, used instead of `agent_burnin_fio_disk_loops`; half of it is for " +
				"writing, and everything that was written is verified",
		},
		{"burnin_disk", "agent_burnin_fio_disk_smart_test", "false", "SMART self-test: true is refused"},
		{"burnin_disk", "agent_burnin_fio_disk_outputfile", "", "path of a file of the ramdisk for the report"},

		{
			"burnin_network", "agent_burnin_fio_network_config", "",
			"object with `role` (`writer` sends first, `reader` receives first) and `partner` (name or address of " +
				"the other node); missing or empty, the partner is found by pairing",
		},
		{
			"burnin_network", "agent_burnin_fio_network_runtime", "21600",
			"duration of the test in each direction, the same on both nodes; 0 is refused",
		},
		{
			"burnin_network", "agent_burnin_fio_network_outputfile", "",
			"path of files of the ramdisk for the reports; `.writer` and `.reader` are appended",
		},
		{
			"burnin_network", NetworkBackend, "",
			"URL of ZooKeeper, which pairs the nodes: `zookeeper://[USER:PASSWORD@]HOST[:PORT][,HOST...]`",
		},
		{
			"burnin_network", "agent_burnin_fio_network_pairing_group_name", "ironic.network-burnin",
			"group in which the node finds a partner",
		},
		{
			"burnin_network", "agent_burnin_fio_network_pairing_timeout", "900",
			"time limit for the lock of the group, and then for a partner; 0 is refused",
		},
	}
}

// settings reads values of driver_info. Operators set most of them on a command line, as strings.
type settings struct {
	values map[string]any
	errs   []error
}

// err returns the errors of all values, each with the name of its setting.
func (s *settings) err() error { return errors.Join(s.errs...) }

func (s *settings) fail(name, format string, args ...any) {
	s.errs = append(s.errs, fmt.Errorf("driver_info %s: %s", name, fmt.Sprintf(format, args...)))
}

// value returns the value of a setting, or its default. It returns nil if there is neither.
func (s *settings) value(name string) any {
	all := Settings()
	at := slices.IndexFunc(all, func(known Setting) bool { return known.Name == name })
	if at < 0 {
		s.fail(name, "not in the table of settings")
		return nil
	}
	if v := s.values[name]; v != nil {
		return v
	}
	if all[at].Default != "" {
		return all[at].Default
	}
	return nil
}

// text returns a value as text. It returns false if there is none.
func (s *settings) text(name string) (string, bool) {
	switch v := s.value(name).(type) {
	case nil:
		return "", false
	case string:
		return strings.TrimSpace(v), true
	case json.Number:
		return v.String(), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case bool:
		return strconv.FormatBool(v), true
	default:
		s.fail(name, "got %v, want a number or a string", v)
		return "", false
	}
}

// integer returns a whole number; 0 if there is none, or if it is an error.
func (s *settings) integer(name string, low, high int) int {
	text, ok := s.text(name)
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		s.fail(name, "got %q, want a whole number from %d to %d", text, low, high)
		return 0
	}
	return n
}

// workers returns a number of workers. For stress-ng a negative number, too, means all processors that are online.
func (s *settings) workers(name string) int {
	return max(0, s.integer(name, -maxWorkers, maxWorkers))
}

// timeUnits are the units of durations that stress-ng and fio know, except those below a second.
var timeUnits = map[string]int64{
	"": int64(time.Second), "s": int64(time.Second), "m": int64(time.Minute), "h": int64(time.Hour), "d": int64(day),
	"y": int64(365 * day),
}

// sizeUnits are the units of sizes that stress-ng knows, in bytes.
var sizeUnits = map[string]int64{"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

// quantity parses a whole number that may have a unit as its suffix, in lower or upper case. It reports whether the
// text is valid and the result is not above limit.
func quantity(text string, units map[string]int64, limit int64) (n int64, ok bool) {
	lower := strings.ToLower(text)
	digits := strings.TrimRightFunc(lower, unicode.IsLetter)
	unit, known := units[lower[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !known || n < 0 || n > limit/unit {
		return 0, false
	}
	return n * unit, true
}

// maxDuration limits durations.
const maxDuration = 10 * 365 * day

// duration returns a duration. It returns false if there is none, or if it is an error.
func (s *settings) duration(name string) (time.Duration, bool) {
	text, ok := s.text(name)
	if !ok {
		return 0, false
	}
	n, ok := quantity(text, timeUnits, int64(maxDuration))
	if !ok {
		s.fail(name, "got %q, want seconds or a whole number with one of the suffixes s, m, h, d, y", text)
	}
	return time.Duration(n), ok
}

// timeout returns the duration of a test. stress-ng runs forever if it is 0: such a step would never succeed.
func (s *settings) timeout(name string) time.Duration {
	d, ok := s.duration(name)
	if ok && d == 0 {
		s.fail(name, "got 0, want a time after which the test ends")
	}
	return d
}

// share returns a part of something, "98%", or a size in bytes, which can have one of the suffixes b, k, m, g and t.
func (s *settings) share(name string) (percent float64, bytes int64) {
	text, ok := s.text(name)
	if !ok {
		return 0, 0
	}
	if number, found := strings.CutSuffix(text, "%"); found {
		percent, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err == nil && percent > 0 && percent <= 100 {
			return percent, 0
		}
		s.fail(name, "got %q, want a percentage above 0 and up to 100", text)
		return 0, 0
	}
	if bytes, ok = quantity(text, sizeUnits, math.MaxInt64); !ok || bytes == 0 {
		s.fail(name, "got %q, want a percentage, or bytes with one of the suffixes b, k, m, g, t", text)
		return 0, 0
	}
	return 0, bytes
}

// boolean returns a truth value; false if there is none.
func (s *settings) boolean(name string) bool {
	text, ok := s.text(name)
	if !ok {
		return false
	}
	value, ok := oslo.ParseBool(text)
	if !ok {
		s.fail(name, "got %q, want true or false", text)
	}
	return value
}

// path returns the path of a file to write, "" if there is none.
func (s *settings) path(name string) string {
	text, ok := s.text(name)
	if !ok || text == "" {
		return ""
	}
	if !filepath.IsAbs(text) {
		s.fail(name, "got %q, want an absolute path", text)
	}
	return filepath.Clean(text)
}
