package ironic

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/internal/pause"
)

// board has a text that changes.
type board struct {
	mu      sync.Mutex
	text    string
	changed chan struct{}
}

func newBoard(text string) *board { return &board{text: text, changed: make(chan struct{})} }

func (b *board) set(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = text
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *board) Summary() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text
}

func (b *board) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// tick changes the text every second, half a second before it, until the test ends.
func (b *board) tick(t *testing.T) {
	go func() {
		for wait, n := 500*time.Millisecond, 1; pause.For(t.Context(), wait) == nil; wait, n = time.Second, n+1 {
			b.set(fmt.Sprintf("erase_devices: %d s", n))
		}
	}()
}

// reporting is a Heartbeater of an Ironic with an API version that reports the text of a board.
func reporting(t *testing.T, b *board, ironic *fake, interval time.Duration) (*Heartbeater, func() string) {
	t.Helper()
	net := newNetwork(t)
	net.serve("ironic", ironic)
	c, log := newClient(t, net, "--api-url=http://ironic")
	c.jitter = fixed(1) // regular heartbeats each 180 s
	c.config.Update(func(live *config.Config) { live.ProgressInterval = interval })
	h := c.NewHeartbeater(HeartbeatOptions{
		NodeUUID: nodeUUID, Interval: 300 * time.Second, Agent: fakeAgent{url: callback}, Progress: b,
	})
	return h, log.String
}

// messages returns the times and the messages of heartbeats, as "60 text".
func messages(calls []call) (list []string) {
	for _, c := range calls {
		text, _ := c.Body["agent_status_message"].(string)
		list = append(list, strings.TrimSpace(fmt.Sprintf("%v %s", c.At.Seconds(), text)))
	}
	return list
}

// Heartbeats contain the progress from the API version on that knows it, and never agent_status.
//
// Parity: T12 (API versions)
func TestProgressByVersion(t *testing.T) {
	const text = "write_image: 43%"
	for _, c := range []struct{ server, header, text, want string }{
		{"1.68", "1.68", text, ""},
		{"1.71", "1.68", text, ""},
		{"1.72", "1.72", text, text},
		{"1.115", "1.72", text, text},
		{"1.115", "1.68", "", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			ironic := newFake(c.server)
			b := newBoard(c.text)
			if c.want == "" && c.text != "" {
				b.tick(t) // an older Ironic gets no heartbeat because of it
			}
			h, _ := reporting(t, b, ironic, time.Minute)
			run(t, h, 100*time.Second)
			got := ironic.got("/v1/heartbeat")
			if len(got) != 1 || got[0].Version != c.header {
				t.Fatalf("%s: got %+v, want one heartbeat with version %s", c.server, got, c.header)
			}
			message, known := got[0].Body["agent_status_message"]
			_, status := got[0].Body["agent_status"]
			if known != (c.want != "") || known && message != c.want || status {
				t.Errorf("%s: got %v, want the message %q and no agent_status", c.server, got[0].Body, c.want)
			}
		})
	}
}

// Progress is sent once it has changed, progress_interval after the previous heartbeat at the earliest.
//
// Parity: T12 (interval)
func TestProgressInterval(t *testing.T) {
	for _, c := range []struct {
		name     string
		interval time.Duration
		change   func(t *testing.T, b *board, h *Heartbeater)
		want     []string
	}{
		{"nothing changes", time.Minute, func(*testing.T, *board, *Heartbeater) {}, []string{"0 a", "180 a", "360 a"}},
		{"constant change", 100 * time.Second, func(t *testing.T, b *board, _ *Heartbeater) { b.tick(t) }, []string{
			"0 a", "100 erase_devices: 100 s", "200 erase_devices: 200 s", "300 erase_devices: 300 s",
		}},
		{"without progress_interval", 0, func(t *testing.T, b *board, _ *Heartbeater) { b.tick(t) }, []string{
			"0 a", "180 erase_devices: 180 s", "360 erase_devices: 360 s",
		}},
		{"longer than Ironic requires", time.Hour, func(t *testing.T, b *board, _ *Heartbeater) { b.tick(t) }, []string{
			"0 a", "180 erase_devices: 180 s", "360 erase_devices: 360 s",
		}},
		{"early change", time.Minute, func(_ *testing.T, b *board, _ *Heartbeater) {
			time.AfterFunc(5*time.Second, func() { b.set("b") })
		}, []string{"0 a", "60 b", "240 b"}},
		{"late change", time.Minute, func(_ *testing.T, b *board, _ *Heartbeater) {
			time.AfterFunc(70*time.Second, func() { b.set("a") }) // something else has changed
			time.AfterFunc(75*time.Second, func() { b.set("b") })
		}, []string{"0 a", "75 b", "255 b"}},
		{"the change is taken back", time.Minute, func(_ *testing.T, b *board, _ *Heartbeater) {
			time.AfterFunc(5*time.Second, func() { b.set("b") })
			time.AfterFunc(10*time.Second, func() { b.set("a") })
		}, []string{"0 a", "180 a", "360 a"}},
		{"the text ends", time.Minute, func(_ *testing.T, b *board, _ *Heartbeater) {
			time.AfterFunc(5*time.Second, func() { b.set("") })
		}, []string{"0 a", "180", "360"}},
		{"a command ends", time.Minute, func(_ *testing.T, b *board, h *Heartbeater) {
			time.AfterFunc(80*time.Second, func() { b.set("b") })
			time.AfterFunc(90*time.Second, func() {
				b.set("done")
				h.Force()
			})
		}, []string{"0 a", "80 b", "90 done", "270 done"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ironic := newFake("1.115")
				b := newBoard("a")
				h, _ := reporting(t, b, ironic, c.interval)
				c.change(t, b, h)
				run(t, h, 380*time.Second)
				if diff := cmp.Diff(c.want, messages(ironic.got("/v1/heartbeat"))); diff != "" {
					t.Errorf("heartbeats (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// rounded returns the waits between heartbeats in seconds.
func rounded(calls []call) (list []int) {
	for _, w := range waits(calls) {
		list = append(list, int(w.Round(time.Second).Seconds()))
	}
	return list
}

// While Ironic is busy, the interval of progress grows to the interval of regular heartbeats. It returns step by step.
//
// Parity: T12 (back-off)
func TestProgressBackOff(t *testing.T) {
	slow := func() (int, string) {
		time.Sleep(slowAnswer + time.Second)
		return 202, ""
	}
	status := func(status int) func() (int, string) { return func() (int, string) { return status, "" } }
	for _, c := range []struct {
		name   string
		first  int // first heartbeat that is answered by answer
		last   int
		answer func() (int, string)
		want   []int // waits between heartbeats in seconds
	}{
		{"quick answers", 0, 0, nil, []int{40, 40, 40, 40, 40}},
		{"one conflict", 3, 3, status(409), []int{40, 40, 80, 40, 40}},
		{"one failure", 3, 3, status(500), []int{40, 40, 80, 40, 40}},
		{"one refusal", 3, 3, status(400), []int{40, 40, 140, 60, 40}}, // because of the text, see TestRejectedProgress
		// 180 s after the last one that was accepted a heartbeat is regular, and repeated as such.
		{"many failures", 3, 7, status(503), []int{40, 40, 80, 60, 10, 10, 10, 160, 80, 40, 40}},
		{"slow answers", 2, 4, slow, []int{40, 86, 166, 186, 160, 80, 40, 40}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ironic := newFake("1.115")
				ironic.heartbeat = func(n int) (int, string) {
					if c.answer != nil && n >= c.first && n <= c.last {
						return c.answer()
					}
					return 202, ""
				}
				b := newBoard("a")
				b.tick(t)
				h, _ := reporting(t, b, ironic, 40*time.Second)
				run(t, h, 2000*time.Second)
				got := rounded(ironic.got("/v1/heartbeat"))
				if diff := cmp.Diff(c.want, got[:min(len(got), len(c.want))]); diff != "" {
					t.Errorf("waits (-want +got):\n%s\n%v", diff, got)
				}
			})
		})
	}
}

// The failure of a heartbeat for progress is not reported as one of the connection, and does not delay the regular one.
func TestFailedProgressIsNoFailedHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ironic := newFake("1.115")
		ironic.heartbeat = func(n int) (int, string) {
			if n == 2 {
				return 409, ""
			}
			return 202, ""
		}
		b := newBoard("a")
		h, log := reporting(t, b, ironic, 100*time.Second)
		time.AfterFunc(time.Second, func() { b.set("b") })
		var sent []int
		h.Agent = fakeAgent{url: callback, done: func(err error) { sent = append(sent, statusOf(err)) }}
		run(t, h, 200*time.Second)
		want := []string{"0 a", "100 b", "180 b"}
		if diff := cmp.Diff(want, messages(ironic.got("/v1/heartbeat"))); diff != "" {
			t.Errorf("heartbeats (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]int{0, 0}, sent); diff != "" || !strings.Contains(log(), "progress not sent") ||
			strings.Contains(log(), "heartbeat failed") {
			t.Errorf("got the results %v and log:\n%s\nwant two accepted heartbeats and a warning", sent, log())
		}
	})
}

// If Ironic or a proxy rejects heartbeats because of the progress, the agent sends them without it for a while: for an
// hour if Ironic does not know the field. One rejection without a reason pauses the progress for a minute. A refused
// token is reported, and the heartbeat is repeated soon.
func TestRejectedProgress(t *testing.T) {
	for _, c := range []struct {
		name   string
		why    func(call) bool // whether a heartbeat is rejected
		answer string
		want   []string
	}{
		{"the text", func(c call) bool { return c.Body["agent_status_message"] != nil }, "", []string{
			"0", "60 b", "180", "240 b", "360",
		}},
		{
			"the field", func(c call) bool { return c.Body["agent_status_message"] != nil },
			`{"error_message":{"faultstring":"Fields \"agent_status\" and \"agent_status_message\" not recognised."}}`,
			[]string{"0", "60 b", "180", "360"},
		},
		{
			"the text, once", func(c call) bool { return c.At > time.Second && c.At < 61*time.Second }, "",
			[]string{"0", "60 b", "180", "240 b"},
		},
		{"another reason", func(c call) bool { return c.At > time.Second && c.At < 185*time.Second }, "", []string{
			"0", "60 b", "180", "190 b", "370 b",
		}},
		{
			"the token", func(c call) bool { return c.At > time.Second && c.At < 65*time.Second },
			`{"error_message":{"faultstring":"Invalid or missing agent token received."}}`,
			[]string{
				"0", "60 b", "70 b", "250 b",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ironic := newFake("1.115")
				ironic.heartbeat = func(n int) (int, string) {
					if calls := ironic.got("/v1/heartbeat"); c.why(calls[n-1]) {
						return 400, c.answer
					}
					return 202, ""
				}
				b := newBoard("")
				h, log := reporting(t, b, ironic, time.Minute)
				time.AfterFunc(time.Second, func() { b.set("b") })
				refused := 0
				h.Agent = fakeAgent{url: callback, done: func(err error) {
					if TokenRefused(err) {
						refused++
					}
				}}
				run(t, h, 400*time.Second)
				if want := map[string]int{"the token": 1}[c.name]; refused != want {
					t.Errorf("got %d reports of a refused token, want %d", refused, want)
				}
				if diff := cmp.Diff(c.want, messages(ironic.got("/v1/heartbeat"))); diff != "" {
					t.Errorf("heartbeats (-want +got):\n%s", diff)
				}
				want := strings.HasPrefix(c.name, "the text") || c.name == "the field"
				if got := strings.Contains(log(), "rejects heartbeats with progress"); got != want {
					t.Errorf("got the log\n%s", log())
				}
			})
		})
	}
}

// The pause after rejected progress doubles up to a day, and begins anew when Ironic has accepted a text.
func TestRejectedProgressIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ironic := newFake("1.115")
		var texts []time.Duration // times of heartbeats with a text
		ironic.heartbeat = func(n int) (int, string) {
			last := ironic.got("/v1/heartbeat")[n-1]
			if last.Body["agent_status_message"] == nil {
				return 202, ""
			}
			texts = append(texts, last.At)
			if len(texts) == 9 {
				return 202, ""
			}
			return 400, `{"error_message":{"faultstring":"Field agent_status_message not recognised."}}`
		}
		b := newBoard("")
		h, _ := reporting(t, b, ironic, time.Minute)
		h.Interval = 50 * time.Minute // fewer heartbeats to simulate
		go func() {
			for n := 0; pause.For(t.Context(), time.Minute) == nil; n++ {
				b.set(fmt.Sprintf("erase_devices: %d minutes", n))
			}
		}()
		run(t, h, 6*24*time.Hour)
		var hours []int
		for i, at := range texts[:min(len(texts), 11)] {
			if i > 0 {
				hours = append(hours, int((at - texts[i-1]).Hours()))
			}
		}
		if want := []int{1, 2, 4, 8, 16, 24, 24, 24, 0, 1}; !slices.Equal(hours, want) {
			t.Errorf("got a text after %v hours, want %v", hours, want)
		}
	})
}

// A forced heartbeat that fails is repeated with the result of the command until Ironic accepts it.
func TestResultIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ironic := newFake("1.115")
		ironic.heartbeat = func(n int) (int, string) {
			if n > 1 && n < 5 {
				return 503, ""
			}
			return 202, ""
		}
		b := newBoard("a")
		h, _ := reporting(t, b, ironic, time.Minute)
		time.AfterFunc(50*time.Second, func() {
			b.set("write_image: done")
			h.Force()
		})
		run(t, h, 100*time.Second)
		got := messages(ironic.got("/v1/heartbeat"))
		const done = " write_image: done"
		if want := []string{"0 a", "50" + done, "55" + done, "60" + done, "65" + done}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
