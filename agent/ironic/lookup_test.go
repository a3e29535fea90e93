package ironic

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Parity: B2
func TestLookupRequest(t *testing.T) {
	for _, tt := range []struct{ server, uuid, version string }{
		{"1.115", "", "1.62"},
		{"1.115", nodeUUID, "1.62"},
		{"1.62", "", "1.62"},
		{"1.58", "", "1.58"},
		{"", "", "1.31"},
	} {
		synctest.Test(t, func(t *testing.T) {
			net := newNetwork(t)
			ironic := newFake(tt.server)
			net.serve("ironic", ironic)
			c, _ := newClient(t, net, "--api-url=http://ironic:6385")
			answer, err := c.Lookup(t.Context(), []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}, tt.uuid, "")
			if err != nil {
				t.Fatal(err)
			}
			if answer.Node.UUID() != nodeUUID || answer.HeartbeatInterval != 300*time.Second {
				t.Errorf("got node %s, interval %v", answer.Node.UUID(), answer.HeartbeatInterval)
			}
			got := ironic.got("/v1/lookup")
			if len(got) != 1 || got[0].Method != http.MethodGet || got[0].Version != tt.version {
				t.Fatalf("got %+v, want one GET with version %s", got, tt.version)
			}
			want := url.Values{"addresses": {"52:54:00:00:00:01,52:54:00:00:00:02"}}
			if tt.uuid != "" {
				want.Set("node_uuid", tt.uuid)
			}
			if got[0].Query != want.Encode() {
				t.Errorf("query: got %s, want %s", got[0].Query, want.Encode())
			}
		})
	}
}

// waits returns the time between consecutive calls.
func waits(calls []call) []time.Duration {
	var list []time.Duration
	for i := 1; i < len(calls); i++ {
		list = append(list, calls[i].At-calls[i-1].At)
	}
	return list
}

// Parity: B3
func TestLookupRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("1.115")
		ironic.lookup = func(n int) (int, string) {
			return 404, `{"error_message":{"faultstring":"Node was not found."}}`
		}
		net.serve("ironic", ironic)
		c, _ := newClient(t, net, "--api-url=http://ironic")
		_, err := c.Lookup(t.Context(), []string{"52:54:00:00:00:01"}, "", "")
		var failed *LookupError
		if !errors.As(err, &failed) {
			t.Fatalf("got error %v, want a LookupError", err)
		}
		calls := ironic.got("/v1/lookup")
		if failed.Attempts != len(calls) || failed.After < 600*time.Second || failed.After > 660*time.Second {
			t.Errorf("got %d tries in %v, want %d in 600 to 660 s", failed.Attempts, failed.After, len(calls))
		}
		if want := "Error 404: Node was not found."; failed.Err.Error() != want {
			t.Errorf("cause: got %v, want %v", failed.Err, want)
		}
		var different bool
		for i, wait := range waits(calls) {
			high := time.Minute
			if i < 6 {
				high = time.Second << i
			}
			if wait < time.Second || wait > high {
				t.Errorf("wait %d: got %v, want 1 s to %v", i+1, wait, high)
			}
			different = different || i > 0 && wait != high
		}
		if !different {
			t.Error("the waits are not random")
		}
	})
}

// Parity: B3
func TestLookupConflictPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("1.115")
		ironic.lookup = func(n int) (int, string) {
			if n <= 5 {
				return 409, `{"error_message":"{\"faultstring\":\"Node is locked\"}"}`
			}
			return 200, lookupAnswer(`{"heartbeat_timeout":300}`)
		}
		net.serve("ironic", ironic)
		c, _ := newClient(t, net, "--api-url=http://ironic")
		c.jitter = fixed(0) // the shortest wait, one second
		if _, err := c.Lookup(t.Context(), nil, nodeUUID, ""); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{6 * time.Second, 11 * time.Second, 31 * time.Second, 31 * time.Second, 31 * time.Second}
		if diff := cmp.Diff(want, waits(ironic.got("/v1/lookup"))); diff != "" {
			t.Errorf("waits with a second's ordinary pause (-want +got):\n%s", diff)
		}
	})
}

// Parity: B4
func TestLookupAnswers(t *testing.T) {
	legacy := `{"heartbeat_timeout":120,"node":{"uuid":"` + nodeUUID + `"}}`
	for _, tt := range []struct {
		name, body string
		retried    bool
		interval   time.Duration
	}{
		{"today's", lookupAnswer(`{"heartbeat_timeout":60}`), false, time.Minute},
		{"legacy", legacy, false, 2 * time.Minute},
		{"neither", `{"node":{"uuid":"` + nodeUUID + `"}}`, true, 0},
		{"config without timeout", lookupAnswer(`{}`), true, 0},
		{"timeout of another type", lookupAnswer(`{"heartbeat_timeout":"soon"}`), true, 0},
		{"timeout of zero", lookupAnswer(`{"heartbeat_timeout":0}`), false, 0},
		{"negative timeout", lookupAnswer(`{"heartbeat_timeout":-1}`), true, 0},
		{"timeout beyond all bounds", lookupAnswer(`{"heartbeat_timeout":1e300}`), true, 0},
		{"config of another type", lookupAnswer(`[]`), true, 0},
		{"no node", `{"config":{"heartbeat_timeout":60}}`, true, 0},
		{"no uuid", `{"node":{},"config":{"heartbeat_timeout":60}}`, true, 0},
		{"no JSON", `<html>`, true, 0},
		{"empty", ``, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := newNetwork(t)
				ironic := newFake("1.115")
				ironic.lookup = func(n int) (int, string) {
					if n == 1 {
						return 200, tt.body
					}
					return 200, lookupAnswer(`{"heartbeat_timeout":7}`)
				}
				net.serve("ironic", ironic)
				c, _ := newClient(t, net, "--api-url=http://ironic")
				answer, err := c.Lookup(t.Context(), nil, "", "")
				if err != nil {
					t.Fatal(err)
				}
				want := tt.interval
				if tt.retried {
					want = 7 * time.Second
				}
				if answer.HeartbeatInterval != want {
					t.Errorf("got interval %v, want %v", answer.HeartbeatInterval, want)
				}
			})
		})
	}
}

// A proxy can change the status to another success. The token of the response is not known yet and cannot be masked.
func TestLookupOfAnotherSuccessIsNotQuoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("1.115")
		minted := strings.Repeat("m", 43)
		ironic.lookup = func(int) (int, string) {
			return 203, lookupAnswer(`{"heartbeat_timeout":300,"agent_token":"` + minted + `"}`)
		}
		net.serve("ironic", ironic)
		c, log := newClient(t, net, "--api-url=http://ironic", "--lookup-timeout=0")
		_, err := c.Lookup(t.Context(), nil, "", "")
		if statusOf(err) != 203 || strings.Contains(err.Error()+log.String(), minted) {
			t.Errorf("got error %v and log\n%s\nwant status 203 and nothing of the response", err, log)
		}
	})
}

func TestLookupSurvivesADeadIronic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("1.115")
		c, _ := newClient(t, net, "--api-url=http://ironic")
		time.AfterFunc(5*time.Minute, func() { net.serve("ironic", ironic) })
		if _, err := c.Lookup(t.Context(), nil, "", ""); err != nil {
			t.Fatal(err)
		}
		if got := ironic.got("/v1/lookup")[0].Version; got != "1.62" {
			t.Errorf("got version %s, want 1.62: the version is requested again", got)
		}
	})
}

func TestLookupTimesOutAnIronicThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("1.115")
		ironic.lookup = func(n int) (int, string) {
			if n == 1 {
				time.Sleep(45 * time.Second)
			}
			return 200, lookupAnswer(`{"heartbeat_timeout":300}`)
		}
		net.serve("ironic", ironic)
		c, _ := newClient(t, net, "--api-url=http://ironic")
		if _, err := c.Lookup(t.Context(), nil, "", ""); err != nil {
			t.Fatal(err)
		}
		if got := len(ironic.got("/v1/lookup")); got != 2 {
			t.Errorf("got %d lookups, want a second one after http_request_timeout", got)
		}
		time.Sleep(time.Minute) // the hanging response must end before the test
	})
}

func TestLookupEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, newNetwork(t), "--api-url=http://ironic")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := c.Lookup(ctx, nil, "", ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want the context's", err)
		}
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("took %v, want 30 s", took)
		}
	})
}

func TestZeroLookupTimeoutTriesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, newNetwork(t), "--api-url=http://ironic", "--lookup-timeout=0")
		_, err := c.Lookup(t.Context(), nil, "", "")
		if failed := (*LookupError)(nil); !errors.As(err, &failed) || failed.Attempts != 1 {
			t.Errorf("got error %v, want a LookupError after one try", err)
		}
	})
}

// The version determines whether a lookup issues the token, without which newer versions reject heartbeats.
func TestLookupAtTheTrueVersion(t *testing.T) {
	for _, tt := range []struct {
		name    string
		refused int    // number of initial connections that are refused
		root    string // version in its root document, "" for none
		newest  string // version in the header of other responses
		want    []string
	}{
		{"an Ironic that just starts", 1, "1.115", "1.115", []string{"1.62"}},
		{"a root document that a proxy hides", 0, "", "1.115", []string{"1.31", "1.62"}},
		{"a root document that an old Ironic's proxy hides", 0, "", "1.58", []string{"1.31", "1.58"}},
		{"nothing that names a version", 0, "", "", []string{"1.31"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			net := newNetwork(t)
			net.refuse = tt.refused
			ironic := newFake(tt.root)
			ironic.newest = tt.newest
			net.serve("ironic", ironic)
			c, _ := newClient(t, net, "--api-url=http://ironic")
			if _, err := c.Lookup(t.Context(), []string{"52:54:00:00:00:01"}, "", ""); err != nil {
				t.Fatal(err)
			}
			var versions []string
			for _, call := range ironic.got("/v1/lookup") {
				versions = append(versions, call.Version)
			}
			if diff := cmp.Diff(tt.want, versions); diff != "" {
				t.Errorf("%s: versions of the lookups (-want +got):\n%s", tt.name, diff)
			}
			want := Version{1, 31}
			if tt.newest != "" {
				want, _ = ParseVersion(tt.newest)
			}
			if got := c.APIVersion(t.Context()); got != want {
				t.Errorf("%s: got version %v for heartbeats, want %v", tt.name, got, want)
			}
		})
	}
}

func TestLookupAtTheVersionOfTheOption(t *testing.T) {
	net := newNetwork(t)
	ironic := newFake("1.115")
	ironic.newest = "1.115"
	net.serve("ironic", ironic)
	c, _ := newClient(t, net, "--api-url=http://ironic", "--ironic-api-version=1.58")
	if _, err := c.Lookup(t.Context(), nil, nodeUUID, ""); err != nil {
		t.Fatal(err)
	}
	if got := ironic.got("/"); len(got) != 0 {
		t.Errorf("got requests for the version %v, want none", got)
	}
	if got := ironic.got("/v1/lookup"); len(got) != 1 || got[0].Version != "1.58" {
		t.Errorf("got lookups %v, want one at 1.58", got)
	}
}

// The result of each attempt of a lookup is reported.
func TestLookupsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("1.115")
		ironic.lookup = func(n int) (int, string) {
			if n < 3 {
				return 404, ""
			}
			return 200, lookupAnswer(`{"heartbeat_timeout":300}`)
		}
		net.serve("ironic", ironic)
		c, _ := newClient(t, net, "--api-url=http://ironic")
		var got []int
		c.board = fakeBoard{lookedUp: func(err error) { got = append(got, statusOf(err)) }}
		if _, err := c.Lookup(t.Context(), nil, "", ""); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int{404, 404, 0}, got); diff != "" {
			t.Errorf("statuses (-want +got):\n%s", diff)
		}
	})
}

// A lookup ends with its context also within a request and within the pause for a locked node.
func TestLookupEndsAnywhere(t *testing.T) {
	locked := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) })
	for name, handler := range map[string]http.Handler{"silent": silent, "locked": locked} {
		synctest.Test(t, func(t *testing.T) {
			net := newNetwork(t)
			net.serve("ironic", handler)
			c, _ := newClient(t, net, "--api-url=http://ironic", "--ironic-api-version=1.115")
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			started := time.Now()
			answer, err := c.Lookup(ctx, nil, "", "")
			if answer != nil || !errors.Is(err, context.DeadlineExceeded) || time.Since(started) != 3*time.Second {
				t.Errorf("%s: got %v, %v after %v, want the context's error after 3 s",
					name, answer, err, time.Since(started))
			}
		})
	}
}

// The error of an answer that cannot be decoded does not contain the token.
func TestLookupErrorHidesToken(t *testing.T) {
	for _, answer := range []string{
		`"` + secret + `"`, `["` + secret + `"]`, `{"config":"` + secret + `"}`, `{"config":["` + secret + `"]}`,
		`{"config":{"agent_token":` + secret + `}}`, `{"config":{"agent_token":"` + secret + `"`, `{"` + secret + `"}`,
		`{"node":"` + secret + `"}`, `{"heartbeat_timeout":"` + secret + `","node":{"uuid":"u"}}`, secret,
	} {
		if _, err := parseAnswer([]byte(answer)); err == nil || strings.Contains(err.Error(), secret[:4]) {
			t.Errorf("%s: got error %v, want one without the token", answer, err)
		}
	}
}
