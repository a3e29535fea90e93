//go:build linux

package media

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"testing"

	"ironroot/lab/e2e/rig"
	"ironroot/lab/selfsigned"
)

// issue returns a certificate for the agent's address and its key in PEM form.
func issue(t *testing.T) (certificate, key string) {
	t.Helper()
	made, text, err := selfsigned.Issue(rig.AgentAddress)
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
func staticCertificate(t *testing.T, r *rig.Rig, certificate string) {
	r.CheckTLSVersions(t, map[string]bool{"tls1_1": false, "tls1_2": true, "tls1_3": true})
	file := rig.WriteFile(t, filepath.Join(t.TempDir(), "static.crt"), certificate)
	if out, err := r.Handshake(t, "-CAfile", file, "-verify_ip", rig.AgentAddress, "-verify_return_error"); err != nil {
		t.Errorf("the agent does not show the static certificate: %v\n%s", err, out)
	}
	want := fmt.Sprintf("https://%s:%d", rig.AgentAddress, rig.AgentPort)
	if url, certificate := r.Node.Callback(); certificate != "" || url != want {
		t.Errorf("got callback URL %s and certificate %q, want https and none", url, certificate)
	}
}
