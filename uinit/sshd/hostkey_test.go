//go:build linux

package sshd

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/x509"
	"strings"
	"testing"
)

// Host keys that cannot sign are errors that contain nothing of them.
func TestBadHostKeys(t *testing.T) {
	exchange, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(exchange)
	if err != nil {
		t.Fatal(err)
	}
	for want, key := range map[string][]byte{
		"host key: not in PKCS #8": []byte("nonsense"), "host key: ssh: ": encoded,
	} {
		s := &server{config: &config{HostKeys: [][]byte{key}}}
		err := s.addHostKeys()
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "nonsense") {
			t.Errorf("got %v, want %q", err, want)
		}
		if len(s.signers) > 0 {
			t.Errorf("got %d signers, want none", len(s.signers))
		}
	}
}
