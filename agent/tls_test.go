package agent

import (
	"crypto/tls"
	"fmt"
	"testing"
)

// The API accepts only the cipher suites of the option or the lookup response.
//
// Parity: A15 (cipher enforcement)
func TestCipherSuites(t *testing.T) {
	const aes128, aes256 = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
	for _, tt := range []struct {
		name, option, lookup string
		want                 map[uint16]bool
	}{
		{
			name: "default",
			want: map[uint16]bool{aes128: true, aes256: true, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256: false},
		},
		{name: "option", option: "ECDHE-ECDSA-AES128-GCM-SHA256", want: map[uint16]bool{aes128: true, aes256: false}},
		{
			name: "lookup", option: "ECDHE-ECDSA-AES128-GCM-SHA256", lookup: "ECDHE+AES256",
			want: map[uint16]bool{aes128: false, aes256: true},
		},
	} {
		ironic := newIronic(t)
		if tt.lookup != "" {
			ironic.config["tls_cipher_suites"] = tt.lookup
		}
		r := startAgent(t, nil, "--api-url="+ironic.URL, "--tls-cipher-suites="+tt.option)
		r.beat(ironic)
		for suite, want := range tt.want {
			conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", r.port), &tls.Config{
				InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite},
			})
			if err == nil {
				_ = conn.Close()
			}
			if (err == nil) != want {
				t.Errorf("%s: %s: got %v, want accepted %v", tt.name, tls.CipherSuiteName(suite), err, want)
			}
		}
	}
}
