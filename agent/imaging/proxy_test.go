package imaging

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http/httpproxy"

	"ironroot/storage/image/fetch"
)

// The proxies of image_info are used only for the servers of the image.
func TestProxiesOfAnImage(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.String())
	}))
	t.Cleanup(proxy.Close)
	const address = "http://image.invalid/i"
	for _, tt := range []struct {
		proxies Proxies
		want    string
	}{
		{proxies(map[string]string{"http": proxy.URL}, ""), address},
		{proxies(map[string]string{"http": proxy.URL}, "image.invalid"), ""},
		{proxies(map[string]string{"https": proxy.URL}, ""), ""},
		{Proxies{}, ""},
	} {
		client, err := newImager(t, nil).client(tt.proxies)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Get(address)
		got := ""
		if err == nil {
			text, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			got = string(text)
		}
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%+v: got %q from the proxy and %v, want %q", tt.proxies, got, err, tt.want)
		}
		client.CloseIdleConnections()
	}
}

// A proxy that refuses to connect is named in the error, without its password. Only its own failures are retried: a
// status below 500 means that the request is wrong (RFC 9110, section 15).
func TestProxyRefuses(t *testing.T) {
	for status, wantAsked := range map[int]int64{
		http.StatusProxyAuthRequired: 1, http.StatusForbidden: 1, http.StatusBadGateway: 3,
		http.StatusRequestTimeout: 3, http.StatusTooManyRequests: 3,
	} {
		var asked atomic.Int64
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1); r.Method != http.MethodConnect {
				t.Errorf("the proxy got %s", r.Method)
			}
			w.Header().Set("Proxy-Authenticate", `Basic realm="proxy"`)
			w.WriteHeader(status)
		}))
		t.Cleanup(proxy.Close)
		options, err := newImager(t, nil).fetchOptions(ImageInfo{Source: Source{
			Proxies: proxies(map[string]string{"https": strings.Replace(proxy.URL, "//", "//user:secret@", 1)}, ""),
		}})
		if err != nil {
			t.Fatal(err)
		}
		options.Retries, options.RetryInterval = 2, time.Millisecond
		_, err = fetch.Open(t.Context(), options, "https://image.invalid/i")
		want := fmt.Sprintf("proxy %s answered CONNECT with HTTP status %d", proxy.URL, status)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%d: got %v, want %q without the password", status, err, want)
		}
		if asked.Load() != wantAsked {
			t.Errorf("%d: got %d requests, want %d", status, asked.Load(), wantAsked)
		}
	}
}

// The results equal the results of the Go project's own package.
func TestProxyFunc(t *testing.T) {
	texts := map[string]string{"http": "proxy.example:3128", "https": "http://user:secret@[2001:db8::3]:8080"}
	lists := []string{
		"", "*", "a.example", ".a.example", "*.a.example", "A.Example , b.example:8000", "192.0.2.0/24", "192.0.2.7",
		"192.0.2.7:8000", "2001:db8::/32", "2001:db8::1", "[2001:db8::1]:8000", "other.example,,192.0.2.1",
		"a.example:80", "example",
	}
	urls := []string{
		"http://a.example/i", "http://b.a.example/i", "https://xa.example/i", "http://b.example:8000/i",
		"http://b.example/i", "http://192.0.2.7/i", "http://192.0.2.7:8000/i", "http://198.51.100.1/i",
		"https://[2001:db8::1]/i", "http://[2001:db8::1]:8000/i", "http://localhost/i", "http://127.0.0.1:8000/i",
		"http://[::1]/i", "http://A.EXAMPLE/i", "ftp://a.example/i", "http://[::ffff:192.0.2.7]/i",
		"http://[::ffff:127.0.0.1]/i", "http://a.example../i",
	}
	for _, list := range lists {
		reference := (&httpproxy.Config{
			HTTPProxy: texts["http"], HTTPSProxy: texts["https"], NoProxy: list,
		}).ProxyFunc()
		choose := proxies(texts, list).choose
		for _, address := range urls {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, wantErr := reference(r.URL)
			got, err := choose(r)
			if (err == nil) != (wantErr == nil) || (got == nil) != (want == nil) ||
				got != nil && got.String() != want.String() {
				t.Errorf("no_proxy %q, %s: got %v and %v, want %v and %v", list, address, got, err, want, wantErr)
			}
		}
	}
}

// curl 7.88 gives the same results. It ignores one dot at the end of a name in no_proxy and in the URL.
func TestNoProxyDots(t *testing.T) {
	for _, tt := range []struct {
		list, host string
		direct     bool
	}{
		{"a.example.", "a.example", true},
		{"a.example.", "a.example.", true},
		{"a.example", "a.example.", true},
		{"a.example.", "b.a.example", true},
		{".a.example.", "b.a.example.", true},
		{"localhost.", "localhost", true},
		{"192.0.2.7", "192.0.2.7.", true},
		{"192.0.2.7.", "192.0.2.7", false},
		{"a.example.", "xa.example", false},
		{"a.example..", "a.example", false},
		{".", "a.example", false},
	} {
		if got := parseNoProxy(tt.list).covers(&url.URL{Scheme: "http", Host: tt.host}); got != tt.direct {
			t.Errorf("no_proxy %q, host %s: got direct %t, want %t", tt.list, tt.host, got, tt.direct)
		}
	}
}
