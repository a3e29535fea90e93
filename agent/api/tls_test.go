package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ironroot/agent/command"
	"ironroot/agent/token"
	"ironroot/internal/test/testenv"
)

// serve starts an API on a free port and returns the port.
func serve(t *testing.T, host string, settings *tls.Config) (*Server, string) {
	t.Helper()
	l, err := Listen(context.Background(), host, 0)
	if err != nil {
		t.Fatal(err)
	}
	registry := command.NewRegistry(nil, command.Options{})
	t.Cleanup(registry.Close)
	s := Serve(l, New(Options{Commands: registry, Token: &token.Token{}, Version: "1", Started: time.Now()}), settings)
	t.Cleanup(func() { shutdown(s) })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return s, port
}

func shutdown(s *Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // a busy machine answers late
	defer cancel()
	s.Shutdown(ctx)
}

func reachable(host, port string) error {
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + net.JoinHostPort(host, port) + "/v1/status")
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return errors.Join(err, answer.Body.Close())
}

func TestDualStack(t *testing.T) {
	s, port := serve(t, "::", nil)
	for _, host := range []string{"127.0.0.1", "::1"} {
		if err := reachable(host, port); err != nil {
			t.Errorf("listener on ::, client on %s: %v", host, err)
		}
	}
	shutdown(s)
	if err := reachable("127.0.0.1", port); err == nil {
		t.Error("the port still answers after Shutdown")
	}
	_, port = serve(t, "0.0.0.0", nil)
	if err := reachable("127.0.0.1", port); err != nil {
		t.Errorf("listener on 0.0.0.0, client on 127.0.0.1: %v", err)
	}
	if err := reachable("::1", port); err == nil {
		t.Error("listener on 0.0.0.0 answers on ::1, want only IPv4")
	}
}

func newCertificate(t *testing.T, host, curve string) *Certificate {
	t.Helper()
	c, err := NewCertificate(CertificateOptions{
		CommonName: "node-7", Host: host, Curve: curve, Skew: time.Hour, Lifetime: 40 * 24 * time.Hour,
		Now: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// openssl verifies the contents of the certificate.
func TestCertificate(t *testing.T) {
	testenv.Programs(t, "openssl")
	for _, c := range []struct{ host, curve, group, san string }{
		{"192.0.2.7", "p384", "secp384r1", "IP Address:192.0.2.7"},
		{"192.0.2.7", "p256", "prime256v1", "IP Address:192.0.2.7"},
		{"2001:db8::7", "p521", "secp521r1", "IP Address:2001:DB8:0:0:0:0:0:7"},
	} {
		t.Run(c.curve, func(t *testing.T) {
			made := newCertificate(t, c.host, c.curve)
			file := write(t, "agent.crt", made.PEM)
			text := testenv.Run(t, "openssl", "x509", "-in", file, "-noout", "-text")
			for _, want := range []string{
				"Version: 3", "ASN1 OID: " + c.group, "Signature Algorithm: ecdsa-with-SHA512", "Issuer: CN = node-7",
				"Subject: CN = node-7",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in the certificate:\n%s", want, text)
				}
			}
			extensions := regexp.MustCompile(`(?s)X509v3 extensions:\n(.*?)\n    ` +
				`Signature Algorithm`).FindStringSubmatch(text)
			if extensions == nil ||
				strings.Join(strings.Fields(extensions[1]), " ") != "X509v3 Subject Alternative Name: critical "+c.san {
				t.Errorf("extensions: got %q, want one critical subjectAltName with %s", extensions, c.san)
			}
			from, until := date(t, text, "Not Before"), date(t, text, "Not After ")
			if age := time.Since(from); age < time.Hour || age > time.Hour+time.Minute {
				t.Errorf("not before: %v ago, want one hour", age)
			}
			if left := time.Until(until); left > 40*24*time.Hour || left < 40*24*time.Hour-time.Minute {
				t.Errorf("not after: in %v, want 40 days", left)
			}
			// The conductor uses the certificate as the CA of the node.
			testenv.Run(t, "openssl", "verify", "-CAfile", file, "-verify_ip", c.host, file)
			if other := newCertificate(t, c.host, c.curve); other.TLS.Leaf == nil && other.PEM == made.PEM {
				t.Error("two certificates are the same")
			}
		})
	}
}

func date(t *testing.T, text, name string) time.Time {
	t.Helper()
	found := regexp.MustCompile(name + `\s*: (.*)`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no %q in:\n%s", name, text)
	}
	when, err := time.Parse("Jan _2 15:04:05 2006 MST", found[1])
	if err != nil {
		t.Fatal(err)
	}
	return when
}

// handshake connects with openssl and returns its description of the session.
func handshake(port string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "openssl",
		append([]string{"s_client", "-connect", "127.0.0.1:" + port}, args...)...)
	out, err := cmd.CombinedOutput() // no standard input: it ends after the handshake
	return string(out), err
}

// Listeners accept only TLS versions from their minimum on, and only their cipher suites. A test of package agent shows
// that a lookup sets the minimum.
func TestTLSVersions(t *testing.T) {
	testenv.Programs(t, "openssl")
	made := newCertificate(t, "127.0.0.1", "p384")
	const aes128, aes256 = "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"
	all := []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
	_, v12 := serve(t, "127.0.0.1", TLSSettings(made.TLS, tls.VersionTLS12, all))
	_, v13 := serve(t, "127.0.0.1", TLSSettings(made.TLS, tls.VersionTLS13, all))
	_, one := serve(t, "127.0.0.1", TLSSettings(made.TLS, tls.VersionTLS12, all[1:]))
	for _, c := range []struct {
		port string
		args []string
		ok   bool
		want string
	}{
		{v12, []string{"-tls1_1", "-cipher", "ALL:@SECLEVEL=0"}, false, "alert protocol version"},
		{v12, []string{"-tls1_2"}, true, "Cipher is ECDHE-ECDSA-AES"},
		{v12, []string{"-tls1_3"}, true, "TLSv1.3"},
		{v13, []string{"-tls1_1", "-cipher", "ALL:@SECLEVEL=0"}, false, "alert protocol version"},
		{v13, []string{"-tls1_2"}, false, "alert protocol version"},
		{v13, []string{"-tls1_3"}, true, "TLSv1.3"},
		{one, []string{"-tls1_2", "-cipher", aes256}, false, "alert handshake failure"},
		{one, []string{"-tls1_2"}, true, aes128},
	} {
		out, err := handshake(c.port, c.args...)
		if (err == nil) != c.ok || !strings.Contains(out, c.want) {
			t.Errorf("port %s %v: got error %v, want success %v with %q\n%s",
				portName(c.port, v12, v13), c.args, err, c.ok, c.want, out)
		}
	}
}

func portName(port, v12, v13 string) string {
	switch port {
	case v12:
		return "of minimum 1.2"
	case v13:
		return "of minimum 1.3"
	}
	return "of one suite"
}

// The response to a command that stops the API reaches its client.
func TestShutdownDeliversAnswer(t *testing.T) {
	entered, stopping := make(chan struct{}), make(chan struct{})
	registry := command.NewRegistry([]command.Extension{{Name: "x", Commands: []command.Command{{
		Name: "stop", Run: func(context.Context, command.Params) (any, error) {
			close(entered)
			<-stopping
			return "bye", nil
		},
	}}}}, command.Options{})
	defer registry.Close()
	tok := &token.Token{}
	tok.Set(secret)
	l, err := Listen(context.Background(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	a := New(Options{Commands: registry, Token: tok})
	s := Serve(l, a, nil)
	answered := make(chan string)
	go func() {
		answer, err := http.Post(fmt.Sprintf("http://%s/v1/commands/?agent_token=%s", l.Addr(), secret), "",
			strings.NewReader(`{"name":"x.stop","params":{}}`))
		if err != nil {
			answered <- err.Error()
			return
		}
		body, err := io.ReadAll(answer.Body)
		answered <- fmt.Sprint(string(body), errors.Join(err, answer.Body.Close()))
	}()
	<-entered
	done := make(chan struct{})
	go func() {
		shutdown(s)
		close(done)
	}()
	close(stopping)
	if got := <-answered; !strings.Contains(got, `"result":"bye"`) {
		t.Errorf("answer while the API stops: got %s, want the record", got)
	}
	<-done
	a.Idle(context.Background())
}
