package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A node that rests ends the command at once, and one that has failed fails it. Control characters are not printed.
func TestWatch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		state := strings.TrimPrefix(r.URL.Path, "/v1/nodes/")
		_, _ = io.WriteString(w, `{"uuid":"`+state+`","name":"rack-1","provision_state":"`+state+`",
			"target_provision_state":null,"last_error":"disk is broken",
			"driver_internal_info":{"agent_status_message":"write_image: done,\u001b[2J image written"}}`)
	}))
	defer server.Close()
	for _, c := range []struct{ node, want, err string }{
		{"active", "rack-1: active, write_image: done,?[2J image written\n", ""},
		{
			"failed", "rack-1: failed, write_image: done,?[2J image written, disk is broken\n",
			"node rack-1: failed: disk is broken",
		},
	} {
		var out bytes.Buffer
		err := (&watchCmd{URL: server.URL, Nodes: []string{c.node}, Interval: time.Second, out: &out}).Run()
		if text := errorText(err); text != c.err || !strings.HasSuffix(out.String(), " "+c.want) {
			t.Errorf("%s: got %q and %q, want %q and %q", c.node, out.String(), text, c.want, c.err)
		}
	}
	if err := (&watchCmd{URL: server.URL}).Run(); err == nil || !strings.Contains(err.Error(), "--interval") {
		t.Errorf("without an interval: got %v, want an error", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
