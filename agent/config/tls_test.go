package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/testenv"
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
	if err != nil || settings.RootCAs == nil || len(settings.Certificates) != 1 ||
		!bytes.Equal(settings.Certificates[0].Certificate[0], pair.Certificate[0]) {
		t.Errorf("got %+v, %v, want the CA and the client certificate of the files", settings, err)
	}
	insecure := &Config{TLSMinVersion: "1.3", Insecure: true, CAFile: "/nonexistent"}
	settings, err = insecure.ClientTLS(slog.New(slog.DiscardHandler))
	if err != nil || settings.MinVersion != tls.VersionTLS13 || !settings.InsecureSkipVerify {
		t.Errorf("got %+v, %v, want TLS 1.3 without verification", settings, err)
	}
}
