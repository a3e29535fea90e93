package ironic

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// selfSigned makes a certificate and returns it with its files.
func selfSigned(t *testing.T, name string, addresses ...net.IP) (pair tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: addresses,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, data := range map[string][]byte{certFile: certPEM, keyFile: keyPEM} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return pair, certFile, keyFile
}

// Parity: B14
func TestTLSOptions(t *testing.T) {
	loopback := net.IPv4(127, 0, 0, 1)
	server, serverCert, _ := selfSigned(t, "ironic", loopback)
	_, otherCert, _ := selfSigned(t, "another", loopback)
	elsewhere, elsewhereCert, _ := selfSigned(t, "elsewhere", net.IPv4(10, 0, 0, 1))
	_, agentCert, agentKey := selfSigned(t, "agent")
	agents := x509.NewCertPool()
	data, err := os.ReadFile(agentCert)
	if err != nil {
		t.Fatal(err)
	}
	agents.AppendCertsFromPEM(data)
	mutual := &tls.Config{
		Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: agents,
	}
	plain := &tls.Config{Certificates: []tls.Certificate{server}}
	old := &tls.Config{Certificates: []tls.Certificate{server}, MaxVersion: tls.VersionTLS12}
	chacha := old.Clone()
	chacha.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256}
	for _, tt := range []struct {
		name   string
		server *tls.Config
		args   []string
		want   string // in the error, "" for success
	}{
		{"system's authorities", plain, nil, "unknown authority"},
		{"insecure", plain, []string{"--insecure"}, ""},
		{"cafile", plain, []string{"--cafile", serverCert}, ""},
		{"another cafile", plain, []string{"--cafile", otherCert}, "unknown authority"},
		{"insecure beats cafile", plain, []string{"--insecure", "--cafile", otherCert}, ""},
		{
			"address is checked", &tls.Config{Certificates: []tls.Certificate{elsewhere}},
			[]string{"--cafile", elsewhereCert},
			"127.0.0.1",
		},
		{
			"client certificate", mutual,
			[]string{"--cafile", serverCert, "--certfile", agentCert, "--keyfile", agentKey},
			"",
		},
		{
			"client certificate with insecure", mutual,
			[]string{"--insecure", "--certfile", agentCert, "--keyfile", agentKey},
			"",
		},
		{"no client certificate", mutual, []string{"--cafile", serverCert}, "certificate required"},
		{
			"client certificate without key", mutual,
			[]string{"--cafile", serverCert, "--certfile", agentCert},
			"certificate required",
		},
		{"TLS 1.2 by default", old, []string{"--insecure"}, ""},
		{"TLS 1.3 demanded", old, []string{"--insecure", "--tls-min-version=1.3"}, "protocol version"},
		{"suites by default", chacha, []string{"--insecure"}, "handshake failure"},
		{"suite by option", chacha, []string{"--insecure", "--tls-cipher-suites=ECDHE-ECDSA-CHACHA20-POLY1305"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ironic := httptest.NewUnstartedServer(newFake("1.115"))
			ironic.TLS = tt.server
			ironic.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			ironic.StartTLS()
			defer ironic.Close()
			c, err := New(Options{Config: settings(t, append(tt.args, "--api-url="+ironic.URL)...)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.apiVersion(t.Context())
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
			if _, err := c.ask(t.Context(), ironic.URL); err != nil && tt.server == plain {
				t.Errorf("the probe verifies certificates: %v", err)
			}
		})
	}
	if _, err := New(Options{Config: settings(t, "--cafile=/nonexistent.pem")}); err == nil ||
		!strings.Contains(err.Error(), "/nonexistent.pem") {
		t.Errorf("got error %v, want one that names the file", err)
	}
}

func TestRedirects(t *testing.T) {
	net := newNetwork(t)
	net.serve("other", newFake("1.115"))
	net.serve("ironic", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://other"+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	c, _ := newClient(t, net, "--api-url=http://ironic", "--ironic-api-version=1.68")
	if err := beats(c, "").send(t.Context()); err == nil || !strings.Contains(err.Error(), "http://other") {
		t.Errorf("got error %v, want a rejection: the body contains the token", err)
	}
	for _, host := range net.dials {
		if host == "other" {
			t.Error("the other host was called")
		}
	}
}

func TestAnswersAreBounded(t *testing.T) {
	net := newNetwork(t)
	net.serve("ironic", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for chunk := make([]byte, 1<<20); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	c, _ := newClient(t, net, "--api-url=http://ironic")
	if _, err := c.apiVersion(t.Context()); err == nil || !strings.Contains(err.Error(), "8388608 bytes") {
		t.Errorf("got error %v, want one that names the limit", err)
	}
}

// The host of a URL is case-insensitive (RFC 3986, section 3.2.2).
func TestRedirectTargets(t *testing.T) {
	for _, tt := range []struct {
		to string
		ok bool
	}{
		{"https://ironic.example/v1/", true},
		{"https://IRONIC.example:8443/v1/", true},
		{"https://ironic.example.org/", false},
		{"http://ironic.example/", false},
		{"http://IRONIC.example/", false},
	} {
		to, err := url.Parse(tt.to)
		if err != nil {
			t.Fatal(err)
		}
		from := &url.URL{Scheme: "https", Host: "Ironic.Example"}
		if err := sameHost(to, from); (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want it accepted: %t", tt.to, err, tt.ok)
		}
	}
}

// Redirects on one host are followed, but not forever.
func TestRedirectsOfOneHost(t *testing.T) {
	for redirects, works := range map[int]bool{3: true, 4: false} {
		net := newNetwork(t)
		ironic := newFake("1.115")
		asked := 0
		net.serve("ironic", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked++; asked <= redirects {
				http.Redirect(w, r, "http://ironic/", http.StatusFound)
				return
			}
			ironic.ServeHTTP(w, r)
		}))
		c, _ := newClient(t, net, "--api-url=http://ironic")
		_, err := c.apiVersion(t.Context())
		if works && err != nil || !works && (err == nil || !strings.Contains(err.Error(), "more than 3 redirects")) {
			t.Errorf("%d redirects: got %v, want success: %v", redirects, err, works)
		}
	}
}

// A heartbeat that is redirected on its host is sent again as it was, or fails: a GET instead would succeed without
// any effect.
func TestRedirectsOfHeartbeats(t *testing.T) {
	for _, tt := range []struct {
		statuses []int
		works    bool
	}{
		{[]int{http.StatusMovedPermanently}, true},
		{[]int{http.StatusFound}, true},
		{[]int{http.StatusSeeOther}, false},
		{[]int{http.StatusTemporaryRedirect}, true},
		{[]int{http.StatusPermanentRedirect}, true},
		{[]int{http.StatusMovedPermanently, http.StatusPermanentRedirect}, true},
		{[]int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusFound}, true},
		{[]int{http.StatusTemporaryRedirect, http.StatusSeeOther}, false},
	} {
		net := newNetwork(t)
		type request struct{ method, kind, body string }
		var sent []request
		net.serve("ironic", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			sent = append(sent, request{r.Method, r.Header.Get("Content-Type"), string(body)})
			if n := len(sent); n <= len(tt.statuses) {
				http.Redirect(w, r, "http://ironic/moved"+r.URL.Path, tt.statuses[n-1])
				return
			}
			w.WriteHeader(http.StatusAccepted)
		}))
		c, _ := newClient(t, net, "--api-url=http://ironic", "--ironic-api-version=1.68")
		err := beats(c, "").send(t.Context())
		if tt.works && (err != nil || len(sent) != len(tt.statuses)+1) ||
			!tt.works && (err == nil || !strings.Contains(err.Error(), "http://ironic by status 303")) {
			t.Errorf("%v: got %v after %d requests, want success %v", tt.statuses, err, len(sent), tt.works)
		}
		for _, r := range sent {
			if r != sent[0] || r.method != http.MethodPost || r.kind != "application/json" ||
				!strings.Contains(r.body, "callback_url") {
				t.Errorf("%v: got %+v, want the heartbeat each time", tt.statuses, r)
			}
		}
	}
}
