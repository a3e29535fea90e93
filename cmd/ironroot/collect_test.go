package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// post is a request that the server received.
type post struct {
	at   time.Time // before the response, and so before the pause of the program
	data map[string]json.RawMessage
}

// collector starts `ironroot collect` with a server that receives its posts. If refuse is true, the server rejects the
// first post.
func collector(
	t *testing.T, refuse bool, args ...string,
) (cmd *exec.Cmd, log *strings.Builder, posts chan post) {
	t.Helper()
	posts = make(chan post, 100)
	var count atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		received := post{at: time.Now()}
		if err := json.NewDecoder(r.Body).Decode(&received.data); err != nil || r.URL.Path != "/v1/continue" {
			t.Errorf("%s: %v", r.URL, err)
		}
		if count.Add(1) == 1 && refuse {
			w.WriteHeader(http.StatusNotFound)
		}
		// With status 200, as ironic-inspector does.
		_, _ = io.WriteString(w, `{"uuid": "b77a8c26-0000-4000-8000-000000000000"}`)
		posts <- received
	}))
	t.Cleanup(server.Close)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{
		"collect", "--inspection-callback-url=" + server.URL + "/v1/continue", "--inspection-collectors=pci-devices",
	}, args...)
	cmd = exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	log = &strings.Builder{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, log, posts
}

// The program posts once and ends.
//
// Parity: H10, H12
func TestCollectProgram(t *testing.T) {
	cmd, log, posts := collector(t, false)
	if err := cmd.Wait(); err != nil || len(posts) != 1 {
		t.Fatalf("got %v and %d posts, want one: %s", err, len(posts), log)
	}
	if data := (<-posts).data; len(data["pci_devices"]) == 0 || string(data["error"]) != "null" {
		t.Errorf("got %v, want PCI devices and no error", data)
	}
	if !strings.Contains(log.String(), "node=b77a8c26-0000-4000-8000-000000000000") {
		t.Errorf("got log %s, want the node that the answer names", log)
	}
}

// The program fails if the server rejects the post.
func TestCollectProgramFails(t *testing.T) {
	cmd, log, _ := collector(t, true)
	if err := cmd.Wait(); err == nil || !strings.Contains(log.String(), "404") {
		t.Errorf("got %v, want a failure and the status in %s", err, log)
	}
}

// A daemon posts repeatedly until it is stopped. After a rejected post the interval is longer.
//
// Parity: H10
func TestCollectProgramDaemon(t *testing.T) {
	file := filepath.Join(t.TempDir(), "collect.conf")
	if err := os.WriteFile(file,
		[]byte("[DEFAULT]\nintrospection_daemon = true\nintrospection_daemon_post_interval = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, log, posts := collector(t, true, "--config-file="+file)
	var times []time.Time
	for range 3 {
		select {
		case p := <-posts:
			times = append(times, p.at)
		case <-time.After(2 * time.Minute):
			t.Fatalf("got %d posts, want 3", len(times))
		}
	}
	// The interval of one second is multiplied by 0.7 to 1.2, and after a rejected post also by 2.7.
	if pause := times[1].Sub(times[0]); pause < 1800*time.Millisecond {
		t.Errorf("posted again %v after a refusal, want 1.89 s at least", pause)
	}
	if pause := times[2].Sub(times[1]); pause < 600*time.Millisecond {
		t.Errorf("posted again after %v, want 0.7 s at least", pause)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("got %v, want a quiet end: %s", err, log)
	}
}
