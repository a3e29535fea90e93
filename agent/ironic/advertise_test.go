package ironic

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// routes implements SourceFor with a table and records the calls.
type routes struct {
	mu      sync.Mutex
	sources map[string]string
	asked   []string
}

func (r *routes) sourceFor(_ context.Context, dst netip.Addr) (netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, dst.String())
	if source, ok := r.sources[dst.String()]; ok {
		return netip.MustParseAddr(source), nil
	}
	return netip.Addr{}, errors.New("no route to " + dst.String())
}

func TestAdvertiseOptions(t *testing.T) {
	net := newNetwork(t)
	c, _ := newClient(t, net, "--advertise-host=fd00::5", "--advertise-port=1234", "--api-url=http://ironic")
	got, err := c.Advertise(t.Context())
	if want := (Endpoint{"fd00::5", 1234}); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if want := "https://[fd00::5]:1234"; got.URL("https") != want {
		t.Errorf("URL: got %s, want %s", got.URL("https"), want)
	}
	if len(net.dials) != 0 {
		t.Errorf("got connections to %v, want none", net.dials)
	}
	c, _ = newClient(t, net, "--network-interface=lo")
	got, err = c.Advertise(t.Context())
	if want := (Endpoint{"127.0.0.1", 9999}); err != nil || got != want {
		t.Errorf("network_interface: got %v, %v, want %v", got, err, want)
	}
	c, _ = newClient(t, net, "--network-interface=no-such", "--ip-lookup-attempts=1")
	if _, err = c.Advertise(t.Context()); err == nil || !strings.Contains(err.Error(), "no-such") {
		t.Errorf("got error %v, want one that names the interface", err)
	}
}

func TestAdvertiseByRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		trouble := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		})
		net.serve("two", trouble) // any response counts as reachable
		net.serve("10.0.0.3", newFake("1.115"))
		c, _ := newClient(t, net, "--api-url=http://one,http://two:6385/,http://10.0.0.3")
		table := &routes{
			sources: map[string]string{"10.0.0.2": "169.254.0.9", "fd00::2": "fe80::9", "10.0.0.3": "10.0.0.9"},
		}
		c.host = fakeHost{host: c.host, sourceFor: table.sourceFor}
		c.host = fakeHost{host: c.host, resolve: func(host string) ([]netip.Addr, error) {
			return map[string][]netip.Addr{
				"two": {netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")},
			}[host], nil
		}}
		got, err := c.Advertise(t.Context())
		if want := (Endpoint{"10.0.0.9", 9999}); err != nil || got != want {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
		if diff := cmp.Diff([]string{"http://one", "http://two:6385", "http://10.0.0.3"}, c.urls); diff != "" {
			t.Errorf("an unreachable URL is kept (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"10.0.0.2", "fd00::2", "10.0.0.3"}, table.asked); diff != "" {
			t.Errorf("routes asked for (-want +got):\n%s", diff)
		}
	})
}

func TestAdvertiseAsksAllURLsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Second) })
		net.serve("10.0.0.1", slow)
		net.serve("10.0.0.2", slow)
		c, _ := newClient(t, net, "--api-url=http://10.0.0.1,http://10.0.0.2,http://10.0.0.3")
		table := &routes{sources: map[string]string{"10.0.0.1": "10.0.0.9"}}
		c.host = fakeHost{host: c.host, sourceFor: table.sourceFor}
		start := time.Now()
		if _, err := c.Advertise(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("took %v, want 20 s", took)
		}
	})
}

// Parity: C6
func TestAdvertiseRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, newNetwork(t), "--api-url=http://10.0.0.1", "--ip-lookup-attempts=4",
			"--ip-lookup-sleep=7")
		table := &routes{}
		c.host = fakeHost{host: c.host, sourceFor: table.sourceFor}
		start := time.Now()
		_, err := c.Advertise(t.Context())
		if err == nil || !strings.Contains(err.Error(), "no route to 10.0.0.1") {
			t.Errorf("got error %v, want the last round's", err)
		}
		if took := time.Since(start); len(table.asked) != 4 || took != 21*time.Second {
			t.Errorf("got %d rounds in %v, want 4 in 21 s", len(table.asked), took)
		}
		if diff := cmp.Diff([]string{"http://10.0.0.1"}, c.urls); diff != "" {
			t.Errorf("nothing was reachable, so the URLs stay (-want +got):\n%s", diff)
		}
	})
}

func TestAdvertiseWithoutTargets(t *testing.T) {
	c, _ := newClient(t, newNetwork(t))
	if _, err := c.Advertise(t.Context()); err == nil || !strings.Contains(err.Error(), "api_url") {
		t.Errorf("got error %v, want one that names the option", err)
	}
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, newNetwork(t), "--api-url=http://nowhere")
		c.host = fakeHost{host: c.host, resolve: resolveNothing}
		if _, err := c.Advertise(t.Context()); err == nil || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("got error %v, want one that names the host", err)
		}
	})
}

func TestPreferredAddress(t *testing.T) {
	for _, tt := range []struct{ addresses, want string }{
		{"fe80::1/64 2001:db8::1/64 192.0.2.1/24 192.0.2.2/24", "192.0.2.1"},
		{"fe80::1/64 2001:db8::1/64 2001:db8::2/64", "2001:db8::1"},
		{"fe80::1/64 fd00::1/64", "fd00::1"},
		{"fe80::1/64", "invalid IP"},
		{"", "invalid IP"},
	} {
		var addresses []net.Addr
		for text := range strings.FieldsSeq(tt.addresses) {
			ip, network, err := net.ParseCIDR(text)
			if err != nil {
				t.Fatal(err)
			}
			addresses = append(addresses, &net.IPNet{IP: ip, Mask: network.Mask})
		}
		if got, _ := preferredAddress(addresses); got.String() != tt.want {
			t.Errorf("%q: got %v, want %v", tt.addresses, got, tt.want)
		}
	}
}

// The address belongs to the route to a URL that answers, not of the route to one that does not.
func TestAdvertiseIgnoresUnreachableURLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		net.serve("10.0.0.2", newFake("1.115"))
		c, _ := newClient(t, net, "--api-url=http://10.0.0.1,http://10.0.0.2")
		table := &routes{sources: map[string]string{"10.0.0.1": "10.0.0.8", "10.0.0.2": "10.0.0.9"}}
		c.host = fakeHost{host: c.host, sourceFor: table.sourceFor}
		if got, err := c.Advertise(t.Context()); err != nil || got.Host != "10.0.0.9" {
			t.Errorf("got %v, %v, want the address on the route to 10.0.0.2", got, err)
		}
	})
}

// The error contains the failure of each attempt: for the address at which Ironic answered last, and for its names.
func TestAdvertiseNamesAllFailures(t *testing.T) {
	c, _ := newClient(t, newNetwork(t), "--api-url=http://nowhere", "--ip-lookup-attempts=1")
	peer := netip.MustParseAddr("10.0.0.7")
	c.peer.Store(&peer)
	c.host = fakeHost{host: c.host, sourceFor: (&routes{}).sourceFor}
	c.host = fakeHost{host: c.host, resolve: resolveNothing}
	_, err := c.Advertise(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no route to 10.0.0.7") ||
		!strings.Contains(err.Error(), "nowhere") {
		t.Errorf("got %v, want an error that names the address and the host", err)
	}
}

func TestAdvertiseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, newNetwork(t), "--api-url=http://10.0.0.1", "--ip-lookup-sleep=7")
		c.host = fakeHost{host: c.host, sourceFor: (&routes{}).sourceFor}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if got, err := c.Advertise(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, %v, want the context's error", got, err)
		}
	})
}

// Without an option the system resolves the names of Ironic.
func TestAdvertiseResolvesNames(t *testing.T) {
	const own = "10.0.0.9"
	table := &routes{sources: map[string]string{"127.0.0.1": own, "::ffff:127.0.0.1": own, "::1": own}}
	live := settings(t, "--api-url=http://localhost", "--ip-lookup-attempts=1")
	c, err := New(Options{Config: live})
	if err != nil {
		t.Fatal(err)
	}
	c.host = fakeHost{host: c.host, sourceFor: table.sourceFor}
	if got, err := c.Advertise(t.Context()); err != nil || got.Host != "10.0.0.9" {
		t.Errorf("got %v, %v, want the source to localhost", got, err)
	}
}

// An option can have brackets around an address. The certificate contains the address without them, the URL has them.
func TestAdvertiseHostInBrackets(t *testing.T) {
	for host, want := range map[string]Endpoint{
		"[2001:db8::10]": {"2001:db8::10", 9999}, "2001:db8::10": {"2001:db8::10", 9999},
		"a.example": {"a.example", 9999},
	} {
		c, _ := newClient(t, newNetwork(t), "--api-url=http://10.0.0.1", "--advertise-host="+host)
		got, err := c.Advertise(t.Context())
		if got != want || err != nil {
			t.Errorf("%s: got %v, %v, want %v", host, got, err, want)
		}
		u, err := url.Parse(got.URL("https"))
		if err != nil || u.Hostname() != want.Host || u.Port() != "9999" {
			t.Errorf("%s: got %v, %v, want a URL of %v", host, u, err, want)
		}
	}
}

// resolveNothing knows no host.
func resolveNothing(string) ([]netip.Addr, error) { return nil, errors.New("no such host") }
