package agent

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ironroot/internal/testenv"
)

// The conductor's answer decides what the listener speaks; a static certificate replaces the generated one.
func TestTLSAfterLookup(t *testing.T) {
	testenv.Programs(t, "openssl")
	speaks := func(r *running, version string, args ...string) bool {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		args = append([]string{"s_client", "-connect", "127.0.0.1:" + strconv.Itoa(r.port), version}, args...)
		return exec.CommandContext(ctx, "openssl", args...).Run() == nil
	}
	check := func(name string, r *running, v12 bool) {
		t.Helper()
		if speaks(r, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0") || speaks(r, "-tls1_2") != v12 || !speaks(r, "-tls1_3") {
			t.Errorf("%s: want TLS 1.3, 1.2: %v, and never 1.1", name, v12)
		}
	}
	plain := newIronic(t)
	r := startAgent(t, nil, "--api-url="+plain.URL)
	r.beat(plain)
	check("lookup without a version", r, true)

	strict := newIronic(t)
	strict.config["tls_min_version"] = "1.3"
	r = startAgent(t, nil, "--api-url="+strict.URL)
	r.beat(strict)
	check("lookup with 1.3", r, false)

	suite := newIronic(t)
	suite.config["tls_cipher_suites"] = "ECDHE-ECDSA-AES128-GCM-SHA256"
	r = startAgent(t, nil, "--api-url="+suite.URL)
	r.beat(suite)
	if speaks(r, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384") || !speaks(r, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256") {
		t.Error("lookup with one suite: want this one and no other")
	}

	crt, key := filepath.Join(t.TempDir(), "crt"), filepath.Join(t.TempDir(), "key")
	testenv.Run(t, "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=static", "-addext", "subjectAltName=IP:127.0.0.1",
		"-keyout", key, "-out", crt)
	static := newIronic(t)
	r = startAgent(t, nil, "--api-url="+static.URL, "--listen_tls", "--tls_cert_file="+crt, "--tls_key_file="+key, "--advertise_protocol=https")
	if b := r.beat(static); b.CA != "" || !strings.HasPrefix(b.CallbackURL, "https://") {
		t.Errorf("static certificate: got %s and certificate %q in the heartbeat, want https and none", b.CallbackURL, b.CA)
	}
	check("static certificate", r, true)
	testenv.Run(t, "sh", "-c", "openssl s_client -connect 127.0.0.1:"+strconv.Itoa(r.port)+" -CAfile "+crt+" -verify_return_error </dev/null")
}
