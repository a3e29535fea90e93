package ironic

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// Parity: B1
func TestAPIVersionDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("")
		net.serve("ironic", ironic)
		c, _ := newClient(t, net, "--api-url=http://ironic:6385/")
		for _, broken := range []string{"", "latest", `"}`} {
			ironic.version = broken
			if got, want := c.APIVersion(t.Context()), (Version{1, 31}); got != want {
				t.Errorf("root document with version %q: got %v, want %v", broken, got, want)
			}
		}
		ironic.version = "1.115"
		for range 2 {
			if got, want := c.APIVersion(t.Context()), (Version{1, 115}); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		calls := ironic.got("/")
		if len(calls) != 4 {
			t.Fatalf("got %d discoveries, want 4: failures are asked again, the answer is kept", len(calls))
		}
		if calls[0].Version != "" {
			t.Errorf("got version header %q, want none", calls[0].Version)
		}
	})
}

func TestAPIVersionOption(t *testing.T) {
	net := newNetwork(t)
	c, _ := newClient(t, net, "--api-url=http://ironic", "--ironic-api-version=1.62")
	if got, want := c.APIVersion(t.Context()), (Version{1, 62}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(net.dials) != 0 {
		t.Errorf("got connections to %v, want none", net.dials)
	}
}

func TestVersion(t *testing.T) {
	for _, text := range []string{"", "1", "1.", ".1", "1.2.3", "-1.2", "1.x", "99999999999999999999.1"} {
		if v, err := ParseVersion(text); err == nil {
			t.Errorf("ParseVersion(%q): got %v, want an error", text, v)
		}
	}
	for _, tt := range []struct {
		v, other string
		want     bool
	}{
		{"1.9", "1.31", false},
		{"1.31", "1.31", true},
		{"1.115", "1.68", true},
		{"2.0", "1.68", true},
		{"0.99", "1.0", false},
	} {
		v, err := ParseVersion(tt.v)
		if err != nil {
			t.Fatal(err)
		}
		other, err := ParseVersion(tt.other)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.AtLeast(other); got != tt.want {
			t.Errorf("%v at least %v: got %v, want %v", v, other, got, tt.want)
		}
	}
}

// Parity: B10
func TestSeveralURLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		second, third := newFake("1.115"), newFake("1.115")
		second.heartbeat = func(int) (int, string) { return 500, "trouble" }
		net.serve("second", second)
		net.serve("third", third)
		c, _ := newClient(t, net, "--api-url=http://first,http://second,http://third")
		if got, want := c.APIVersion(t.Context()), (Version{1, 115}); got != want {
			t.Fatalf("got %v, want %v", got, want)
		}
		if diff := cmp.Diff([]string{"http://second", "http://third", "http://first"}, c.urls); diff != "" {
			t.Errorf("URLs after the first one was dead (-want +got):\n%s", diff)
		}
		h := c.NewHeartbeater(HeartbeatOptions{NodeUUID: nodeUUID, Agent: fakeAgent{url: "https://a"}})
		if got := statusOf(h.send(t.Context())); got != 500 {
			t.Errorf("got status %d, want the second one's 500: a status is an answer", got)
		}
		if len(third.got("/")) != 0 || len(third.got("/v1")) != 0 {
			t.Error("the third was asked though the second answered")
		}
		dead, _ := newClient(t, net, "--api-url=http://x1,http://x2")
		_, err := dead.call(t.Context(), request{method: "GET", path: "/"})
		if err == nil || !strings.Contains(err.Error(), "x2") {
			t.Errorf("got error %v, want the last URL's", err)
		}
		none, _ := newClient(t, net)
		if _, err := none.call(t.Context(), request{method: "GET", path: "/"}); err == nil ||
			!strings.Contains(err.Error(), "api_url") {
			t.Errorf("got error %v, want one that names the option", err)
		}
	})
}
