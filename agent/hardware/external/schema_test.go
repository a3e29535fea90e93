package external

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/hardware"
	"ironroot/internal/test/testenv"
)

// definition is a message in the schema.
type definition struct {
	Required   []string `json:"required"`
	Properties map[string]struct {
		Pattern string   `json:"pattern"`
		Maximum *float64 `json:"maximum"`
		Enum    []string `json:"enum"`
	} `json:"properties"`
}

// The published schema has the fields and limits of this package.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testenv.Top(t), "docs/manager-protocol.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Definitions map[string]definition `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	all := schema.Definitions
	for _, tt := range []struct {
		value any
		names []string // definitions that together have its fields
	}{
		{request{}, []string{"describe", "evaluate", "run", "cancel"}},
		{message{}, []string{"progress", "result", "error"}},
		{description{}, []string{"description"}},
		{step{}, []string{"step"}},
		{evaluation{}, []string{"evaluation"}},
		{hardware.ArgInfo{}, []string{"argument"}},
	} {
		var want []string
		for field := range reflect.TypeOf(tt.value).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			want = append(want, name)
		}
		slices.Sort(want)
		properties := map[string]bool{}
		for _, name := range tt.names {
			for property := range all[name].Properties {
				properties[property] = true
			}
			for _, required := range all[name].Required {
				if !properties[required] {
					t.Errorf("%s requires %s, which it does not define", name, required)
				}
			}
		}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(properties))); diff != "" {
			t.Errorf("%T: fields differ (-code +schema):\n%s", tt.value, diff)
		}
	}
	for name, want := range map[string]string{
		all["description"].Properties["name"].Pattern:    nameForm.String(),
		all["description"].Properties["class"].Pattern:   nameForm.String(),
		all["description"].Properties["version"].Pattern: nameForm.String(),
		all["step"].Properties["step"].Pattern:           stepForm.String(),
		all["run"].Properties["step"].Pattern:            stepForm.String(),
	} {
		if name != want {
			t.Errorf("got pattern %s, want %s", name, want)
		}
	}
	if got := all["step"].Properties["timeout"].Maximum; got == nil || *got != maxTimeout.Seconds() {
		t.Errorf("timeout: got maximum %v, want %v", got, maxTimeout.Seconds())
	}
	if got := all["evaluation"].Properties["level"].Maximum; got == nil || *got != maxLevel {
		t.Errorf("level: got maximum %v, want %v", got, maxLevel)
	}
	kinds := []string{string(hardware.Clean), string(hardware.Deploy), string(hardware.Service)}
	if diff := cmp.Diff(kinds, all["step"].Properties["kind"].Enum); diff != "" {
		t.Errorf("kinds differ (-code +schema):\n%s", diff)
	}
}

// A manager's description is either invalid, or has only names that Ironic and the log can have.
func FuzzDescription(f *testing.F) {
	f.Add([]byte(`{"protocol": 1, "name": "x", "version": "1", "steps": [{"kind": "clean", "step": "a", "priority": 1,
		"interface": "deploy", "abortable": false, "timeout": 1.5}]}`))
	f.Add([]byte(`{"protocol": 1, "name": "x", "version": "1", "steps": [{"kind": "clean", "step": "a"}, null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := parseDescription(data)
		if err != nil {
			return
		}
		for _, name := range []string{d.Name, d.Class, d.Version} {
			if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
				t.Errorf("got the name %q", name)
			}
		}
		seen := map[string]bool{}
		for _, s := range d.Steps {
			if key := string(s.Kind) + " " + s.Step; seen[key] {
				t.Errorf("got step %q twice", key)
			} else {
				seen[key] = true
			}
			if timeout := s.timeout(); timeout <= 0 || timeout > maxTimeout || s.Priority < 0 || s.Abortable == nil {
				t.Errorf("got step %+v with the timeout %v", s, timeout)
			}
		}
	})
}
