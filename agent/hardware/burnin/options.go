package burnin

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"ironroot/agent/hardware/burnin/tooz"
	"ironroot/internal/oslo"
)

const day = 24 * time.Hour

// maxWorkers limits the number of workers of a test.
const maxWorkers = 8192

// CPUOptions are the options of [CPU].
type CPUOptions struct {
	Workers int           // 0 means one for each processor that is online
	Timeout time.Duration // duration of the test
	Output  string        // path of the file for the report; "" means none
}

// CPUOptionsOf returns the options in a node's driver_info.
func CPUOptionsOf(driverInfo map[string]any) (CPUOptions, error) {
	s := settings{values: driverInfo}
	o := CPUOptions{
		Workers: s.workers("agent_burnin_cpu_cpu"),
		Timeout: s.timeout("agent_burnin_cpu_timeout", day),
		Output:  s.path("agent_burnin_cpu_outputfile"),
	}
	return o, s.err()
}

// MemoryOptions are the options of [Memory].
type MemoryOptions struct {
	Workers int           // 0 means one for each processor that is online
	Timeout time.Duration // duration of the test
	Percent float64       // of the memory that is available; 0 means Bytes
	Bytes   int64         // of all workers together
	Output  string        // path of the file for the report; "" means none
}

// MemoryOptionsOf returns the options in a node's driver_info.
func MemoryOptionsOf(driverInfo map[string]any) (MemoryOptions, error) {
	s := settings{values: driverInfo}
	o := MemoryOptions{
		Workers: s.workers("agent_burnin_vm_vm"),
		Timeout: s.timeout("agent_burnin_vm_timeout", day),
		Output:  s.path("agent_burnin_vm_outputfile"),
	}
	o.Percent, o.Bytes = s.share("agent_burnin_vm_vm-bytes", 98)
	return o, s.err()
}

// DiskOptions are the options of [Disk].
type DiskOptions struct {
	Loops   int           // how often the whole disk is written and verified
	Runtime time.Duration // if not 0, the disk is tested for so long, and Loops is ignored
	Output  string        // path of the file for the report; "" means none
}

// DiskOptionsOf returns the options in a node's driver_info.
func DiskOptionsOf(driverInfo map[string]any) (DiskOptions, error) {
	s := settings{values: driverInfo}
	const smart = "agent_burnin_fio_disk_smart_test"
	o := DiskOptions{
		Loops:   s.integer("agent_burnin_fio_disk_loops", 4, 0, math.MaxInt32),
		Runtime: s.duration("agent_burnin_fio_disk_runtime", 0),
		Output:  s.path("agent_burnin_fio_disk_outputfile"),
	}
	if o.Loops == 0 && o.Runtime == 0 {
		s.fail("agent_burnin_fio_disk_loops", "want at least 1 if there is no agent_burnin_fio_disk_runtime")
	}
	if s.boolean(smart) {
		s.fail(smart, "SMART self-tests are not supported")
	}
	return o, s.err()
}

// ErrPairing is the error of a node whose partner is not known: from its settings, or because there is none.
var ErrPairing = errors.New("no partner for the network test")

// NetworkOptions are the options of [Network].
type NetworkOptions struct {
	Writer  bool          // whether the node sends first
	Partner string        // name or address of the other node
	Pairing *tooz.Options // how to find the partner and the role; nil means that they are known
	Runtime time.Duration // of each direction
	Output  string        // path of the files for the reports, to which the role is added; "" means none
}

// NetworkOptionsOf returns the options in a node's driver_info. If they do not name the partner, the error wraps
// ErrPairing.
func NetworkOptionsOf(driverInfo map[string]any) (NetworkOptions, error) {
	s := settings{values: driverInfo}
	o := NetworkOptions{
		Runtime: s.timeout("agent_burnin_fio_network_runtime", 6*time.Hour),
		Output:  s.path("agent_burnin_fio_network_outputfile"),
	}
	if err := s.err(); err != nil {
		return o, err
	}
	const static = "agent_burnin_fio_network_config"
	pairing := func(format string, args ...any) (NetworkOptions, error) {
		return o, fmt.Errorf("%w: %w", ErrPairing, fmt.Errorf(format, args...))
	}
	config, isObject := driverInfo[static].(map[string]any)
	switch {
	case driverInfo[static] != nil && !isObject:
		return pairing("driver_info %s: got %v, want an object with role and partner", static, driverInfo[static])
	case len(config) == 0:
		dynamic, err := s.pairing()
		if err != nil {
			return pairing("%w", err)
		}
		o.Pairing = dynamic
		return o, nil
	}
	role, _ := config["role"].(string)
	if role != "writer" && role != "reader" {
		return pairing("driver_info %s: got role %v, want writer or reader", static, config["role"])
	}
	o.Writer = role == "writer"
	if o.Partner, _ = config["partner"].(string); o.Partner == "" {
		return pairing("driver_info %s: got partner %v, want a name or an address", static, config["partner"])
	}
	return o, nil
}

// NetworkBackend is the setting with the URL of the backend for pairing. It can contain a password.
const NetworkBackend = "agent_burnin_fio_network_pairing_backend_url"

// pairing returns the settings of dynamic pairing.
func (s *settings) pairing() (*tooz.Options, error) {
	const group, timeout = "agent_burnin_fio_network_pairing_group_name", "agent_burnin_fio_network_pairing_timeout"
	text, ok := s.values[NetworkBackend].(string)
	if s.values[NetworkBackend] == nil || ok && text == "" {
		return nil, fmt.Errorf("driver_info has neither agent_burnin_fio_network_config nor %s", NetworkBackend)
	} else if !ok {
		return nil, fmt.Errorf("driver_info %s: want a string", NetworkBackend)
	}
	backend, err := tooz.ParseURL(text)
	if err != nil {
		return nil, fmt.Errorf("driver_info %s: %w", NetworkBackend, err)
	}
	o := &tooz.Options{Backend: backend, Group: "ironic.network-burnin", Timeout: s.timeout(timeout, 15*time.Minute)}
	if name, ok := s.text(group); ok {
		o.Group = name
	}
	if err := s.err(); err != nil {
		return nil, err
	}
	if err := tooz.CheckGroup(o.Group); err != nil {
		return nil, fmt.Errorf("driver_info %s: %w", group, err)
	}
	return o, nil
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

// text returns a value as text. It returns false if the value is missing or null.
func (s *settings) text(name string) (string, bool) {
	switch v := s.values[name].(type) {
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

func (s *settings) integer(name string, missing, low, high int) int {
	text, ok := s.text(name)
	if !ok {
		return missing
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		s.fail(name, "got %q, want a whole number from %d to %d", text, low, high)
		return missing
	}
	return n
}

// workers returns a number of workers. For stress-ng a negative number, too, means all processors that are online.
func (s *settings) workers(name string) int {
	return max(0, s.integer(name, 0, -maxWorkers, maxWorkers))
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

func (s *settings) duration(name string, missing time.Duration) time.Duration {
	text, ok := s.text(name)
	if !ok {
		return missing
	}
	n, ok := quantity(text, timeUnits, int64(maxDuration))
	if !ok {
		s.fail(name, "got %q, want seconds or a whole number with one of the suffixes s, m, h, d, y", text)
		return missing
	}
	return time.Duration(n)
}

// timeout returns the duration of a test. stress-ng runs forever if it is 0: such a step would never succeed.
func (s *settings) timeout(name string, missing time.Duration) time.Duration {
	d := s.duration(name, missing)
	if d == 0 {
		s.fail(name, "got 0, want a time after which the test ends")
	}
	return d
}

// share returns a part of something, "98%", or a size in bytes, which can have one of the suffixes b, k, m, g and t.
func (s *settings) share(name string, missing float64) (percent float64, bytes int64) {
	text, ok := s.text(name)
	if !ok {
		return missing, 0
	}
	if number, found := strings.CutSuffix(text, "%"); found {
		percent, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err == nil && percent > 0 && percent <= 100 {
			return percent, 0
		}
		s.fail(name, "got %q, want a percentage above 0 and up to 100", text)
		return missing, 0
	}
	if bytes, ok = quantity(text, sizeUnits, math.MaxInt64); !ok || bytes == 0 {
		s.fail(name, "got %q, want a percentage, or bytes with one of the suffixes b, k, m, g, t", text)
		return missing, 0
	}
	return 0, bytes
}

// boolean returns a truth value; false if it is missing.
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

// path returns the path of a file to write, "" if it is missing.
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
