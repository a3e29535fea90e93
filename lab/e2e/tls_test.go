//go:build linux

package e2e

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/selfsigned"
)

// handshake connects to the agent with openssl, and returns its description of the session, or an error.
func (r *rig) handshake(t *testing.T, args ...string) (string, error) {
	t.Helper()
	testenv.Programs(t, "openssl")
	ctx, cancel := context.WithTimeout(t.Context(), operationTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "openssl",
		append([]string{"s_client", "-connect", fmt.Sprintf("127.0.0.1:%d", agentForward)}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	wait, err := r.namespace.Start(cmd)
	if err == nil {
		err = wait() // without standard input it exits after the handshake
	}
	return out.String(), err
}

// speaks checks which versions of TLS the agent accepts.
func (r *rig) speaks(t *testing.T, want map[string]bool) {
	t.Helper()
	for version, ok := range want {
		out, err := r.handshake(t, "-"+version, "-cipher", "ALL:@SECLEVEL=0")
		if (err == nil) != ok || !ok && !strings.Contains(out, "alert protocol version") {
			t.Errorf("%s: got error %v, want success %v:\n%s", version, err, ok, out)
		}
	}
}

// generatedCertificate checks the certificate that the agent generated, which its heartbeats contain, with openssl.
// The lookup's reply allows only TLS 1.3.
//
// Parity: A14, A15 (lookup with 1.3)
func (r *rig) generatedCertificate(t *testing.T) {
	r.speaks(t, map[string]bool{"tls1_1": false, "tls1_2": false, "tls1_3": true})
	out, err := r.handshake(t, "-showcerts")
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	shown := regexp.MustCompile(`(?s)-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n`).FindString(out)
	if _, sent := r.node.Callback(); shown == "" || shown != sent {
		t.Errorf("the agent shows the certificate\n%s\nand sent Ironic\n%s", shown, sent)
	}
	file := writeFile(t, filepath.Join(t.TempDir(), "agent.crt"), shown)
	text := testenv.Run(t, "openssl", "x509", "-in", file, "-noout", "-text")
	for _, want := range []string{"ASN1 OID: secp384r1", "Signature Algorithm: ecdsa-with-SHA512"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the certificate:\n%s", want, text)
		}
	}
	if !regexp.MustCompile(`Subject Alternative Name: critical\s+IP Address:` + agentAddress + `\n`).MatchString(text) {
		t.Errorf("no critical subjectAltName with %s alone in the certificate:\n%s", agentAddress, text)
	}
	block, _ := pem.Decode([]byte(shown))
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	made := certificate.NotBefore.Add(time.Hour)
	if age := time.Since(made); age < -near || age > operationTimeout+near {
		t.Errorf("not before: %v, want an hour before it was made, which is less than %v ago",
			certificate.NotBefore, operationTimeout)
	}
	if valid := certificate.NotAfter.Sub(made); valid != 30*24*time.Hour {
		t.Errorf("valid for %v, want 30 days", valid)
	}
}

// issue returns a certificate for the agent's address and its key in PEM form.
func issue(t *testing.T) (certificate, key string) {
	t.Helper()
	made, text, err := selfsigned.Issue(agentAddress)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// staticCertificate checks that the API uses the operator's certificate, which Ironic already has, so that heartbeats
// contain none. If the lookup's reply has no TLS version, TLS 1.2 is accepted.
//
// Parity: A15 (static certificate, lookup without a version)
func (r *rig) staticCertificate(t *testing.T, certificate string) {
	r.speaks(t, map[string]bool{"tls1_1": false, "tls1_2": true, "tls1_3": true})
	file := writeFile(t, filepath.Join(t.TempDir(), "static.crt"), certificate)
	if out, err := r.handshake(t, "-CAfile", file, "-verify_ip", agentAddress, "-verify_return_error"); err != nil {
		t.Errorf("the agent does not show the static certificate: %v\n%s", err, out)
	}
	want := fmt.Sprintf("https://%s:%d", agentAddress, agentPort)
	if url, certificate := r.node.Callback(); certificate != "" || url != want {
		t.Errorf("got callback URL %s and certificate %q, want https and none", url, certificate)
	}
}
