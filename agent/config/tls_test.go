package config

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
	"ironroot/lab/selfsigned"
)

// cipherLists are lists from operators' configurations and the groups of openssl-ciphers(1).
func cipherLists() []string {
	lists := []string{
		defaultCiphers, "HIGH:!aNULL", "HIGH:!aNULL:!MD5", "ECDHE+AESGCM", "ECDHE+AESGCM:ECDHE+CHACHA20:!aECDSA",
		"DEFAULT:@STRENGTH", "ALL:!ADH:!LOW:!EXP:!MD5:@STRENGTH", "HIGH:-AES256:+AES128", "DEFAULT:!kRSA",
		"EECDH+AESGCM:EDH+AESGCM:AES256+EECDH:AES256+EDH", "AES128-SHA256",
		"ECDHE-RSA-AES128-SHA256:ECDHE-ECDSA-AES128-SHA256", "ALL:!SHA1:!RC4-SHA:@SECLEVEL=2", "HIGH:!DES-CBC3-SHA",
		"kECDHE+aRSA,AES256", "AES256-SHA:ECDHE:+RSA:@STRENGTH", "AES128:AES256:@STRENGTH:-ECDSA",
		"ALL:no-such-suite:!ECDHE", "DHE-RSA-AES256-GCM-SHA384:AES256-GCM-SHA384", "!AES:ALL", "ALL:-AES:AES128",
		"ALL:+ECDHE:!SSLv3",
	}
	for _, s := range suites() {
		lists = append(lists, s.name)
		for name := range strings.FieldsSeq(s.groups) {
			if !strings.HasPrefix(name, "SUITEB") && !slices.Contains(lists, name) {
				lists = append(lists, name)
			}
		}
	}
	return lists
}

// Among the supported suites, OpenSSL selects the same ones in the same order.
//
// Parity: A15 (cipher lists)
func TestCipherListsAsOpenSSL(t *testing.T) {
	testenv.Programs(t, "openssl")
	for _, list := range cipherLists() {
		var want, got []string
		for _, name := range strings.Split(strings.TrimSpace(testenv.Run(t, "openssl", "ciphers", list)), ":") {
			if slices.ContainsFunc(suites(), func(s suite) bool { return s.name == name }) {
				want = append(want, name)
			}
		}
		chosen, _ := cipherList(list)
		for _, s := range chosen {
			got = append(got, s.name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-OpenSSL +got):\n%s", list, diff)
		}
	}
}

func TestCipherSuites(t *testing.T) {
	standard := []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	}
	for _, tt := range []struct {
		option string
		want   []uint16
		warned string
	}{
		{"", standard, ""},
		{"ECDHE-RSA-AES128-GCM-SHA256:!aNULL:!WHATEVER", []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}, ""},
		{
			"ECDHE+AESGCM+aRSA+AES128:nonsense:DHE-RSA-AES256-SHA256",
			[]uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256},
			"nonsense:DHE-RSA-AES256-SHA256",
		},
		{"nonsense", standard, "default suites are used"},
		{"CAMELLIA", standard, "default suites are used"},
		{"AES128-SHA256", []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA256}, ""},
		{"ECDHE-RSA-AES128-SHA256", []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256}, ""},
		{"ECDHE-ECDSA-AES128-SHA256", []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256}, ""},
	} {
		c, err := Load(Sources{Params: Params{"ipa-tls-cipher-suites": tt.option}})
		if err != nil {
			t.Errorf("%q stops the start: %v", tt.option, err)
			continue
		}
		if diff := cmp.Diff(tt.want, c.CipherSuites()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.option, diff)
		}
		var log strings.Builder
		c.WarnCiphers(slog.New(slog.NewTextHandler(&log, nil)))
		if (log.Len() > 0) != (tt.warned != "") || !strings.Contains(log.String(), tt.warned) {
			t.Errorf("%q: got log %q, want %q", tt.option, log.String(), tt.warned)
		}
	}
}

// In FIPS 140-3 mode only suites with ECDHE and AES-GCM are used, and others are named.
//
// Parity: T10 (TLS)
func TestCiphersFIPS(t *testing.T) {
	if !testenv.FIPS(t) {
		return
	}
	c := &Config{TLSCipherSuites: "ALL"}
	for _, id := range c.CipherSuites() {
		if name := tls.CipherSuiteName(id); !strings.Contains(name, "ECDHE") || !strings.Contains(name, "GCM") {
			t.Errorf("got suite %s, want only ECDHE with AES-GCM", name)
		}
	}
	var log strings.Builder
	c.TLSCipherSuites = "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-CHACHA20-POLY1305"
	c.WarnCiphers(slog.New(slog.NewTextHandler(&log, nil)))
	want := []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
	if got := c.CipherSuites(); !slices.Equal(got, want) || !strings.Contains(log.String(), "CHACHA20") {
		t.Errorf("got suites %v and log %q, want %v and CHACHA20 as ignored", got, log.String(), want)
	}
}

func FuzzCipherList(f *testing.F) {
	for _, list := range cipherLists() {
		f.Add(list)
	}
	f.Add("!:+:-:@:ALL+:+ALL+")
	f.Fuzz(func(t *testing.T, text string) {
		chosen, _ := cipherList(text)
		seen := map[uint16]bool{}
		for _, s := range chosen {
			if seen[s.id] {
				t.Errorf("%q: %s is chosen twice", text, s.name)
			}
			seen[s.id] = true
		}
		if len((&Config{TLSCipherSuites: text}).CipherSuites()) == 0 {
			t.Errorf("%q: no suite", text)
		}
	})
}

// issue makes a certificate and its key in the files NAME.pem and NAME.key, signed by the one named authority or by
// itself.
func issue(t *testing.T, dir, name, authority string, extra ...string) {
	t.Helper()
	args := []string{
		"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
		"-subj", "/CN=" + name, "-keyout", filepath.Join(dir, name+".key"), "-out", filepath.Join(dir, name+".pem"),
	}
	if authority != "" {
		args = append(args, "-CA", filepath.Join(dir, authority+".pem"), "-CAkey", filepath.Join(dir, authority+".key"))
	}
	testenv.Run(t, "openssl", append(args, extra...)...)
}

// startOpenSSL starts a server of OpenSSL. It returns its URL, its input, which it sends to the client, and its output,
// which includes what the client sends.
func startOpenSSL(t *testing.T, args ...string) (url string, input io.Writer, output *bufio.Reader) {
	t.Helper()
	args = append([]string{"s_server", "-accept", "127.0.0.1:0"}, args...)
	server := exec.CommandContext(t.Context(), "openssl", args...)
	input, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	read, write := io.Pipe()
	server.Stdout, server.Stderr = write, write
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = read.Close()
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	output = bufio.NewReader(read)
	return "https://" + strings.TrimPrefix(waitFor(t, output, "ACCEPT "), "ACCEPT "), input, output
}

// waitFor reads lines until one begins with a prefix, and returns it.
func waitFor(t *testing.T, r *bufio.Reader, prefixes ...string) string {
	t.Helper()
	var text strings.Builder
	for {
		line, err := r.ReadString('\n')
		text.WriteString(line)
		for _, prefix := range prefixes {
			if strings.HasPrefix(line, prefix) {
				return strings.TrimSpace(line)
			}
		}
		if err != nil {
			t.Fatalf("no line begins with one of %q: %v\n%s", prefixes, err, text.String())
		}
	}
}

// intermediateClient returns a configuration with a client certificate of an intermediate authority, whose file has no
// chain, and the arguments of a server of OpenSSL that names only the root in its requests for a certificate.
func intermediateClient(t *testing.T) (c *Config, server []string) {
	t.Helper()
	testenv.Programs(t, "openssl")
	dir := t.TempDir()
	issue(t, dir, "root", "")
	issue(t, dir, "intermediate", "root")
	issue(t, dir, "agent", "intermediate", "-addext", "basicConstraints=critical,CA:false")
	issue(t, dir, "server", "", "-addext", "subjectAltName=IP:127.0.0.1")
	path := func(name string) string { return filepath.Join(dir, name) }
	var authorities strings.Builder
	for _, name := range []string{"root.pem", "intermediate.pem"} {
		data, err := os.ReadFile(path(name))
		if err != nil {
			t.Fatal(err)
		}
		authorities.Write(data)
	}
	return &Config{CAFile: path("server.pem"), CertFile: path("agent.pem"), KeyFile: path("agent.key")}, []string{
		"-cert", path("server.pem"), "-key", path("server.key"), "-CAfile", path("root.pem"),
		"-verifyCAfile", writeFile(t, dir, "all.pem", authorities.String()), "-verify_return_error",
	}
}

// get requests a URL with the client settings of c.
func get(c *Config, url string) (string, error) {
	settings, err := c.ClientTLS(slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true}}
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(answer.Body)
	return string(text), errors.Join(err, answer.Body.Close())
}

// A server of OpenSSL receives the client certificate.
func TestClientCertificate(t *testing.T) {
	c, args := intermediateClient(t)
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		url, _, _ := startOpenSSL(t, append(args, "-www", version, "-Verify", "2")...)
		text, err := get(c, url)
		if err != nil || !strings.Contains(strings.ReplaceAll(text, " ", ""), "Subject:CN=agent") {
			t.Errorf("%s: got error %v and page %q, want one with the client's subject", version, err, text)
		}
	}
}

// A server of OpenSSL receives the client certificate when it asks for it after the request, by renegotiation. Without
// a client certificate, there is no renegotiation.
func TestRenegotiation(t *testing.T) {
	withCertificate, args := intermediateClient(t)
	for _, tt := range []struct {
		config *Config
		want   string // in the error
	}{
		{withCertificate, ""},
		{&Config{CAFile: withCertificate.CAFile}, "no renegotiation"},
	} {
		url, input, output := startOpenSSL(t, append(args, "-tls1_2")...)
		result := make(chan error, 1)
		go func() {
			_, err := get(tt.config, url)
			result <- err
		}()
		waitFor(t, output, "GET / ")
		io.WriteString(input, "R\n")                         //nolint:errcheck // a command of openssl-s_server(1)
		waitFor(t, output, "depth=0", "ERROR")               // the verified certificate, or the client's alert
		io.WriteString(input, "HTTP/1.1 204 No Content\n\n") //nolint:errcheck // the server may have ended
		if err := <-result; (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got error %v, want %q", err, tt.want)
		}
	}
}

// The certificate of an address is verified without the zone, as by curl, and other names as by net/http.
func TestVerifyWithoutZone(t *testing.T) {
	testenv.Linux(t, "the loopback interface lo")
	pair, ca, err := selfsigned.Issue("::1")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{
		Listener: l, TLS: &tls.Config{Certificates: []tls.Certificate{pair}},
		Config: &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)},
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	settings, err := (&Config{CAFile: writeFile(t, t.TempDir(), "ca.pem", string(ca))}).ClientTLS(slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		TLSClientConfig: settings,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, strings.Replace(address, "other", "[::1]", 1))
		},
	}
	VerifyWithoutZone(transport)
	t.Cleanup(transport.CloseIdleConnections)
	for host, want := range map[string]string{
		"[::1%25lo]": "", "[::1]": "", "other": "not valid for any names, but wanted to match other",
	} {
		answer, err := (&http.Client{Transport: transport}).Get("https://" + host + ":" + port)
		if err == nil {
			_ = answer.Body.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", host, err, want)
		}
	}
}

func TestClientTLS(t *testing.T) {
	dir := t.TempDir()
	junk := writeFile(t, dir, "junk.pem", "no certificate")
	for _, tt := range []struct {
		name   string
		config Config
		want   string // in the error or the log
	}{
		{"missing CA", Config{CAFile: "/nonexistent/ca.pem"}, "/nonexistent/ca.pem"},
		{"empty CA", Config{CAFile: junk}, junk},
		{"broken pair", Config{CertFile: junk, KeyFile: junk}, junk},
		{"missing certificate", Config{CertFile: "/nonexistent/cert.pem", KeyFile: junk}, "/nonexistent/cert.pem"},
		{"missing key", Config{CertFile: junk, KeyFile: "/nonexistent/key.pem"}, "/nonexistent/key.pem"},
		{"certificate alone", Config{CertFile: junk}, "must both be set"},
		{"key alone", Config{KeyFile: junk}, "must both be set"},
	} {
		var log strings.Builder
		settings, err := tt.config.ClientTLS(slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil && !strings.HasPrefix(err.Error(), "option") {
			t.Errorf("%s: got %v, want the options named", tt.name, err)
		}
		if err == nil && settings.GetClientCertificate != nil {
			t.Errorf("%s: got a client certificate", tt.name)
		}
		text := log.String()
		if err != nil {
			text += err.Error()
		}
		if !strings.Contains(text, tt.want) {
			t.Errorf("%s: got %q, want %q in it", tt.name, text, tt.want)
		}
	}
	pair, ca, err := selfsigned.Issue("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	const bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	for name, tt := range map[string]struct {
		text string
		ok   bool
	}{"partly unusable": {string(ca) + bad, true}, "unusable": {bad + bad, false}} {
		var log strings.Builder
		c := Config{CAFile: writeFile(t, dir, "bad.pem", tt.text)}
		settings, err := c.ClientTLS(slog.New(slog.NewTextHandler(&log, nil)))
		text := log.String()
		if err != nil {
			text += err.Error()
		}
		if (err == nil) != tt.ok || tt.ok && settings.RootCAs == nil || !strings.Contains(text, c.CAFile) ||
			!strings.Contains(text, "PEM block 2 of 2: x509: malformed certificate") {
			t.Errorf("%s: got %v and log %q, want block 2 named, and success: %t", name, err, log.String(), tt.ok)
		}
	}
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		CAFile: writeFile(t, dir, "ca.pem", string(ca)),
		CertFile: writeFile(t, dir, "cert.pem",
			string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}))),
		KeyFile: writeFile(t, dir, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))),
	}
	settings, err := c.ClientTLS(slog.New(slog.DiscardHandler))
	if err != nil || settings.RootCAs == nil {
		t.Fatalf("got %+v, %v, want the CA of the file", settings, err)
	}
	for _, tt := range []struct {
		scheme tls.SignatureScheme
		want   [][]byte
	}{{tls.ECDSAWithP256AndSHA256, pair.Certificate}, {tls.PSSWithSHA256, nil}} {
		sent, err := settings.GetClientCertificate(&tls.CertificateRequestInfo{
			AcceptableCAs: [][]byte{[]byte("other")}, SignatureSchemes: []tls.SignatureScheme{tt.scheme},
			Version: tls.VersionTLS13,
		})
		if err != nil || !slices.EqualFunc(sent.Certificate, tt.want, bytes.Equal) {
			t.Errorf("%v: got %d certificates and %v, want %d", tt.scheme, len(sent.Certificate), err, len(tt.want))
		}
	}
	insecure := &Config{TLSMinVersion: "1.3", Insecure: true, CAFile: "/nonexistent"}
	settings, err = insecure.ClientTLS(slog.New(slog.DiscardHandler))
	if err != nil || settings.MinVersion != tls.VersionTLS13 || !settings.InsecureSkipVerify {
		t.Errorf("got %+v, %v, want TLS 1.3 without verification", settings, err)
	}
}
