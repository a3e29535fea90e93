package external

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"ironroot/agent/hardware"
)

// protocols are the versions of the protocol that the agent speaks.
var protocols = []int{1}

// The methods of the protocol.
const (
	methodDescribe = "describe"
	methodEvaluate = "evaluate"
	methodRun      = "run"
	methodCancel   = "cancel"
)

// request is a line on the executable's standard input.
type request struct {
	Method    string                     `json:"method"`
	Protocols []int                      `json:"protocols,omitempty"` // of describe
	Protocol  int                        `json:"protocol,omitempty"`  // of all others
	Kind      hardware.Kind              `json:"kind,omitempty"`      // of run, as all below
	Step      string                     `json:"step,omitempty"`
	Args      map[string]json.RawMessage `json:"args,omitempty"`
	Node      json.RawMessage            `json:"node,omitempty"`
	Ports     []map[string]any           `json:"ports,omitempty"`
}

// message is a line on the executable's standard output.
type message struct {
	Type    string          `json:"type"`              // progress, result or error
	Message string          `json:"message,omitempty"` // of progress and error
	Percent *float64        `json:"percent,omitempty"` // of progress
	Result  json.RawMessage `json:"result,omitempty"`
	// Incompatible is set in an error if the next manager that has the step is to run it.
	Incompatible bool `json:"incompatible,omitempty"`
}

// description is the result of describe.
type description struct {
	Protocol int    `json:"protocol"`
	Name     string `json:"name"`
	Class    string `json:"class,omitempty"` // "" is the name
	Version  string `json:"version"`
	Steps    []step `json:"steps"`
	// SelectsDisks is set if the executable decides which disks are used, for which there is no request.
	SelectsDisks bool `json:"selects_disks,omitempty"`
}

// step describes a step.
type step struct {
	Kind            hardware.Kind               `json:"kind"`
	Step            string                      `json:"step"`
	Priority        int                         `json:"priority"`
	Interface       string                      `json:"interface"`
	RebootRequested bool                        `json:"reboot_requested,omitempty"`
	Abortable       *bool                       `json:"abortable"` // required: it decides whether the step is killed
	ArgsInfo        map[string]hardware.ArgInfo `json:"argsinfo,omitempty"`
	Timeout         float64                     `json:"timeout,omitempty"` // seconds; 0 is defaultTimeout
}

// evaluation is the result of evaluate.
type evaluation struct {
	Level *int `json:"level"`
}

const (
	defaultTimeout = time.Hour
	maxTimeout     = 7 * 24 * time.Hour
	maxLevel       = 100
)

var (
	nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	stepForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
)

// timeout returns the time limit of the step.
func (s step) timeout() time.Duration {
	if s.Timeout == 0 {
		return defaultTimeout
	}
	return time.Duration(s.Timeout * float64(time.Second))
}

// parseDescription parses and validates the result of describe.
func parseDescription(data json.RawMessage) (description, error) {
	var d description
	if err := json.Unmarshal(data, &d); err != nil {
		return d, err
	}
	switch {
	case !slices.Contains(protocols, d.Protocol):
		return d, fmt.Errorf("protocol %d: want one of %v", d.Protocol, protocols)
	case !nameForm.MatchString(d.Name):
		return d, fmt.Errorf("name %q: want %v", d.Name, nameForm)
	case d.Class != "" && !nameForm.MatchString(d.Class):
		return d, fmt.Errorf("class %q: want %v", d.Class, nameForm)
	case !nameForm.MatchString(d.Version):
		return d, fmt.Errorf("version %q: want %v", d.Version, nameForm)
	}
	if d.Class == "" {
		d.Class = d.Name
	}
	for i, s := range d.Steps {
		if err := s.check(); err != nil {
			return d, fmt.Errorf("step %d, %q: %w", i+1, s.Step, err)
		}
		same := func(o step) bool { return o.Kind == s.Kind && o.Step == s.Step }
		if slices.ContainsFunc(d.Steps[:i], same) {
			return d, fmt.Errorf("step %d, %q: described twice for kind %s", i+1, s.Step, s.Kind)
		}
	}
	return d, nil
}

func (s step) check() error {
	switch {
	case !slices.Contains([]hardware.Kind{hardware.Clean, hardware.Deploy, hardware.Service}, s.Kind):
		return fmt.Errorf("kind %q: want clean, deploy or service", s.Kind)
	case !stepForm.MatchString(s.Step):
		return fmt.Errorf("name: want %v", stepForm)
	case s.Priority < 0:
		return fmt.Errorf("priority %d: want 0 or more", s.Priority)
	case s.Interface == "":
		return errors.New("interface missing")
	case s.Abortable == nil:
		return errors.New("abortable missing")
	case s.Timeout < 0 || s.Timeout > maxTimeout.Seconds():
		return fmt.Errorf("timeout %v: want 0 to %v seconds", s.Timeout, maxTimeout.Seconds())
	}
	return nil
}

// parseEvaluation parses and validates the result of evaluate.
func parseEvaluation(data json.RawMessage) (hardware.Level, error) {
	var e evaluation
	if err := json.Unmarshal(data, &e); err != nil {
		return hardware.None, err
	}
	if e.Level == nil || *e.Level < 0 || *e.Level > maxLevel {
		return hardware.None, fmt.Errorf("level %s: want 0 to %d", data, maxLevel)
	}
	return hardware.Level(*e.Level), nil
}
