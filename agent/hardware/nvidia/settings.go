package nvidia

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"ironroot/agent/fault"
	"ironroot/agent/hardware"
)

const settingsArgument = "settings"

var (
	deviceForm  = regexp.MustCompile(`^[0-9a-f]{4}$`)
	integerForm = regexp.MustCompile(`^\d{1,20}$`)
	valueForm   = regexp.MustCompile(`^[\w.:,+-]{1,256}$`)
)

// setting is an entry of the argument settings.
type setting struct {
	Device    string            `json:"deviceID"`
	Global    map[string]scalar `json:"globalConfig"`
	Function0 map[string]scalar `json:"function0Config"`
	Function1 map[string]scalar `json:"function1Config"`
}

// scalar is the value of a parameter, as mstconfig expects it. In JSON it is a string, an integer or a boolean.
type scalar string

// UnmarshalJSON implements [json.Unmarshaler].
func (s *scalar) UnmarshalJSON(text []byte) error {
	var word string
	switch {
	case string(text) == "true":
		*s = "True"
	case string(text) == "false":
		*s = "False"
	case integerForm.Match(text):
		*s = scalar(text)
	case json.Unmarshal(text, &word) == nil && valueForm.MatchString(word):
		*s = scalar(word)
	default:
		return fmt.Errorf("value %.100s: want a word, an integer or a boolean", text)
	}
	return nil
}

// parseSettings parses and validates the argument settings. The result is by device.
func parseSettings(call hardware.Call) (map[string]setting, error) {
	invalid := fault.InvalidFirmwareSettingsConfig
	byDevice := map[string]setting{}
	err := eachOf(call, settingsArgument, invalid, func(s setting, name string) error {
		if s.Device == "" {
			return invalid("%s: There is no deviceID provided for this settings", name)
		}
		s.Device = strings.ToLower(s.Device)
		if !deviceForm.MatchString(s.Device) {
			return invalid("%s: deviceID %q: want four hexadecimal digits", name, s.Device)
		}
		if _, found := byDevice[s.Device]; found {
			return fault.DuplicateDeviceID("%s: duplicate settings for device ID %s", name, s.Device)
		}
		for _, parameters := range []map[string]scalar{s.Global, s.Function0, s.Function1} {
			for parameter := range parameters {
				if _, ok := parseParameter(parameter); !ok {
					return invalid("%s: parameter %q: want NAME, NAME[I] or NAME[FIRST..LAST]", name, parameter)
				}
			}
		}
		byDevice[s.Device] = s
		return nil
	})
	return byDevice, err
}

// change contains the values to set on a function of a card.
type change struct {
	function
	wanted map[string]scalar
	shown  map[string]string // before
}

// changeResult is the result for a function of a card, or for settings without a card, which have only DeviceID and
// Note. Its lists have NAME=VALUE.
type changeResult struct {
	Device    string   `json:"device,omitempty"`
	DeviceID  string   `json:"device_id,omitempty"`
	Set       []string `json:"set"`
	Unchanged []string `json:"unchanged"` // had the value before
	Note      string   `json:"note,omitempty"`
}

// updateSettings is the step update_nvidia_nic_firmware_settings. All parameters are checked before the first one is
// set.
func (m *Manager) updateSettings(ctx context.Context, call hardware.Call) (any, error) {
	settings, err := parseSettings(call)
	if err != nil {
		return nil, err
	}
	r, err := m.start(ctx, "firmware settings")
	if err != nil {
		return nil, err
	}
	defer r.tracker.End()
	changes, err := r.changes(ctx, settings)
	if err != nil {
		return nil, err
	}
	for i := range changes {
		if err := r.check(ctx, &changes[i]); err != nil {
			return nil, err
		}
	}
	results := []changeResult{}
	for _, c := range changes {
		result, err := r.set(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("network card %s: %w", c.address, err)
		}
		results = append(results, result)
	}
	for _, device := range slices.Sorted(maps.Keys(settings)) {
		if !slices.ContainsFunc(r.functions, func(f function) bool { return f.device == device }) {
			r.o.Log.Warn("no network card for settings", "device_id", device)
			results = append(results, changeResult{
				DeviceID: device, Set: []string{}, Unchanged: []string{}, Note: "no network card with this deviceID",
			})
		}
	}
	return results, nil
}

// changes returns the functions with settings. Settings of a whole card are set on its first function. A card whose
// latest firmware does not run yet is reset, because the firmware determines the parameters. Without the reset, the
// parameters of the firmware that runs are available.
func (r *run) changes(ctx context.Context, settings map[string]setting) ([]change, error) {
	seen := map[string]bool{}
	var list []change
	for _, f := range r.functions {
		s, ok := settings[f.device]
		if !ok {
			continue
		}
		wanted := map[string]scalar{}
		if !seen[f.card()] {
			seen[f.card()] = true
			maps.Copy(wanted, s.Global)
			if err := r.activate(ctx, f); err != nil {
				return nil, err
			}
		}
		if f.isFirst() {
			maps.Copy(wanted, s.Function0)
		} else {
			maps.Copy(wanted, s.Function1)
		}
		if len(wanted) > 0 {
			list = append(list, change{function: f, wanted: wanted})
		}
	}
	return list, nil
}

// activate resets a card whose latest firmware does not run yet. A failed reset is logged.
func (r *run) activate(ctx context.Context, f function) error {
	current, err := r.firmwareOf(ctx, f)
	if err != nil || current.running == "" {
		return err
	}
	if err := r.reset(f); err != nil {
		r.o.Log.Warn("network card not reset", "device", f.address, "running", current.running,
			"version", current.version, "err", err)
	}
	return nil
}

// check reads the parameters of a function, and reports an error if mstconfig or the firmware lacks one that is to be
// set.
func (r *run) check(ctx context.Context, c *change) error {
	r.tracker.SetPhase("querying "+c.address, 0, 0, 0)
	known, err := r.query(ctx, mstconfig, "-d", c.address, "i")
	if err != nil {
		return fmt.Errorf("network card %s: %w", c.address, err)
	}
	if c.shown, err = r.parameters(ctx, c.function); err != nil {
		return fmt.Errorf("network card %s: %w", c.address, err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.wanted)) {
		p, _ := parseParameter(name)
		if !mentions(known, p.name) {
			return fault.UnsupportedConfigByMstflint("network card %s: configuration %s is not supported by "+
				"mstconfig, please update to the latest mstflint package", c.address, name)
		}
		if shown := c.shown[p.name]; !p.isIn(shown) {
			return fault.UnsupportedConfigByFirmware("configuration %s for device %s is not supported with "+
				"current fw: got value %q", name, c.address, shown)
		}
	}
	return nil
}

// parameters returns the values that parameters of a function have from the next start on. Without names it returns
// all; an array is one parameter then.
func (r *run) parameters(ctx context.Context, f function, names ...string) (map[string]string, error) {
	out, err := r.query(ctx, append([]string{mstconfig, "-d", f.address, "q"}, names...)...)
	if err != nil {
		return nil, err
	}
	return parseParameters(out)
}

// set sets the parameters that have another value, and verifies that mstconfig shows the new values then.
func (r *run) set(ctx context.Context, c change) (changeResult, error) {
	result := changeResult{Device: c.address, Set: []string{}, Unchanged: []string{}}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(c.wanted)) {
		value := string(c.wanted[name])
		if isSet(c.shown[name], value) { // elements of arrays are not shown
			r.o.Log.Info("parameter of network card is set", "device", c.address, "parameter", name, "value", value)
			result.Unchanged = append(result.Unchanged, name+"="+value)
			continue
		}
		names = append(names, name)
		result.Set = append(result.Set, name+"="+value)
	}
	if len(names) == 0 {
		return result, nil
	}
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	r.tracker.SetPhase("setting "+c.address, 0, 0, 0)
	if err := r.write(c.function, nil, slices.Concat([]string{mstconfig, "-d", c.address, "-y", "set"}, result.Set)...,
	); err != nil {
		return result, err
	}
	// The state of the card must be known, even if the step is cancelled meanwhile.
	shown, err := r.parameters(context.WithoutCancel(ctx), c.function, names...)
	if err != nil {
		return result, fmt.Errorf("verify parameters: %w", err)
	}
	for _, name := range names {
		p, _ := parseParameter(name)
		for _, element := range p.elements() {
			if got, value := shown[element], string(c.wanted[name]); !isSet(got, value) {
				return result, fmt.Errorf("parameter %s: got %q after setting it, want %s", element, got, value)
			}
		}
	}
	r.o.Log.Info("parameters of network card set", "device", c.address, "set", strings.Join(result.Set, " "))
	return result, nil
}
