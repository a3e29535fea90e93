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
