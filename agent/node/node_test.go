package node

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sample = `{"uuid":"b77a8c26-f785-4c57-91f5-b6ad41a2e08d","properties":{"root_device":{"serial":"P"},
	"skip_block_devices":[{"name":"/dev/sda"},{"wwn":"0x1"}]},"instance_info":{"root_device":{"serial":"I"}},
	"driver_internal_info":{"clean_steps":null},"links":[{"rel":"self"}],"unknown":{"kept":[1,2.5]}}`

func parse(t *testing.T, text string) *Node {
	t.Helper()
	n, err := FromJSON([]byte(text))
	if err != nil {
		t.Fatalf("FromJSON: %v", err)
	}
	return n
}

// An invalid skip list is an error.
func TestSkipBlockDevices(t *testing.T) {
	for _, list := range []string{
		`"/dev/sda"`, `{"name": "/dev/sda"}`, `["/dev/sda"]`, `[{"name": "/dev/sda"}, null]`,
	} {
		got, err := parse(t, `{"uuid": "u", "properties": {"skip_block_devices": `+list+`}}`).SkipBlockDevices()
		if err == nil {
			t.Errorf("%s: got %v, want an error", list, got)
		}
	}
	for _, list := range []string{"null", "[]"} {
		got, err := parse(t, `{"uuid": "u", "properties": {"skip_block_devices": `+list+`}}`).SkipBlockDevices()
		if err != nil || len(got) != 0 {
			t.Errorf("%s: got %v and %v, want none", list, got, err)
		}
	}
}

func TestNode(t *testing.T) {
	n := parse(t, sample)
	if want := "b77a8c26-f785-4c57-91f5-b6ad41a2e08d"; n.UUID() != want {
		t.Errorf("UUID: got %s, want %s", n.UUID(), want)
	}
	skipped, err := n.SkipBlockDevices()
	if diff := cmp.Diff([]map[string]any{{"name": "/dev/sda"}, {"wwn": "0x1"}}, skipped); diff != "" || err != nil {
		t.Errorf("SkipBlockDevices: %v (-want +got):\n%s", err, diff)
	}
	if n.DriverInfo() == nil || len(n.DriverInfo()) != 0 {
		t.Errorf("DriverInfo: got %v, want an empty map", n.DriverInfo())
	}
	out, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(sample), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("MarshalJSON (-received +sent):\n%s", diff)
	}
	n.Raw()["uuid"] = "changed"
	n.Properties()["root_device"] = nil
	if diff := cmp.Diff(want, any(n.Raw())); diff != "" {
		t.Errorf("the node changed through a copy:\n%s", diff)
	}
}

func TestRootDeviceHints(t *testing.T) {
	for _, tt := range []struct {
		name, node string
		want       map[string]any
	}{
		{"instance first", sample, map[string]any{"serial": "I"}},
		{
			"properties", `{"uuid":"u","properties":{"root_device":{"size":10}},"instance_info":{"root_device":{}}}`,
			map[string]any{"size": 10.0},
		},
		{"none", `{"uuid":"u","properties":{},"instance_info":null}`, nil},
	} {
		got, err := parse(t, tt.node).RootDeviceHints()
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, diff)
		}
	}
}

// Values that are false in Python are no hints, others must be an object.
func TestRootDeviceHintsOfOtherTypes(t *testing.T) {
	for hints, want := range map[string]bool{
		`{}`: true, `null`: true, `""`: true, `[]`: true, `false`: true, `0`: true,
		`"sda"`: false, `[{"serial": "x"}]`: false, `5`: false, `true`: false,
	} {
		n := parse(t, `{"uuid": "u", "properties": {"root_device": `+hints+`}}`)
		if got, err := n.RootDeviceHints(); (err == nil) != want || got != nil || n.HasRootDeviceHints() == want {
			t.Errorf("%s: got %v, %v, want none: %v", hints, got, err, want)
		}
	}
	n := parse(t, `{"uuid": "u", "properties": {"root_device": "sda"}, "instance_info": {"root_device": {"size": 5}}}`)
	if got, err := n.RootDeviceHints(); err != nil || len(got) != 1 {
		t.Errorf("hints of the instance: got %v, %v", got, err)
	}
}

func TestFromJSONRefuses(t *testing.T) {
	for _, text := range []string{"", "null", "[]", "{}", `{"uuid":""}`, `{"uuid":7}`, `{"uuid":"x"`} {
		if n, err := FromJSON([]byte(text)); err == nil {
			t.Errorf("%q: got node %v, want an error", text, n)
		}
		var n Node
		if err := json.Unmarshal([]byte(text), &n); err == nil && text != "null" {
			t.Errorf("Unmarshal %q: got no error", text)
		}
	}
}

func TestCache(t *testing.T) {
	var c Cache
	if c.Get() != nil {
		t.Error("the zero cache has a node")
	}
	steps := []struct {
		node    *Node
		changed bool
	}{
		{nil, false},
		{parse(t, sample), true},
		{parse(t, sample), false},
		{parse(t, `{"uuid":"other"}`), true},
		{nil, true},
	}
	for i, s := range steps {
		if got := c.Set(s.node); got != s.changed {
			t.Errorf("step %d: got changed %v, want %v", i, got, s.changed)
		}
		if c.Get() != s.node {
			t.Errorf("step %d: Get returns another node", i)
		}
	}
}
