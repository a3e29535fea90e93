package ironic

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// silent accepts requests and never responds.
var silent = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })

// A URL that never responds costs attemptDelay. The operator's order is kept among URLs that respond quickly.
func TestSilentURL(t *testing.T) {
	for _, tt := range []struct {
		urls  string
		first string
		took  time.Duration
	}{
		{"http://good,http://better", "http://good", 0},
		{"http://dead,http://good", "http://good", 0},
		{"http://silent,http://good,http://better", "http://good", attemptDelay},
		{"http://silent,http://mute,http://good", "http://good", 2 * attemptDelay},
		{"http://silent,http://dead,http://good", "http://good", attemptDelay},
	} {
		synctest.Test(t, func(t *testing.T) {
			net := newNetwork(t)
			net.serve("silent", silent)
			net.serve("mute", silent)
			net.serve("good", newFake("1.115"))
			net.serve("better", newFake("1.115"))
			c, _ := newClient(t, net, "--api-url="+tt.urls)
			started := time.Now()
			if got, want := c.APIVersion(t.Context()), (Version{1, 115}); got != want {
				t.Errorf("%s: got version %v, want %v", tt.urls, got, want)
			}
			took := time.Since(started)
			if took != tt.took || c.urls[0] != tt.first || len(c.urls) != strings.Count(tt.urls, "http") {
				t.Errorf("%s: got %v after %v, want %s first after %v", tt.urls, c.urls, took, tt.first, tt.took)
			}
		})
	}
}

// clockFunc is called to set the clock.
type clockFunc func(now time.Time) error

func (f clockFunc) SetSystem(now time.Time) error { return f(now) }

// changes is a network whose change is triggered by happen.
type changes struct {
	mu sync.Mutex
	c  chan struct{}
}

func (c *changes) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c == nil {
		c.c = make(chan struct{})
	}
	return c.c
}

func (c *changes) happen() {
	c.Changed()
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.c)
	c.c = nil
}

// A network change triggers the search for the address, and a retry of a failed lookup.
func TestNetworkChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, newNetwork(t), "--api-url=http://10.0.0.1")
		var n changes
		c.network = &n
		table := &routes{sources: map[string]string{}}
		c.host = fakeHost{host: c.host, sourceFor: table.sourceFor}
		go func() {
			time.Sleep(time.Second)
			n.happen() // brings nothing
			time.Sleep(time.Second)
			table.mu.Lock()
			table.sources["10.0.0.1"] = "10.0.0.9"
			table.mu.Unlock()
			n.happen()
		}()
		started := time.Now()
		got, err := c.Advertise(t.Context())
		if took := time.Since(started); err != nil || got.Host != "10.0.0.9" || took != 2*time.Second {
			t.Errorf("got %v and %v after %v, want 10.0.0.9 after 2 s", got, err, took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		c, _ := newClient(t, net, "--api-url=http://ironic", "--lookup-interval=50")
		var n changes
		c.network = &n
		go func() {
			time.Sleep(time.Second)
			net.serve("ironic", newFake("1.115"))
			n.happen()
		}()
		started := time.Now()
		if _, err := c.Lookup(t.Context(), nil, "", ""); err != nil || time.Since(started) != time.Second {
			t.Errorf("got %v after %v, want a node after 1 s", err, time.Since(started))
		}
	})
}

// After an error of Ironic, network changes do not shorten the delays of the protocol.
func TestNetworkChangesAndIronicRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("1.115")
		ironic.lookup = func(n int) (int, string) {
			if n == 1 {
				return 404, ""
			}
			return 200, lookupAnswer(`{"heartbeat_timeout":300}`)
		}
		net.serve("ironic", ironic)
		c, _ := newClient(t, net, "--api-url=http://ironic", "--lookup-interval=50")
		var n changes
		c.network = &n
		go func() {
			time.Sleep(time.Second)
			n.happen()
		}()
		started := time.Now()
		if _, err := c.Lookup(t.Context(), nil, "", ""); err != nil || time.Since(started) != 50*time.Second {
			t.Errorf("got %v after %v, want a node after 50 s", err, time.Since(started))
		}
	})
}

// A network change starts a further attempt while an earlier one hangs.
func TestRedialOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n changes
		here, there := net.Pipe()
		defer there.Close() //nolint:errcheck // of a pipe
		var dials atomic.Int32
		dial := redialer{dialFunc(func(ctx context.Context, _, _ string) (net.Conn, error) {
			if dials.Add(1) < 3 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return here, nil
		}), &n}.DialContext
		go func() {
			for range 2 {
				time.Sleep(time.Second)
				n.happen()
			}
		}()
		started := time.Now()
		conn, err := dial(t.Context(), "tcp", "10.0.0.1:80")
		if err != nil || conn != here || time.Since(started) != 2*time.Second {
			t.Errorf("got %v, %v after %v, want the third attempt's connection after 2 s",
				conn, err, time.Since(started))
		}
	})
	refuse := redialer{dialFunc(func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("refused")
	}), &changes{}}.DialContext
	if _, err := refuse(t.Context(), "tcp", "10.0.0.1:80"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got error %v, want that of the only attempt", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	hang := redialer{dialFunc(func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}), &changes{}}.DialContext
	if _, err := hang(ctx, "tcp", "10.0.0.1:80"); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want the context's", err)
	}
}

// The callback address belongs to the route to the address at which Ironic responded.
func TestAdvertiseAsksForThePeer(t *testing.T) {
	ironic := httptest.NewServer(newFake("1.115"))
	defer ironic.Close()
	c, err := New(Options{Config: settings(t, "--api-url="+strings.Replace(ironic.URL, "127.0.0.1", "localhost", 1))})
	if err != nil {
		t.Fatal(err)
	}
	c.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, ironic.Listener.Addr().String())
	}
	table := &routes{sources: map[string]string{"127.0.0.1": "10.0.0.9"}}
	c.host = fakeHost{host: c.host, sourceFor: table.sourceFor}
	c.host = fakeHost{host: c.host, resolve: func(string) ([]netip.Addr, error) {
		return nil, errors.New("unexpected resolution")
	}}
	c.APIVersion(t.Context())
	got, err := c.Advertise(t.Context())
	if err != nil || got.Host != "10.0.0.9" {
		t.Errorf("got %v and %v, want the source to the peer", got, err)
	}
	if diff := cmp.Diff([]string{"127.0.0.1"}, table.asked); diff != "" {
		t.Errorf("routes asked for (-want +got):\n%s", diff)
	}
}

// Ironic's time is used if its certificate is valid at that time, or if certificates are not verified.
func TestTimeOf(t *testing.T) {
	server := httptest.NewTLSServer(newFake("1.115"))
	defer server.Close()
	own := server.Certificate()
	good := own.NotBefore.Add(time.Hour)
	if early := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC); good.Before(early) {
		good = early // httptest's is valid from 1970 to 2084
	}
	pool := x509.NewCertPool()
	pool.AddCert(own)
	for name, tt := range map[string]struct {
		date     string
		roots    *x509.CertPool
		host     string
		insecure bool
		plain    bool
		fails    bool
	}{
		"good":         {good.Format(http.TimeFormat), pool, "example.com", false, false, false},
		"another host": {good.Format(http.TimeFormat), pool, "example.net", false, false, true},
		"unknown authority": {
			good.Format(http.TimeFormat), x509.NewCertPool(), "example.com", false, false, true,
		},
		"certificate not valid then": {
			own.NotAfter.Add(time.Hour).Format(http.TimeFormat), pool, "example.com", false, false, true,
		},
		"absurd":   {"Thu, 01 Jan 2015 00:00:00 GMT", pool, "example.com", false, false, true},
		"no date":  {"", pool, "example.com", false, false, true},
		"insecure": {good.Format(http.TimeFormat), nil, "example.net", true, false, false},
		"http":     {good.Format(http.TimeFormat), nil, "example.net", false, true, false},
	} {
		c, err := New(Options{Config: settings(t, "--api-url=https://ironic")})
		if err != nil {
			t.Fatal(err)
		}
		transport := c.http.Transport.(*http.Transport)
		transport.TLSClientConfig.RootCAs, transport.TLSClientConfig.InsecureSkipVerify = tt.roots, tt.insecure
		answer := probeResult{tt.host, tt.date, &tls.ConnectionState{PeerCertificates: []*x509.Certificate{own}}}
		if tt.plain {
			answer.tls = nil
		}
		got, err := c.timeOf(answer)
		if (err != nil) != tt.fails || err == nil && !got.Equal(good) {
			t.Errorf("%s: got %v and %v, want %v, failure %v", name, got, err, good, tt.fails)
		}
	}
}

// The year 2000, in which every synctest bubble begins, is implausible: the clock is set from Ironic's time before the
// first request of the API or the inspection. If the clock must not be set, nothing is probed.
func TestSetsClockFromIronic(t *testing.T) {
	want := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		date  string
		args  []string
		may   bool
		set   int
		asked []string
	}{
		"lookup": {want.Format(http.TimeFormat), []string{"--api-url=http://ironic"}, true, 1, []string{
			"GET /", "POST /v1/continue_inspection",
		}},
		"inspection": {want.Format(http.TimeFormat), []string{
			"--inspection-callback-url=http://ironic/x/y",
		}, true, 1, []string{"GET /", "POST /x/y"}},
		"absurd": {"Sat, 01 Jan 2000 00:00:00 GMT", []string{"--api-url=http://ironic"}, true, 0, []string{
			"GET /", "POST /v1/continue_inspection",
		}},
		"may not": {want.Format(http.TimeFormat), []string{"--api-url=http://ironic"}, false, 0, []string{
			"POST /v1/continue_inspection",
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			net := newNetwork(t)
			ironic := newFake("1.115")
			net.serve("ironic", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Date", tt.date)
				ironic.ServeHTTP(w, r)
			}))
			c, log := newClient(t, net, tt.args...)
			set := 0
			if tt.may {
				c.clock = clockFunc(func(now time.Time) error {
					if set++; !now.Equal(want) {
						t.Errorf("%s: the clock was set to %v, want %v", name, now, want)
					}
					return nil
				})
			}
			if _, err := c.PostInspection(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			var asked []string
			for _, call := range ironic.calls {
				asked = append(asked, call.Method+" "+call.Path)
			}
			if diff := cmp.Diff(tt.asked, asked); diff != "" || set != tt.set {
				t.Errorf("%s: the clock was set %d times, want %d; requests (-want +got):\n%s", name, set, tt.set, diff)
			}
			if tt.may && !strings.Contains(log.String(), "ipa-ntp-server") {
				t.Errorf("%s: the log does not name the option:\n%s", name, log)
			}
		})
	}
}

// When a connection attempt succeeds, the others are cancelled. Further connections are closed.
func TestRedialOnChangeDropsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n changes
		first, firstPeer := net.Pipe()
		second, secondPeer := net.Pipe()
		defer second.Close()     //nolint:errcheck // of a pipe
		defer secondPeer.Close() //nolint:errcheck // of a pipe
		release := make(chan struct{})
		var dials atomic.Int32
		contexts := make(chan context.Context, 1) // of the first attempt
		dial := redialer{dialFunc(func(ctx context.Context, _, _ string) (net.Conn, error) {
			if dials.Add(1) == 1 {
				contexts <- ctx
				<-release
				return first, nil
			}
			return second, nil
		}), &n}.DialContext
		time.AfterFunc(time.Second, n.happen)
		if conn, err := dial(t.Context(), "tcp", "10.0.0.1:80"); err != nil || conn != second {
			t.Errorf("got %v, %v, want the connection of the second attempt", conn, err)
		}
		if ctx := <-contexts; ctx.Err() == nil {
			t.Error("the first attempt was not cancelled")
		}
		close(release)
		if n, err := firstPeer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("connection of the first attempt: got %d bytes, %v, want it closed", n, err)
		}
	})
}

// A probe follows no redirect and closes its connection.
func TestProbe(t *testing.T) {
	network := newNetwork(t)
	network.serve("other", newFake("1.115"))
	closes := make(chan bool, 1)
	network.serve("ironic", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		closes <- r.Close
		http.Redirect(w, r, "http://other/", http.StatusMovedPermanently)
	}))
	c, _ := newClient(t, network)
	if _, err := c.ask(t.Context(), "http://ironic"); err != nil {
		t.Error(err)
	}
	if !<-closes {
		t.Error("the connection would stay open")
	}
	if diff := cmp.Diff([]string{"ironic"}, network.dials); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
	if _, err := c.ask(t.Context(), "http://[bad"); err == nil {
		t.Error("invalid URL: got no error")
	}
}

// Every request is reported with its result. After the end of the context, nothing is sent or reported.
func TestTriedURLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork(t)
		network.serve("good", newFake("1.115"))
		network.serve("silent", silent)
		c, _ := newClient(t, network)
		var tried []string
		c.board = fakeBoard{tried: func(url string, err error) {
			if err != nil {
				url += " failed"
			}
			tried = append(tried, url)
		}}
		r := request{method: http.MethodGet, path: "/"}
		urls := []string{"http://dead", "http://[bad", "http://good"}
		if _, used, err := c.try(t.Context(), urls, r); err != nil || used != 2 {
			t.Errorf("got URL %d, %v, want the third one's answer", used, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		urls = []string{"http://silent", "http://good"}
		if _, _, err := c.try(ctx, urls, r); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
		if diff := cmp.Diff([]string{"http://dead failed", "http://[bad failed", "http://good"}, tried); diff != "" {
			t.Errorf("URLs tried (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"dead", "good", "silent"}, network.dials); diff != "" {
			t.Errorf("connections (-want +got):\n%s", diff)
		}
	})
}

// A truncated response is an error.
func TestAnswerCutOff(t *testing.T) {
	network := newNetwork(t)
	network.serve("ironic", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"default_version":{"version":"1.115"}}`)
	}))
	c, _ := newClient(t, network, "--api-url=http://ironic")
	if _, err := c.apiVersion(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want %v", err, io.ErrUnexpectedEOF)
	}
}
