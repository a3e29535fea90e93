package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"strings"
)

// maxPEM bounds certificate and key files.
const maxPEM = 4 << 20

// defaultCiphers are the TLS 1.2 suites spoken when tls_cipher_suites is not set.
const defaultCiphers = "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256:" +
	"ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256"

// cipherID returns the suite of an OpenSSL name, 0 where crypto/tls has no such suite.
func cipherID(name string) uint16 {
	switch name {
	case "ECDHE-ECDSA-AES256-GCM-SHA384":
		return tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
	case "ECDHE-ECDSA-AES128-GCM-SHA256":
		return tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
	case "ECDHE-RSA-AES256-GCM-SHA384":
		return tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
	case "ECDHE-RSA-AES128-GCM-SHA256":
		return tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
	case "ECDHE-ECDSA-CHACHA20-POLY1305":
		return tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
	case "ECDHE-RSA-CHACHA20-POLY1305":
		return tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
	case "ECDHE-ECDSA-AES256-SHA":
		return tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA
	case "ECDHE-ECDSA-AES128-SHA":
		return tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA
	case "ECDHE-RSA-AES256-SHA":
		return tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA
	case "ECDHE-RSA-AES128-SHA":
		return tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA
	case "AES256-GCM-SHA384":
		return tls.TLS_RSA_WITH_AES_256_GCM_SHA384
	case "AES128-GCM-SHA256":
		return tls.TLS_RSA_WITH_AES_128_GCM_SHA256
	case "AES256-SHA":
		return tls.TLS_RSA_WITH_AES_256_CBC_SHA
	case "AES128-SHA":
		return tls.TLS_RSA_WITH_AES_128_CBC_SHA
	}
	return 0
}

// TLSVersion returns tls_min_version as crypto/tls names it.
func (c *Config) TLSVersion() uint16 {
	if c.TLSMinVersion == "1.3" {
		return tls.VersionTLS13
	}
	return tls.VersionTLS12
}

// CipherSuites returns the TLS 1.2 suites of tls_cipher_suites, or the default ones, as crypto/tls names them. Names
// that crypto/tls does not have, and OpenSSL's groups and exclusions (HIGH, !aNULL), are passed over; the error says
// that none is left. The suites of TLS 1.3 are not chosen by the option.
func (c *Config) CipherSuites() ([]uint16, error) {
	text := c.TLSCipherSuites
	if text == "" {
		text = defaultCiphers
	}
	ids := cipherIDs(text)
	if len(ids) == 0 {
		return nil, fmt.Errorf("option tls_cipher_suites: got %q, want a suite that crypto/tls has", text)
	}
	return ids, nil
}

// cipherIDs returns the suites of a list of OpenSSL names.
func cipherIDs(text string) []uint16 {
	var ids []uint16
	for _, name := range strings.FieldsFunc(text, func(r rune) bool { return r == ':' || r == ',' || r == ' ' }) {
		if id := cipherID(name); id != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// ClientTLS returns the settings for TLS connections to Ironic and to image servers: insecure, cafile, certfile and
// keyfile, tls_min_version and tls_cipher_suites. The error names a file that cannot be used.
func (c *Config) ClientTLS(log *slog.Logger) (*tls.Config, error) {
	suites, err := c.CipherSuites()
	if err != nil {
		return nil, err
	}
	settings := &tls.Config{MinVersion: c.TLSVersion(), CipherSuites: suites}
	if c.Insecure {
		settings.InsecureSkipVerify = true
	} else if c.CAFile != "" {
		if settings.RootCAs, err = readPool(c.CAFile); err != nil {
			return nil, fmt.Errorf("option cafile: %w", err)
		}
	}
	switch {
	case c.CertFile != "" && c.KeyFile != "":
		pair, err := readPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("options certfile and keyfile: %w", err)
		}
		settings.Certificates = []tls.Certificate{pair}
	case c.CertFile != "" || c.KeyFile != "":
		log.Warn("no client certificate is used: certfile and keyfile must both be set",
			"certfile", c.CertFile, "keyfile", c.KeyFile)
	}
	return settings, nil
}

func readPool(name string) (*x509.CertPool, error) {
	data, err := readBounded(name, maxPEM)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", name)
	}
	return pool, nil
}

func readPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := readBounded(certFile, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := readBounded(keyFile, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	return pair, nil
}
