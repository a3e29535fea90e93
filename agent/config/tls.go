package config

import (
	"crypto/tls"
	"errors"
	"log/slog"
)

// ClientTLS returns the settings for TLS connections to Ironic and to image servers: insecure, cafile, certfile and
// keyfile, tls_min_version and tls_cipher_suites.
func (c *Config) ClientTLS(log *slog.Logger) (*tls.Config, error) {
	return nil, errors.New("not implemented")
}

// TLSVersion returns tls_min_version as crypto/tls names it.
func (c *Config) TLSVersion() uint16 { return tls.VersionTLS12 }

// CipherSuites returns tls_cipher_suites, or the default list, as crypto/tls names them.
func (c *Config) CipherSuites() ([]uint16, error) { return nil, errors.New("not implemented") }
