//go:build linux

package media

import (
	"strings"
	"testing"

	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
)

// fips checks that the agent is in FIPS 140-3 mode: it uses Go's certified module, refuses an image that has only an
// MD5 sum, and offers no TLS suite with ChaCha20.
//
// Parity: T10
func fips(t *testing.T, r *rig.Rig) {
	rig.WaitConsole(t, r.Machine, `FIPS 140-3 mode.*module=v1\.0\.0`)
	for _, named := range []bool{true, false} {
		info := r.RawInfo("any.raw", strings.Repeat("0", 32))
		info["os_hash_algo"] = "md5"
		if !named {
			info["checksum"] = info["os_hash_value"]
			delete(info, "os_hash_algo")
			delete(info, "os_hash_value")
		}
		record := r.Command(t, "standby.prepare_image", map[string]any{"image_info": info})
		const want = `checksum algorithm "md5" is not available in FIPS 140-3 mode (fips=1), want one of sha512`
		if record.Status != conductor.Failed || !strings.Contains(record.Error.Details, want) {
			t.Errorf("algorithm named %t: got %s (%v), want %q", named, record.Status, record.Error, want)
		}
	}
	for _, tt := range []struct {
		suite  string
		agreed bool
	}{{"TLS_AES_256_GCM_SHA384", true}, {"TLS_CHACHA20_POLY1305_SHA256", false}} {
		out, err := r.Handshake(t, "-brief", "-tls1_3", "-ciphersuites", tt.suite)
		if agreed := strings.Contains(out, "Ciphersuite: "+tt.suite); agreed != tt.agreed {
			t.Errorf("%s: got %v\n%s\nwant a connection: %t", tt.suite, err, out, tt.agreed)
		}
	}
}
