package ironic

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"ironroot/agent/config"
)

// answering is a host whose services are known by instance.
type answering struct {
	fakeHost
	known map[string]service
	asked *[]string
}

func (a answering) AskService(
	_ context.Context, _ time.Duration, instance string, _ []string, _ Network,
) (service, error) {
	*a.asked = append(*a.asked, instance)
	if s, ok := a.known[instance]; ok {
		return s, nil
	}
	return service{}, errors.New("no answer")
}

// answers returns a client with a fake host that responds by instance, and the list of queried instances.
func answers(
	t *testing.T, params config.Params, known map[string]service,
) (c *Client, live *config.Live, asked *[]string) {
	t.Helper()
	settings, err := config.Load(config.Sources{Params: params})
	if err != nil {
		t.Fatal(err)
	}
	live = config.NewLive(settings)
	if c, err = New(Options{Config: live}); err != nil {
		t.Fatal(err)
	}
	asked = &[]string{}
	c.host = answering{fakeHost{sourceFor: func(_ context.Context, dst netip.Addr) (netip.Addr, error) {
		if dst.String() == "198.51.100.9" {
			return netip.Addr{}, errors.New("no route")
		}
		return dst, nil
	}}, known, asked}
	return c, live, asked
}

func addresses(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func TestServiceURL(t *testing.T) {
	c, _, _ := answers(t, nil, nil)
	for want, s := range map[string]service{
		"https://192.0.2.1:6385": {
			host: "node.local.", port: 6385, addresses: addresses("127.0.0.1", "192.0.2.1"),
		},
		"http://192.0.2.2:80": {host: "node.LOCAL.", port: 80, addresses: addresses("192.0.2.2")},
		"https://[2001:db8::1]:443/ironic": {
			host: "node.local.", port: 443, addresses: addresses("::1", "2001:db8::1"),
			text: map[string]string{"path": "/ironic"},
		},
		"http://[fe80::1%25eth0]:6385/": {
			host: "node.local.", port: 6385, addresses: addresses("fe80::1%eth0"),
			text: map[string]string{"protocol": "http", "path": "/"},
		},
		"https://ironic.example.org:6385/a": {
			host: "ironic.example.org.", port: 6385, addresses: addresses("192.0.2.2"),
			text: map[string]string{"path": "a"},
		},
		"https://192.0.2.3:1":    {host: "node.local.", port: 1, addresses: addresses("198.51.100.9", "192.0.2.3")},
		"https://198.51.100.9:2": {host: "node.local.", port: 2, addresses: addresses("198.51.100.9")},
	} {
		if got, err := c.serviceURL(context.Background(), s); err != nil || got != want {
			t.Errorf("%+v: got %s, %v, want %s", s, got, err, want)
		}
	}
	for _, s := range []service{
		{host: "node.local.", port: 1},
		{host: "node.local.", port: 1, addresses: addresses("127.0.0.1", "::")},
		{host: "user@host/x.", port: 1},
		{host: "a,b.example.", port: 1},
		{host: "a.example.", port: 1, text: map[string]string{"protocol": "file"}},
		{host: "a.example.", port: 1, text: map[string]string{"path": "/,http://other"}},
	} {
		if got, err := c.serviceURL(context.Background(), s); err == nil {
			t.Errorf("%+v: got %s and no error", s, got)
		}
	}
}

// A host that answers all queries changes nothing if multicast DNS is not enabled, and otherwise only the allowed
// options.
func TestSpoofingResponder(t *testing.T) {
	spoof := service{host: "evil.local.", port: 80, addresses: addresses("192.0.2.66"), text: map[string]string{
		"ipa_insecure": "true", "ipa_agent_token": "stolen", "ipa_api_url": "http://evil", "ipa_debug": "1",
		"ipa_inspection_callback_url": "http://192.0.2.66/continue", "ipa_ntp_server": "192.0.2.67",
	}}
	known := map[string]service{
		"baremetal._openstack._tcp.local.": spoof, "baremetal-introspection._openstack._tcp.local.": spoof,
	}
	for name, params := range map[string]config.Params{
		"nothing set": {}, "a URL": {"ipa-api-url": "https://real"},
		"a URL and use_mdns": {"ipa-api-url": "https://real", "ipa-use-mdns": "1"},
		"a callback":         {"ipa-inspection-callback-url": "https://real/x"},
	} {
		c, live, asked := answers(t, params, known)
		before := *live.Get()
		if err := c.Discover(context.Background()); err != nil || len(*asked) != 0 {
			t.Errorf("%s: queried %v, %v, want no query", name, *asked, err)
		}
		if after := live.Get(); after.APIURL != before.APIURL || after.NTPServer != "" || after.Insecure {
			t.Errorf("%s: the configuration changed", name)
		}
	}
	c, live, _ := answers(t, config.Params{"ipa-api-url": "mdns", "ipa-agent-token": "mine"}, known)
	if err := c.Discover(context.Background()); err != nil {
		t.Fatal(err)
	}
	got := live.Get()
	if got.APIURL != "http://192.0.2.66:80" || got.NTPServer != "192.0.2.67" ||
		got.InspectionCallbackURL != "http://192.0.2.66/continue" {
		t.Errorf("got api_url %s, ntp_server %s, inspection_callback_url %s",
			got.APIURL, got.NTPServer, got.InspectionCallbackURL)
	}
	if got.Insecure || got.Debug || got.AgentToken != "mine" {
		t.Errorf("an option that is not allowed was changed: insecure %v, debug %v", got.Insecure, got.Debug)
	}
	if diff := cmp.Diff([]string{"http://192.0.2.66:80"}, c.urls); diff != "" {
		t.Error(diff)
	}
}

// Under a signed image, no option that it protects is accepted, and no URL that proves nothing.
func TestDiscoverOfSignedImage(t *testing.T) {
	known := service{host: "ironic.example.", port: 443, text: map[string]string{
		"ipa_insecure": "true", "ipa_cafile": "/other", "ipa_ntp_server": "192.0.2.67", "ipa_agent_token": "x",
		"ipa_inspection_callback_url": "http://192.0.2.68", "ipa_collect_lldp": "true",
	}}
	params := config.Params{"ipa-api-url": "mdns"}
	for protocol, want := range map[string]string{"https": "https://ironic.example:443", "http": "mdns"} {
		known.text["protocol"] = protocol
		c, live, _ := answers(t, params, map[string]service{"baremetal._openstack._tcp.local.": known})
		live.Update(func(c *config.Config) {
			c.Signed, c.CAFile, c.MDNS.AllowedOverrides = true, "/own", []string{
				"insecure", "cafile", "ntp_server", "agent_token", "inspection_callback_url", "collect_lldp",
			}
		})
		c.configured = live.Get()
		err := c.Discover(context.Background())
		got := live.Get()
		if (err == nil) != (protocol == "https") || got.APIURL != want || got.Insecure || got.CAFile != "/own" {
			t.Errorf("%s: got URL %s, insecure %t, cafile %q, %v, want URL %s and cafile /own",
				protocol, got.APIURL, got.Insecure, got.CAFile, err, want)
		}
		if got.NTPServer != "" || got.AgentToken != "" || got.InspectionCallbackURL != "" ||
			got.CollectLLDP != (protocol == "https") {
			t.Errorf("%s: got time server %q, token %q, callback %q, LLDP %t, want LLDP alone",
				protocol, got.NTPServer, got.AgentToken, got.InspectionCallbackURL, got.CollectLLDP)
		}
	}
}

// Under a signed image, inspection data is not sent to a server that proves nothing.
func TestDiscoverInspectionOfSignedImage(t *testing.T) {
	known := service{host: "inspector.example.", port: 5050}
	params := config.Params{"ipa-inspection-callback-url": "mdns"}
	for _, tt := range []struct{ protocol, ca, want string }{
		{"https", "/own", "https://inspector.example:5050/v1/continue"},
		{"https", "", "mdns"},
		{"http", "/own", "mdns"},
	} {
		known.text = map[string]string{"protocol": tt.protocol, "path": "/"}
		c, live, _ := answers(t, params, map[string]service{"baremetal-introspection._openstack._tcp.local.": known})
		live.Update(func(c *config.Config) { c.Signed, c.CAFile = true, tt.ca })
		c.configured = live.Get()
		err := c.Discover(t.Context())
		if got := live.Get().InspectionCallbackURL; (err == nil) != (tt.want != "mdns") || got != tt.want {
			t.Errorf("%s, cafile %q: got %s, %v, want %s", tt.protocol, tt.ca, got, err, tt.want)
		}
	}
}

func TestDiscover(t *testing.T) {
	const api, introspection = "baremetal._openstack._tcp.local.", "baremetal-introspection._openstack._tcp.local."
	known := map[string]service{
		api:           {host: "ironic.example.", port: 6385},
		introspection: {host: "inspector.example.", port: 5050, text: map[string]string{"path": "/"}},
	}
	for name, tt := range map[string]struct {
		params    config.Params
		known     map[string]service
		url, post string
		asked     int
		fails     bool
	}{
		"api": {config.Params{"ipa-api-url": "mdns"}, known, "https://ironic.example:6385", "", 1, false},
		"callback": {
			config.Params{"ipa-inspection-callback-url": "mdns"},
			known, "", "https://inspector.example:5050/v1/continue", 1, false,
		},
		"both": {
			config.Params{"ipa-api-url": "mdns", "ipa-inspection-callback-url": "mdns"},
			known, "https://ironic.example:6385", "https://inspector.example:5050/v1/continue", 2, false,
		},
		"implicit": {
			config.Params{"ipa-use-mdns": "true"}, known, "https://ironic.example:6385", "", 1, false,
		},
		"explicit, silence": {config.Params{"ipa-api-url": "mdns"}, nil, "mdns", "", 3, true},
		"implicit, silence": {config.Params{"ipa-use-mdns": "true"}, nil, "", "", 3, false},
	} {
		c, live, asked := answers(t, tt.params, tt.known)
		err := c.Discover(context.Background())
		got := live.Get()
		if (err != nil) != tt.fails || got.APIURL != tt.url || got.InspectionCallbackURL != tt.post ||
			len(*asked) != tt.asked {
			t.Errorf("%s: got %s, %s, asked %v, %v", name, got.APIURL, got.InspectionCallbackURL, *asked, err)
		}
	}
}

// Every restart queries again, because Ironic can have moved. The new response replaces the old one completely.
//
// Parity: B16
func TestDiscoverAgain(t *testing.T) {
	const introspection = "baremetal-introspection._openstack._tcp.local."
	for name, tt := range map[string]struct {
		params    config.Params
		second    map[string]service
		url, post string
		asked     int
		fails     bool
	}{
		"moved": {params: config.Params{"ipa-api-url": "mdns"}, second: map[string]service{
			instance: {host: "new.example.", port: 6385},
		}, url: "https://new.example:6385", asked: 2},
		"moved, implicit": {
			params: config.Params{"ipa-use-mdns": "true"},
			second: map[string]service{instance: {host: "new.example.", port: 6385}}, url: "https://new.example:6385",
			asked: 2,
		},
		"callback moved": {
			params: config.Params{"ipa-inspection-callback-url": "mdns"},
			second: map[string]service{introspection: {host: "new.example.", port: 5050}},
			post:   "https://new.example:5050/v1/continue", asked: 2,
		},
		"gone": {
			params: config.Params{"ipa-api-url": "mdns"}, url: "https://old.example:6385",
			post: "http://old/continue", asked: 4, fails: true,
		},
		"gone, implicit": {
			params: config.Params{"ipa-use-mdns": "true"}, url: "https://old.example:6385",
			post: "http://old/continue", asked: 4,
		},
	} {
		known := map[string]service{
			instance: {host: "old.example.", port: 6385, text: map[string]string{
				"ipa_inspection_callback_url": "http://old/continue",
			}},
			introspection: {host: "old.example.", port: 5050},
		}
		c, live, asked := answers(t, tt.params, known)
		if err := c.Discover(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.api = &Version{1, 31}
		clear(known)
		for service, answer := range tt.second {
			known[service] = answer
		}
		err := c.Discover(t.Context())
		got := live.Get()
		if (err != nil) != tt.fails || got.APIURL != tt.url || got.InspectionCallbackURL != tt.post ||
			len(*asked) != tt.asked {
			t.Errorf("%s: got %s, %s, asked %v, %v", name, got.APIURL, got.InspectionCallbackURL, *asked, err)
		}
		if diff := cmp.Diff(got.APIURLs(), c.urls); diff != "" || tt.second[instance].host != "" && c.api != nil {
			t.Errorf("%s: API version %v, URLs in use (-want +got):\n%s", name, c.api, diff)
		}
	}
}

const instance = "baremetal._openstack._tcp.local."

// packet encodes a response.
func packet(t testing.TB, id uint16, answers []dnsmessage.Resource, additional ...dnsmessage.Resource) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header: dnsmessage.Header{ID: id, Response: true, Authoritative: true}, Answers: answers,
		Additionals: additional,
	}
	data, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func record(name string, kind dnsmessage.Type, body dnsmessage.ResourceBody) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{
		// Cache flush (RFC 6762, 10.2).
		Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET | 1<<15,
	}, Body: body}
}

func TestAnswers(t *testing.T) {
	srv := record(instance, dnsmessage.TypeSRV,
		&dnsmessage.SRVResource{Port: 6385, Target: dnsmessage.MustNewName("Host.local.")})
	txt := record(instance, dnsmessage.TypeTXT,
		&dnsmessage.TXTResource{TXT: []string{"path=/a=b", "path=/second", "protocol=http", "flag", "=x"}})
	a := record("host.local.", dnsmessage.TypeA, &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}})
	aaaa := record("host.local.", dnsmessage.TypeAAAA,
		&dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("fe80::1").As16()})
	foreign := record("other._openstack._tcp.local.", dnsmessage.TypeSRV,
		&dnsmessage.SRVResource{Port: 1, Target: dnsmessage.MustNewName("evil.local.")})
	q := &question{name: dnsmessage.MustNewName(instance), id: 7}
	q.link.Name = "eth0"
	for name, data := range map[string][]byte{
		"another id": packet(t, 8, []dnsmessage.Resource{srv, txt}, a), "nothing": nil,
		"no packet": []byte("no packet"), "foreign": packet(t, 7, []dnsmessage.Resource{foreign}, a),
	} {
		if q.take(data) || q.found.host != "" {
			t.Errorf("%s: was taken", name)
		}
	}
	if q.take(packet(t, 7, []dnsmessage.Resource{srv})) {
		t.Error("an answer without TXT and address: got complete")
	}
	if !q.take(packet(t, 7, []dnsmessage.Resource{txt}, a, aaaa)) {
		t.Fatal("got incomplete")
	}
	want := service{
		host: "Host.local.", port: 6385, addresses: addresses("192.0.2.1", "fe80::1%eth0"),
		text: map[string]string{"path": "/a=b", "protocol": "http"},
	}
	if diff := cmp.Diff(want, q.result(), cmp.AllowUnexported(service{}),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(packet(f, 7, []dnsmessage.Resource{
		record(instance, dnsmessage.TypeSRV,
			&dnsmessage.SRVResource{Port: 6385, Target: dnsmessage.MustNewName("host.local.")}),
		record(instance, dnsmessage.TypeTXT, &dnsmessage.TXTResource{TXT: []string{"path=/", "ipa_debug=1"}}),
	}, record("host.local.", dnsmessage.TypeA, &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}})))
	f.Fuzz(func(t *testing.T, data []byte) {
		q := &question{name: dnsmessage.MustNewName(instance), id: 7}
		for range 3 {
			if !q.take(data) {
				continue
			}
			s := q.result()
			if s.port < 1 || s.port > 65535 || len(s.addresses) > mdnsMaxAddr || len(s.text) > mdnsMaxText {
				t.Fatalf("got %+v", s)
			}
			c := &Client{host: fakeHost{sourceFor: func(_ context.Context, a netip.Addr) (netip.Addr, error) {
				return a, nil
			}}}
			if u, err := c.serviceURL(context.Background(), s); err == nil && strings.ContainsAny(u, ", \n") {
				t.Fatalf("got %q", u)
			}
		}
	})
}

// Only TXT entries with the prefix are options. Options of the inspection callback's response are set, too.
func TestOverridesOfTheCallback(t *testing.T) {
	const introspection = "baremetal-introspection._openstack._tcp.local."
	c, live, _ := answers(t, config.Params{"ipa-inspection-callback-url": "mdns"}, map[string]service{
		introspection: {host: "a.example.", port: 1, text: map[string]string{"ipa_ntp_server": "192.0.2.67"}},
	})
	if err := c.Discover(t.Context()); err != nil || live.Get().NTPServer != "192.0.2.67" {
		t.Errorf("got %v, ntp_server %q, want that of the answer", err, live.Get().NTPServer)
	}
	c, live, _ = answers(t, config.Params{"ipa-inspection-callback-url": "mdns"}, map[string]service{
		introspection: {host: "a.example.", port: 1, text: map[string]string{"ntp_server": "192.0.2.67"}},
	})
	if err := c.Discover(t.Context()); err != nil || live.Get().NTPServer != "" {
		t.Errorf("without the prefix: got %v, ntp_server %q, want none", err, live.Get().NTPServer)
	}
	c, _, _ = answers(t, config.Params{"ipa-inspection-callback-url": "mdns"}, nil)
	if err := c.Discover(t.Context()); err == nil || !strings.Contains(err.Error(), introspection) {
		t.Errorf("no answer: got %v, want an error that names the service", err)
	}
}

// The delays between searches double. A search ends with its context at any time.
func TestDiscoverPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, asked := answers(t, config.Params{"ipa-api-url": "mdns"}, nil)
		started := time.Now()
		if err := c.Discover(t.Context()); err == nil || len(*asked) != 3 || time.Since(started) != 3*mdnsFirstPause {
			t.Errorf("got %v after %d tries in %v, want 3 in %v",
				err, len(*asked), time.Since(started), 3*mdnsFirstPause)
		}
		for _, limit := range []time.Duration{0, mdnsFirstPause / 2} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := c.Discover(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %v: got %v, want the context's error", limit, err)
			}
		}
	})
}
