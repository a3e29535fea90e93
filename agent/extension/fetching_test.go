package extension

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ironroot/agent/config"
	"ironroot/internal/test/testenv"
	"ironroot/lab/selfsigned"
)

// pemFiles writes a certificate and its key into files.
func pemFiles(t *testing.T, pair tls.Certificate) (certificate, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "certificate"), filepath.Join(dir, "key")
	for name, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

// The TLS options apply to images and checksum files: the CA, the client certificate, and the minimum version.
func TestDownloadTLS(t *testing.T) {
	r := newImageRig(t)
	issue := func(host string) tls.Certificate {
		pair, _, err := selfsigned.Issue(host)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	server, elsewhere, client := issue("127.0.0.1"), issue("images.example"), issue("node")
	trusted, _ := pemFiles(t, server)
	nameOnly, _ := pemFiles(t, elsewhere)
	shown, key := pemFiles(t, client)
	trust := func(file string) func(*config.Config) {
		return func(c *config.Config) { c.Insecure, c.CAFile = false, file }
	}
	for _, tt := range []struct {
		name   string
		pair   tls.Certificate
		wants  bool   // the server requires a client certificate
		newest uint16 // latest TLS version of the server, 0 for all
		set    func(c *config.Config)
		fails  string // text of the error
	}{
		{name: "CA of the option", pair: server, set: trust(trusted)},
		{name: "CA of another server", pair: server, set: trust(nameOnly), fails: "unknown authority"},
		{name: "CAs of the system", pair: server, set: trust(""), fails: "certificate"},
		{name: "another name", pair: elsewhere, set: trust(nameOnly), fails: "127.0.0.1"},
		{name: "insecure", pair: elsewhere, set: func(c *config.Config) { c.Insecure, c.CAFile = true, trusted }},
		{name: "certificate of the client", pair: server, wants: true, set: func(c *config.Config) {
			trust(trusted)(c)
			c.CertFile, c.KeyFile = shown, key
		}},
		{name: "certificate of the client, insecure", pair: server, wants: true, set: func(c *config.Config) {
			c.Insecure, c.CertFile, c.KeyFile = true, shown, key
		}},
		{
			name: "no client certificate where one is required", pair: server, wants: true, set: trust(trusted),
			fails: "certificate required",
		},
		{name: "TLS version too old", pair: server, newest: tls.VersionTLS12, set: func(c *config.Config) {
			trust(trusted)(c)
			c.TLSMinVersion = "1.3"
		}, fails: "protocol version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := *r.deps.Config.Get()
			defer r.deps.Config.Update(func(c *config.Config) { *c = before })
			r.deps.Config.Update(tt.set)
			mux := http.NewServeMux()
			var seen [][]byte
			mux.HandleFunc("/i", func(w http.ResponseWriter, q *http.Request) {
				for _, c := range q.TLS.PeerCertificates {
					seen = append(seen, c.Raw)
				}
				r.content()(w, q)
			})
			mux.HandleFunc("/sums", func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, "%x  i\n", sha256.Sum256(r.image)) //nolint:errcheck // the client can disconnect
			})
			s := httptest.NewUnstartedServer(mux)
			s.TLS = &tls.Config{
				Certificates: []tls.Certificate{tt.pair}, MaxVersion: tt.newest, MinVersion: tls.VersionTLS12,
			}
			if tt.wants {
				s.TLS.ClientAuth = tls.RequireAnyClientCert
			}
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.StartTLS()
			defer s.Close()
			a := r.deploy(s.URL+"/i", map[string]any{"os_hash_value": s.URL + "/sums"})
			if tt.fails != "" {
				if a.Status != "FAILED" || a.Error.Type != "ImageDownloadError" ||
					!strings.Contains(a.Error.Details, tt.fails) {
					t.Errorf("got %s %+v, want an ImageDownloadError that says %q", a.Status, a.Error, tt.fails)
				}
				return
			}
			r.wantImage(t, a)
			if tt.wants && (len(seen) == 0 || !bytes.Equal(seen[0], client.Certificate[0])) {
				t.Error("the server did not receive the client certificate of the options")
			}
		})
	}
}

// Retries, pauses and the list of URLs follow the options.
//
// Parity: K9
func TestDownloadRetries(t *testing.T) {
	r := newImageRig(t)
	r.deps.Config.Update(func(c *config.Config) {
		c.ImageDownloadConnectionRetries, c.ImageDownloadConnectionRetryInterval = 2, 10*time.Millisecond
	})
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", code) }
	}
	bad := func(w http.ResponseWriter, q *http.Request) {
		http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(make([]byte, len(r.image))))
	}
	half := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"one"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(r.image)))
		w.Write(r.image[:2<<20]) //nolint:errcheck // the client can disconnect
		panic(http.ErrAbortHandler)
	}
	rest := func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("ETag", `"one"`)
		r.content()(w, q)
	}
	for _, tt := range []struct {
		name   string
		steps  []http.HandlerFunc // of the first server; the last one repeats
		first  []string           // the Range of each request that it gets
		alone  bool               // there is no second server
		closed bool               // the first server cannot be reached
		second int                // requests that the second server gets
		fails  string
	}{
		{
			name: "503 twice, then 200", steps: []http.HandlerFunc{status(503), status(503), r.content()},
			first: []string{"", "", ""},
		},
		{name: "503 always", steps: []http.HandlerFunc{status(503)}, first: []string{"", "", ""}, second: 1},
		{
			name: "404 stops at once", steps: []http.HandlerFunc{status(404)}, first: []string{""},
			fails: "ImageDownloadFatalError",
		},
		{
			name: "bad bytes, then good ones", steps: []http.HandlerFunc{bad, r.content()}, alone: true,
			first: []string{"", ""},
		},
		{
			name: "the same bad bytes twice", steps: []http.HandlerFunc{bad}, alone: true, first: []string{"", ""},
			fails: "ImageChecksumError",
		},
		{
			name:  "bad bytes, then those of the second server",
			steps: []http.HandlerFunc{bad}, first: []string{""}, second: 1,
		},
		{name: "cannot be reached", closed: true, second: 1},
		{
			name: "broken off, then the rest", steps: []http.HandlerFunc{half, rest},
			first: []string{"", "bytes=2097152-3145727"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := 0
			one := &asked{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				n++
				tt.steps[min(n, len(tt.steps))-1](w, q)
			})}
			two := &asked{Handler: r.content()}
			urls := []string{listen(t, one) + "/i", listen(t, two) + "/i"}
			if tt.alone {
				urls = urls[:1]
			}
			if tt.closed { // refuses connections
				urls[0] = fmt.Sprintf("http://127.0.0.1:%d/i", testenv.Port(t))
			}
			a := r.deploy("", map[string]any{"urls": urls})
			if tt.fails == "" {
				r.wantImage(t, a)
			} else if a.Status != "FAILED" || a.Error.Type != tt.fails {
				t.Errorf("got %s %+v, want %s", a.Status, a.Error, tt.fails)
			}
			var ranges []string
			for _, q := range one.take() {
				ranges = append(ranges, q.Header.Get("Range"))
			}
			if got := len(two.take()); !slices.Equal(ranges, tt.first) || got != tt.second {
				t.Errorf("the servers got requests for %q and %d, want %q and %d", ranges, got, tt.first, tt.second)
			}
		})
	}
}
