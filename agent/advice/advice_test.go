package advice

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"ironroot/agent/fault"
	"ironroot/agent/ironic"
	"ironroot/internal/test/testenv"
)

// silent returns the URL of a server that accepts no connection and answers nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return "http://" + l.Addr().String()
}

// closed returns a URL whose port is closed.
func closed(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("http://127.0.0.1:%d", testenv.Port(t))
}

// TestReasons lets connections fail in the usual ways and compares the reasons and the advice.
func TestReasons(t *testing.T) {
	quiet := log.New(io.Discard, "", 0)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = quiet
	secure.StartTLS()
	defer secure.Close()
	unencrypted := httptest.NewServer(http.NotFoundHandler())
	defer unencrypted.Close()
	noNames := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", "127.0.0.1:1") // no server
	}}
	trusting := &tls.Config{
		RootCAs: secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, MinVersion: tls.VersionTLS12,
	}
	late := trusting.Clone()
	late.Time = func() time.Time { return time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC) }
	other := trusting.Clone()
	other.ServerName = "ironic.example"
	for name, c := range map[string]struct {
		url            string
		settings       *tls.Config
		reason, advice string
	}{
		"refused":   {closed(t), nil, "connection refused", "is ironic-api running"},
		"silence":   {silent(t), nil, "timeout", "firewall"},
		"authority": {secure.URL, nil, "TLS: certificate signed by unknown authority", "cafile"},
		"other name": {
			secure.URL, other, "TLS: x509: certificate is valid for",
			"a name in ipa-api-url that the certificate contains",
		},
		"expired": {secure.URL, late, "TLS: x509: certificate has expired", "ipa-ntp-server"},
		"plain HTTP": {
			strings.Replace(unencrypted.URL, "http:", "https:", 1), nil, "TLS: the server does not use TLS", "http://",
		},
		"no name":       {"http://ironic.invalid", nil, "DNS: ", "An address in ipa-api-url works without DNS"},
		"another thing": {"ftp://ironic.example", nil, "unsupported protocol scheme", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if name != "silence" {
				ctx = t.Context()
			}
			client := &http.Client{Transport: &http.Transport{
				TLSClientConfig: c.settings, DialContext: (&net.Dialer{Resolver: noNames}).DialContext,
			}}
			defer client.CloseIdleConnections()
			request, err := http.NewRequestWithContext(ctx, http.MethodGet,
				c.url+"/v1/lookup?addresses=52:54:00:00:00:01", nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(request)
			if err == nil {
				_ = response.Body.Close()
				t.Fatal("the request succeeded")
			}
			if got := Reason(err); !strings.Contains(got, c.reason) || strings.Contains(got, "52:54") {
				t.Errorf("reason: got %q, want %q", got, c.reason)
			}
			if got := For(err); !strings.Contains(got, c.advice) || (got == "") != (c.advice == "") {
				t.Errorf("advice: got %q, want %q", got, c.advice)
			}
			if got := Brief(err); strings.Contains(got, "52:54") || !strings.Contains(got, Reason(err)) {
				t.Errorf("in brief: got %q", got)
			}
		})
	}
}

func TestAdviceOfAnswers(t *testing.T) {
	for want, err := range map[string]error{
		"MAC addresses":     &ironic.StatusError{Status: http.StatusNotFound},
		"restart the node":  &ironic.StatusError{Status: http.StatusUnauthorized},
		"locked":            &ironic.StatusError{Status: http.StatusConflict},
		"ironic-conductor":  &ironic.StatusError{Status: http.StatusServiceUnavailable},
		"root device hints": fault.DeviceNotFound("no disk"),
		"image's server":    fault.ImageDownload("id", errors.New("connection refused")),
		"skip_block_device": fault.ProtectedDevice("%w", errors.New("vmfs")),
	} {
		if got := For(err); !strings.Contains(got, want) {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}

func TestDNSReasons(t *testing.T) {
	for want, err := range map[string]*net.DNSError{
		"DNS: no such host a.example (asked 192.0.2.53:53)": {
			Name: "a.example", Server: "192.0.2.53:53", IsNotFound: true,
		},
		"DNS: no such host a.example":                   {Name: "a.example", IsNotFound: true},
		"DNS: no answer for a.example":                  {Name: "a.example", IsTimeout: true},
		"DNS: a.example: refused (asked 192.0.2.53:53)": {Name: "a.example", Server: "192.0.2.53:53", Err: "refused"},
	} {
		if got := Reason(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
