package burnin

import (
	"errors"
	"fmt"
	"math"
	"time"

	"ironroot/agent/hardware/burnin/tooz"
	"ironroot/internal/hostname"
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
		Timeout: s.timeout("agent_burnin_cpu_timeout"),
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
		Timeout: s.timeout("agent_burnin_vm_timeout"),
		Output:  s.path("agent_burnin_vm_outputfile"),
	}
	o.Percent, o.Bytes = s.share("agent_burnin_vm_vm-bytes")
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
		Loops:  s.integer("agent_burnin_fio_disk_loops", 0, math.MaxInt32),
		Output: s.path("agent_burnin_fio_disk_outputfile"),
	}
	o.Runtime, _ = s.duration("agent_burnin_fio_disk_runtime")
	if o.Loops == 0 && o.Runtime == 0 && len(s.errs) == 0 {
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
		Runtime: s.timeout("agent_burnin_fio_network_runtime"),
		Output:  s.path("agent_burnin_fio_network_outputfile"),
	}
	if err := s.err(); err != nil {
		return o, err
	}
	const static = "agent_burnin_fio_network_config"
	pairing := func(format string, args ...any) (NetworkOptions, error) {
		return o, fmt.Errorf("%w: %w", ErrPairing, fmt.Errorf(format, args...))
	}
	value := s.value(static)
	config, isObject := value.(map[string]any)
	switch {
	case value != nil && !isObject:
		return pairing("driver_info %s: got %v, want an object with role and partner", static, value)
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
	partner, ok := config["partner"].(string)
	if !ok {
		return pairing("driver_info %s: got partner %v, want a host name or an IP address", static, config["partner"])
	}
	var err error
	if o.Partner, err = hostname.Parse(partner); err != nil {
		return pairing("driver_info %s: partner: %w", static, err)
	}
	return o, nil
}

// pairing returns the settings of dynamic pairing.
func (s *settings) pairing() (*tooz.Options, error) {
	const group, timeout = "agent_burnin_fio_network_pairing_group_name", "agent_burnin_fio_network_pairing_timeout"
	value := s.value(NetworkBackend)
	text, ok := value.(string)
	if value == nil || ok && text == "" {
		return nil, fmt.Errorf("driver_info has neither agent_burnin_fio_network_config nor %s", NetworkBackend)
	} else if !ok {
		return nil, fmt.Errorf("driver_info %s: want a string", NetworkBackend)
	}
	backend, err := tooz.ParseURL(text)
	if err != nil {
		return nil, fmt.Errorf("driver_info %s: %w", NetworkBackend, err)
	}
	o := &tooz.Options{Backend: backend, Timeout: s.timeout(timeout)}
	o.Group, _ = s.text(group)
	if err := s.err(); err != nil {
		return nil, err
	}
	if err := tooz.CheckGroup(o.Group); err != nil {
		return nil, fmt.Errorf("driver_info %s: %w", group, err)
	}
	return o, nil
}
