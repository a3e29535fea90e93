package node

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Any object is valid as a step's node. Anything else is rejected.
func TestFromStep(t *testing.T) {
	for text, want := range map[string]string{
		`{"uuid": "u", "name": "n"}`: "u", `{}`: "", `{"uuid": null}`: "", `{"uuid": 7}`: "7",
		`{"uuid": ["a"]}`: `["a"]`,
	} {
		n, err := FromStep([]byte(text))
		if err != nil || n.UUID() != want {
			t.Errorf("%s: got %v, %v, want the uuid %q", text, n, err, want)
			continue
		}
		var raw map[string]any
		if err := json.Unmarshal([]byte(text), &raw); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(raw, n.Raw()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for _, text := range []string{"null", "[]", "{", `"u"`} {
		if n, err := FromStep([]byte(text)); err == nil {
			t.Errorf("%s: got %v, want an error", text, n)
		}
	}
}

func TestName(t *testing.T) {
	for text, want := range map[string]string{
		`{"uuid": "u", "name": "n"}`: "n", `{"uuid": "u", "name": 1}`: "", `{"uuid": "u"}`: "",
	} {
		if got := parse(t, text).Name(); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// An invalid list of arrays is an error: an ignored array would be erased.
func TestLogicalDisks(t *testing.T) {
	for text, want := range map[string][]map[string]any{
		"null":                    nil,
		"{}":                      nil,
		`{"logical_disks": null}`: nil,
		`{"logical_disks": []}`:   nil,
		`{"logical_disks": [{}]}`: {{}},
		`{"logical_disks":[{"a":"b"},{"c":"d"}]}`: {{"a": "b"}, {"c": "d"}},
	} {
		got, err := parse(t, `{"uuid": "u", "raid_config": `+text+`}`).LogicalDisks()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
	for _, text := range []string{
		"[]", `"raid"`, `{"logical_disks": {}}`, `{"logical_disks": ["a"]}`, `{"logical_disks": [{}, null]}`,
	} {
		if got, err := parse(t, `{"uuid": "u", "raid_config": `+text+`}`).LogicalDisks(); err == nil {
			t.Errorf("%s: got %v, want an error", text, got)
		}
	}
	if got, err := parse(t, `{"uuid": "u"}`).LogicalDisks(); got != nil || err != nil {
		t.Errorf("without raid_config: got %v, %v, want none", got, err)
	}
}

func TestUnmarshal(t *testing.T) {
	var n Node
	if err := json.Unmarshal([]byte(`{"uuid": "u", "a": 1}`), &n); err != nil || n.UUID() != "u" ||
		n.Raw()["a"] != 1.0 {
		t.Errorf("got %v, %v, want the node u", n, err)
	}
	if err := n.UnmarshalJSON([]byte("null")); err == nil {
		t.Error("null: got no error")
	}
}

// Cache is safe for concurrent use.
func TestCacheFlag(t *testing.T) {
	var c Cache
	for _, want := range []bool{false, true, false} {
		c.SetSkipBMCDetect(want)
		if got := c.SkipBMCDetect(); got != want {
			t.Errorf("SkipBMCDetect: got %v, want %v", got, want)
		}
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			c.SetSkipBMCDetect(c.SkipBMCDetect())
			c.Set(c.Get())
		})
	}
	wg.Wait()
	if !c.mu.TryLock() {
		t.Error("the cache is still locked")
	}
}
