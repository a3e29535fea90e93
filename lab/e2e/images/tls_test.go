//go:build linux

package images

import (
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/e2e/rig"
)

// generatedCertificate checks the certificate that the agent generated, which its heartbeats contain, with openssl.
// The lookup's reply allows only TLS 1.3.
//
// Parity: A14, A15 (lookup with 1.3)
func generatedCertificate(t *testing.T, r *rig.Rig) {
	r.CheckTLSVersions(t, map[string]bool{"tls1_1": false, "tls1_2": false, "tls1_3": true})
	out, err := r.Handshake(t, "-showcerts")
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	shown := regexp.MustCompile(`(?s)-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n`).FindString(out)
	if _, sent := r.Node.Callback(); shown == "" || shown != sent {
		t.Errorf("the agent shows the certificate\n%s\nand sent Ironic\n%s", shown, sent)
	}
	file := rig.WriteFile(t, filepath.Join(t.TempDir(), "agent.crt"), shown)
	text := testenv.Run(t, "openssl", "x509", "-in", file, "-noout", "-text")
	for _, want := range []string{"ASN1 OID: secp384r1", "Signature Algorithm: ecdsa-with-SHA512"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the certificate:\n%s", want, text)
		}
	}
	want := regexp.MustCompile(`Subject Alternative Name: critical\s+IP Address:` + rig.AgentAddress + `\n`)
	if !want.MatchString(text) {
		t.Errorf("no critical subjectAltName with %s alone in the certificate:\n%s", rig.AgentAddress, text)
	}
	block, _ := pem.Decode([]byte(shown))
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	made := certificate.NotBefore.Add(time.Hour)
	if age := time.Since(made); age < -rig.ClockTolerance || age > rig.OperationTimeout+rig.ClockTolerance {
		t.Errorf("not before: %v, want an hour before it was made, which is less than %v ago",
			certificate.NotBefore, rig.OperationTimeout)
	}
	if valid := certificate.NotAfter.Sub(made); valid != 30*24*time.Hour {
		t.Errorf("valid for %v, want 30 days", valid)
	}
}
