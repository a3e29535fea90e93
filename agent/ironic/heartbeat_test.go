package ironic

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const callback = "https://[fd00::1]:9999"

func beats(c *Client, pem string) *Heartbeater {
	return c.NewHeartbeater(HeartbeatOptions{
		NodeUUID: nodeUUID, Interval: 300 * time.Second,
		Agent: fakeAgent{url: callback, pem: pem},
	})
}

// run sends heartbeats for a while.
func run(t *testing.T, h *Heartbeater, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := h.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run: got error %v, want the context's", err)
	}
}

// Parity: B5
func TestHeartbeatBodyByVersion(t *testing.T) {
	const pem = "-----BEGIN CERTIFICATE-----"
	for _, tt := range []struct {
		server, header, pem, token string
		want                       map[string]any
	}{
		{"1.31", "1.31", pem, secret, map[string]any{"callback_url": callback}},
		{"1.36", "1.36", pem, secret, map[string]any{"callback_url": callback, "agent_version": "1.2.3"}},
		{
			"1.62", "1.62", pem, secret,
			map[string]any{"callback_url": callback, "agent_version": "1.2.3", "agent_token": secret},
		},
		{"1.68", "1.68", pem, secret, map[string]any{
			"callback_url": callback, "agent_version": "1.2.3", "agent_token": secret, "agent_verify_ca": pem,
		}},
		{"1.115", "1.68", pem, secret, map[string]any{
			"callback_url": callback, "agent_version": "1.2.3", "agent_token": secret, "agent_verify_ca": pem,
		}},
		{
			"1.115", "1.68", "", "",
			map[string]any{"callback_url": callback, "agent_version": "1.2.3", "agent_token": nil},
		},
	} {
		t.Run(tt.server, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := newNetwork(t)
				ironic := newFake(tt.server)
				net.serve("ironic", ironic)
				c, _ := newClient(t, net, "--api-url=http://ironic")
				c.token.Set(tt.token)
				run(t, beats(c, tt.pem), time.Second)
				got := ironic.got("/v1/heartbeat/" + nodeUUID)
				if len(got) != 1 || got[0].Method != http.MethodPost || got[0].Version != tt.header {
					t.Fatalf("got %+v, want one POST with version %s at once", got, tt.header)
				}
				if diff := cmp.Diff(tt.want, got[0].Body); diff != "" {
					t.Errorf("body (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A token that must be verified is confirmed by an accepted heartbeat of an API version that has tokens, and by no
// other response.
func TestHeartbeatConfirmsToken(t *testing.T) {
	for _, tt := range []struct {
		server string
		status int
		want   bool
	}{
		{"1.115", 202, true},
		{"1.62", 202, true},
		{"1.61", 202, false},
		{"1.115", 200, false},
		{"1.115", 400, false},
		{"1.115", 500, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			net := newNetwork(t)
			ironic := newFake(tt.server)
			ironic.heartbeat = func(int) (int, string) { return tt.status, "{}" }
			net.serve("ironic", ironic)
			c, _ := newClient(t, net, "--api-url=http://ironic")
			c.token.SetUnverified(secret)
			run(t, beats(c, ""), time.Second)
			if got := c.token.Matches(secret); got != tt.want {
				t.Errorf("API version %s, status %d: token matches: got %t, want %t",
					tt.server, tt.status, got, tt.want)
			}
		})
	}
}

// With an interval of zero or nearly zero, the agent still pauses between heartbeats.
func TestMinimumHeartbeatInterval(t *testing.T) {
	for _, interval := range []time.Duration{0, time.Nanosecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			net := newNetwork(t)
			ironic := newFake("1.115")
			net.serve("ironic", ironic)
			c, _ := newClient(t, net, "--api-url=http://ironic")
			h := beats(c, "")
			h.Interval = interval
			run(t, h, time.Minute-time.Second)
			if got, want := len(ironic.got("/v1/heartbeat/"+nodeUUID)), 12; got != want {
				t.Errorf("interval %v: got %d heartbeats in a minute, want %d", interval, got, want)
			}
		})
	}
}

// Parity: B6
func TestHeartbeatIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("1.115")
		net.serve("ironic", ironic)
		c, _ := newClient(t, net, "--api-url=http://ironic")
		run(t, beats(c, ""), 1100*180*time.Second)
		got := waits(ironic.got("/v1/heartbeat"))
		if len(got) < 1000 {
			t.Fatalf("got %d heartbeats, want at least 1000", len(got))
		}
		within(t, got, 90*time.Second, 180*time.Second)
	})
}

// Parity: B6
func TestHeartbeatRetries(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		log    string
	}{
		{"conflict", 409, "conflict"},
		{"trouble", 500, "Error 500: no luck"},
		{"refused", 400, "Error 400: no luck"},
		{"success of another kind", 200, "Error 200"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := newNetwork(t)
				ironic := newFake("1.115")
				ironic.heartbeat = func(int) (int, string) {
					return tt.status, `{"error_message":{"faultstring":"no luck"}}`
				}
				net.serve("ironic", ironic)
				c, log := newClient(t, net, "--api-url=http://ironic")
				h := beats(c, "")
				run(t, h, 1000*10*time.Second)
				within(t, waits(ironic.got("/v1/heartbeat")), 5*time.Second, 10*time.Second)
				if !strings.Contains(log.String(), tt.log) {
					t.Errorf("the log lacks %q", tt.log)
				}
			})
		})
	}
}

func TestHeartbeatRetriesADeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		c, _ := newClient(t, net, "--api-url=http://ironic", "--ironic-api-version=1.115")
		run(t, beats(c, ""), 100*10*time.Second)
		if n := len(net.dials); n < 100 || n > 200 {
			t.Errorf("got %d connections in 1000 s, want 100 to 200", n)
		}
	})
}

// within checks that random times fill a range and do not leave it.
func within(t *testing.T, got []time.Duration, low, high time.Duration) {
	t.Helper()
	shortest, longest := slices.Min(got), slices.Max(got)
	if shortest < low || longest > high {
		t.Errorf("got %v to %v, want within %v to %v", shortest, longest, low, high)
	}
	if slack := (high - low) / 10; shortest > low+slack || longest < high-slack {
		t.Errorf("got %v to %v of %d, want them to fill %v to %v", shortest, longest, len(got), low, high)
	}
}

// Parity: B7
func TestForcedHeartbeats(t *testing.T) {
	for _, tt := range []struct {
		name   string
		forces []time.Duration // when commands finish
		want   []time.Duration // when heartbeats come
	}{
		{"a step of six seconds", []time.Duration{6 * time.Second}, []time.Duration{0, 6 * time.Second}},
		{
			"two quick steps share one",
			[]time.Duration{time.Second, 3 * time.Second},
			[]time.Duration{0, 5 * time.Second},
		},
		{
			"the next one waits for its gap",
			[]time.Duration{20 * time.Second, 21 * time.Second, 40 * time.Second},
			[]time.Duration{0, 20 * time.Second, 25 * time.Second, 40 * time.Second},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := newNetwork(t)
				ironic := newFake("1.115")
				net.serve("ironic", ironic)
				c, _ := newClient(t, net, "--api-url=http://ironic")
				h := beats(c, "")
				for _, at := range tt.forces {
					time.AfterFunc(at, h.Force)
				}
				run(t, h, 80*time.Second)
				var got []time.Duration
				for _, beat := range ironic.got("/v1/heartbeat") {
					got = append(got, beat.At)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("heartbeats (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A forced heartbeat that fails stays forced: the next ones come as soon as the gap allows, without the random pause
// of other failures, until one succeeds.
//
// Parity: B7
func TestFailedForcedHeartbeatStaysForced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("1.115")
		ironic.heartbeat = func(n int) (int, string) {
			if n >= 2 && n <= 12 {
				return 409, ""
			}
			return 202, ""
		}
		net.serve("ironic", ironic)
		c, _ := newClient(t, net, "--api-url=http://ironic")
		h := beats(c, "")
		time.AfterFunc(10*time.Second, h.Force)
		run(t, h, 70*time.Second+80*time.Second)
		var got, want []time.Duration
		for _, beat := range ironic.got("/v1/heartbeat") {
			got = append(got, beat.At)
		}
		want = append(want, 0)
		for i := range 12 {
			want = append(want, time.Duration(10+5*i)*time.Second)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("heartbeats (-want +got):\n%s", diff)
		}
	})
}

func TestForceWhileAHeartbeatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("1.115")
		ironic.heartbeat = func(n int) (int, string) {
			if n == 1 {
				time.Sleep(3 * time.Second)
			}
			return 202, ""
		}
		net.serve("ironic", ironic)
		c, _ := newClient(t, net, "--api-url=http://ironic")
		h := beats(c, "")
		time.AfterFunc(2*time.Second, h.Force)
		run(t, h, 80*time.Second)
		if got := len(ironic.got("/v1/heartbeat")); got != 2 {
			t.Errorf("got %d heartbeats, want a second one: Ironic can have polled before the command ended", got)
		}
	})
}

// Parity: B13
func TestRequestIDHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("1.115")
		net.serve("ironic", ironic)
		const id = "req-94d3b0a6-b5bb-4bb0-9ec9-8bdd1b6a3b1e"
		c, _ := newClient(t, net, "--api-url=http://ironic", "--global-request-id="+id)
		if _, err := c.Lookup(t.Context(), nil, "", ""); err != nil {
			t.Fatal(err)
		}
		run(t, beats(c, ""), time.Second)
		if _, err := c.PostInspection(t.Context(), []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if len(ironic.calls) != 4 {
			t.Errorf("got %d calls, want 4", len(ironic.calls))
		}
		for _, call := range ironic.calls {
			for header, want := range map[string]string{
				"X-OpenStack-Request-ID": id, "Content-Type": "application/json", "Accept": "application/json",
			} {
				if got := call.Header.Get(header); got != want {
					t.Errorf("%s %s: got %s %q, want %q", call.Method, call.Path, header, got, want)
				}
			}
		}
	})
}

// Parity: B13
func TestFaultTexts(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{
			"object", `{"error_message":{"faultcode":"Client","faultstring":"Node is locked","debuginfo":null}}`,
			"Node is locked",
		},
		{
			"JSON in a string",
			`{"error_message":"{\"debuginfo\": null, \"faultcode\": \"Client\", \"faultstring\": \"Node is locked\"}"}`,
			"Node is locked",
		},
		{"plain string", `{"error_message":"Node is locked"}`, "Node is locked"},
		{"bare fault", `{"faultstring":"Node is locked"}`, "Node is locked"},
		{"title", `{"code":"409","title":"Node is locked"}`, "Node is locked"},
		{"text of several lines", "<html>\n <b>Bad\tGateway</b>\x00\n</html>", "<html> <b>Bad Gateway</b> </html>"},
		{"another object", `{"x":1}`, `{"x":1}`},
		{"list", `["x"]`, `["x"]`},
		{"token quoted", `{"faultstring":"Invalid value ` + secret + `"}`, "Invalid value ***"},
		{"long", strings.Repeat("ä", 600), strings.Repeat("ä", 500) + "..."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := newNetwork(t)
				ironic := newFake("1.115")
				ironic.heartbeat = func(int) (int, string) { return 409, tt.body }
				net.serve("ironic", ironic)
				c, log := newClient(t, net, "--api-url=http://ironic")
				run(t, beats(c, ""), time.Second)
				err := beats(c, "").send(t.Context())
				if want := "Error 409: " + tt.want; err == nil || err.Error() != want {
					t.Errorf("got %v, want %s", err, want)
				}
				if !strings.Contains(strings.ReplaceAll(log.String(), `\"`, `"`), "Error 409: "+tt.want) {
					t.Errorf("the log lacks the text: %s", log)
				}
			})
		})
	}
}

func FuzzFaultText(f *testing.F) {
	f.Add([]byte(`{"error_message":"{\"faultstring\": \"x\"}"}`))
	f.Add([]byte(`{"error_message":{"title":7}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got := oneLine(faultText(body))
		if strings.ContainsAny(got, "\n\r\x00\x1b") || len([]rune(got)) > maxFaultLength+3 {
			t.Errorf("faultText(%q): got %q", body, got)
		}
	})
}

func FuzzLookupAnswer(f *testing.F) {
	f.Add([]byte(lookupAnswer(`{"heartbeat_timeout":300}`)))
	f.Add([]byte(`{"heartbeat_timeout":1e300,"node":{"uuid":"x"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		answer, err := parseAnswer(body)
		if err == nil && (answer.Node.UUID() == "" || answer.HeartbeatInterval <= 0) {
			t.Errorf("parseAnswer(%q): got %+v", body, answer)
		}
	})
}

// The result of each heartbeat is reported, except if it was cancelled.
func TestSentHeartbeatsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("1.115")
		ironic.heartbeat = func(n int) (int, string) {
			switch n {
			case 1:
				return 409, ""
			case 3:
				time.Sleep(time.Hour)
			}
			return 202, ""
		}
		net.serve("ironic", ironic)
		c, _ := newClient(t, net, "--api-url=http://ironic", "--http-request-timeout=7200")
		h := beats(c, "")
		var got []int
		h.Agent = fakeAgent{url: callback, done: func(err error) { got = append(got, statusOf(err)) }}
		run(t, h, 30*time.Minute)
		if diff := cmp.Diff([]int{409, 0}, got); diff != "" || len(ironic.got("/v1/heartbeat")) != 3 {
			t.Errorf("got %d heartbeats, statuses (-want +got):\n%s", len(ironic.got("/v1/heartbeat")), diff)
		}
		time.Sleep(time.Hour) // the hanging response must end before the test
	})
}

// A heartbeat that is forced before the first one is retried until it succeeds, like every forced one. Later failures
// are retried like failures of ordinary heartbeats.
func TestForcedHeartbeatEndsWithItsSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("1.115")
		ironic.heartbeat = func(n int) (int, string) {
			if n == 3 {
				return 202, ""
			}
			return 500, ""
		}
		net.serve("ironic", ironic)
		c, _ := newClient(t, net, "--api-url=http://ironic")
		c.jitter = fixed(1)
		h := beats(c, "")
		h.Force()
		run(t, h, 211*time.Second)
		want := []time.Duration{minForcedInterval, minForcedInterval, 180 * time.Second, retryHigh, retryHigh}
		if diff := cmp.Diff(want, waits(ironic.got("/v1/heartbeat"))); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
	})
}
