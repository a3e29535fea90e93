package config

import (
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCipherSuites(t *testing.T) {
	for _, tt := range []struct {
		option string
		want   []uint16
	}{
		{"", []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		}},
		{"ECDHE-RSA-AES128-GCM-SHA256:!aNULL:HIGH", []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}},
	} {
		got, err := (&Config{TLSCipherSuites: tt.option}).CipherSuites()
		if err != nil {
			t.Errorf("%q: %v", tt.option, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.option, diff)
		}
	}
	if _, err := (&Config{TLSCipherSuites: "HIGH:!aNULL"}).CipherSuites(); err == nil || !strings.Contains(err.Error(), "HIGH:!aNULL") {
		t.Errorf("got error %v, want one that names the option's value", err)
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
		{"missing key", Config{CertFile: junk, KeyFile: "/nonexistent/key.pem"}, "/nonexistent/key.pem"},
		{"certificate alone", Config{CertFile: junk}, "must both be set"},
		{"key alone", Config{KeyFile: junk}, "must both be set"},
		{"ciphers", Config{TLSCipherSuites: "none"}, "tls_cipher_suites"},
	} {
		var log strings.Builder
		settings, err := tt.config.ClientTLS(slog.New(slog.NewTextHandler(&log, nil)))
		if err == nil && len(settings.Certificates) > 0 {
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
	settings, err := (&Config{TLSMinVersion: "1.3", Insecure: true, CAFile: "/nonexistent"}).ClientTLS(slog.New(slog.DiscardHandler))
	if err != nil || settings.MinVersion != tls.VersionTLS13 || !settings.InsecureSkipVerify {
		t.Errorf("got %+v, %v, want TLS 1.3 without verification", settings, err)
	}
}
