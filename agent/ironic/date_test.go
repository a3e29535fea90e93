package ironic

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Only responses whose sender TLS has verified set the time.
func TestVerifiedTime(t *testing.T) {
	pair, certFile, _ := selfSigned(t, "ironic", net.IPv4(127, 0, 0, 1))
	ahead := time.Now().Add(3 * time.Hour).UTC().Format(http.TimeFormat)
	for name, tt := range map[string]struct {
		plain  bool
		args   []string
		header http.Header
		want   bool
	}{
		"verified":   {args: []string{"--cafile", certFile}, header: http.Header{"Date": {ahead}}, want: true},
		"insecure":   {args: []string{"--insecure"}, header: http.Header{"Date": {ahead}}},
		"plain HTTP": {plain: true, header: http.Header{"Date": {ahead}}},
		"absurd": {
			args: []string{"--cafile", certFile}, header: http.Header{"Date": {"Tue, 01 Jan 2019 00:00:00 GMT"}},
		},
		"no time": {args: []string{"--cafile", certFile}, header: http.Header{"Date": {"now"}}},
		"cached":  {args: []string{"--cafile", certFile}, header: http.Header{"Date": {ahead}, "Age": {"7"}}},
	} {
		fake := newFake("1.115")
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for key, values := range tt.header {
				w.Header()[key] = values
			}
			fake.ServeHTTP(w, r)
		}))
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		if tt.plain {
			server.Start()
		} else {
			server.StartTLS()
		}
		t.Cleanup(server.Close)
		c, err := New(Options{Config: settings(t, append(tt.args, "--api-url="+server.URL)...)})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := c.VerifiedTime(); ok {
			t.Errorf("%s: got a time before any answer", name)
		}
		if _, err := c.Lookup(t.Context(), nil, "", ""); err != nil {
			t.Fatal(err)
		}
		got, ok := c.VerifiedTime()
		if ok != tt.want || ok && (time.Until(got)-3*time.Hour).Abs() > time.Minute {
			t.Errorf("%s: got %v, %v, want a time three hours ahead: %v", name, got, ok, tt.want)
		}
		if sent, err := http.ParseTime(ahead); err != nil || ok && got.Sub(sent) < time.Second/2 {
			t.Errorf("%s: got %v, %v, want the middle of the second that %v names, or later", name, got, err, sent)
		}
	}
}
