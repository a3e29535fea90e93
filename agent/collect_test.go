package agent

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/inventory/machinetest"
	"ironroot/internal/test/testenv"
)

// inspector receives inspection data. It answers each post with the next status, and repeats the last one.
func inspector(t *testing.T, statuses ...int) (url string, posts chan map[string]json.RawMessage) {
	t.Helper()
	posts = make(chan map[string]json.RawMessage, 100)
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var data map[string]json.RawMessage
		if r.URL.Path != "/v1/continue" || r.Method != http.MethodPost {
			t.Errorf("got %s %s", r.Method, r.URL.Path)
		}
		if err := json.NewDecoder(r.Body).Decode(&data); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(statuses[min(n, len(statuses)-1)])
		_, _ = io.WriteString(w, `{"uuid":"`+nodeUUID+`"}`)
		n++
		select {
		case posts <- data:
		case <-r.Context().Done(): // a daemon posts more than the test reads
		}
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1/continue", posts
}

func collecting(t *testing.T, url string, more func(*config.Config)) Options {
	t.Helper()
	c, err := config.Load(config.Sources{
		Args: []string{"--inspection-callback-url=" + url, "--inspection-collectors=default,dmi-decode"},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.DiskWaitAttempts = 1
	if more != nil {
		more(c)
	}
	return Options{Config: c, System: machinetest.System(t, "dell-r640")}
}

// Parity: H5, H6, H10, H12
func TestCollectOnce(t *testing.T) {
	url, posts := inspector(t, http.StatusAccepted)
	collectors := func(c *config.Config) { c.InspectionCollectors = "logs,default,dmi-decode" }
	if err := Collect(t.Context(), collecting(t, url, collectors)); err != nil {
		t.Fatal(err)
	}
	if len(posts) != 1 {
		t.Fatalf("got %d posts, want 1", len(posts))
	}
	data := <-posts
	for _, key := range []string{"inventory", "root_disk", "boot_interface", "configuration", "dmi"} {
		if len(data[key]) == 0 {
			t.Errorf("posted no %s", key)
		}
	}
	if got := string(data["error"]); got != "null" {
		t.Errorf("posted the error %s", got)
	}
	var archive []byte
	if err := json.Unmarshal(data["logs"], &archive); err != nil {
		t.Fatal(err)
	}
	// The logs are collected last, so they contain the lines of the other collectors.
	if got := testenv.Untar(t, archive)["journal"]; !strings.Contains(got, "collector=dmi-decode") {
		t.Errorf("got journal %q, want the line of the collector dmi-decode", got)
	}
	bare := collecting(t, url, collectors)
	bare.System = bareMachine(t)
	_ = Collect(t.Context(), bare) // fails: the machine lacks more than disks
	if root, ok := (<-posts)["root_disk"]; ok {
		t.Errorf("without a disk: got root_disk %s, want no such key", root)
	}
}

func TestCollectFails(t *testing.T) {
	url, _ := inspector(t, http.StatusNotFound)
	if err := Collect(t.Context(), collecting(t, url, nil)); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v, want the status", err)
	}
	err := Collect(t.Context(), collecting(t, "", func(c *config.Config) { c.InspectionCallbackURL = "" }))
	if err == nil || !strings.Contains(err.Error(), "inspection_callback_url") {
		t.Errorf("got %v, want an error that names the option", err)
	}
}

// A daemon posts repeatedly, also after a rejected post, and ends with its context.
// Parity: H10
func TestCollectDaemon(t *testing.T) {
	url, posts := inspector(t, http.StatusAccepted, http.StatusNotFound, http.StatusAccepted)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- Collect(ctx, collecting(t, url, func(c *config.Config) {
			c.IntrospectionDaemon, c.IntrospectionDaemonPostInterval = true, time.Millisecond
		}))
	}()
	for range 4 {
		<-posts
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
