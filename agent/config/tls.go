package config

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"ironroot/internal/authorities"
	"ironroot/internal/bounded"
	"ironroot/internal/hostname"
)

// maxPEM limits the bytes of a certificate or key file.
const maxPEM = 4 << 20

// defaultCiphers are the TLS 1.2 suites that are used if tls_cipher_suites is not set.
const defaultCiphers = "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256:" +
	"ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256"

// TLSVersion returns tls_min_version as a constant of crypto/tls.
func (c *Config) TLSVersion() uint16 {
	if c.TLSMinVersion == "1.3" {
		return tls.VersionTLS13
	}
	return tls.VersionTLS12
}

// CipherSuites returns the TLS 1.2 suites of tls_cipher_suites as constants of crypto/tls. If the option is not set or
// selects no supported suite, it returns the default suites. The option does not choose the suites of TLS 1.3.
func (c *Config) CipherSuites() []uint16 {
	chosen, _ := cipherList(c.TLSCipherSuites)
	if len(chosen) == 0 {
		chosen, _ = cipherList(defaultCiphers)
	}
	ids := make([]uint16, 0, len(chosen))
	for _, s := range chosen {
		ids = append(ids, s.id)
	}
	return ids
}

// WarnCiphers logs the elements of tls_cipher_suites that have no effect.
func (c *Config) WarnCiphers(log *slog.Logger) {
	if c.TLSCipherSuites == "" {
		return
	}
	chosen, ignored := cipherList(c.TLSCipherSuites)
	if len(ignored) > 0 {
		log.Warn("unsupported cipher names ignored",
			"option", "tls_cipher_suites", "names", strings.Join(ignored, ":"))
	}
	if len(chosen) == 0 {
		log.Warn("cipher list selects no supported suite: default suites are used", "option", "tls_cipher_suites",
			"value", c.TLSCipherSuites, "default", defaultCiphers)
	}
}

// ClientTLS returns the settings for TLS connections to Ironic and to image servers: insecure, cafile, certfile and
// keyfile, tls_min_version and tls_cipher_suites. The error names a file that cannot be used. Certificates of cafile
// that cannot be used are logged, if there are others.
func (c *Config) ClientTLS(log *slog.Logger) (*tls.Config, error) {
	var err error
	settings := &tls.Config{MinVersion: c.TLSVersion(), CipherSuites: c.CipherSuites()}
	if c.Insecure {
		settings.InsecureSkipVerify = true
	} else if c.CAFile != "" {
		var unusable []error
		if settings.RootCAs, unusable, err = readPool(c.CAFile); err != nil {
			return nil, fmt.Errorf("option cafile: %w", err)
		}
		for _, err := range unusable {
			log.Warn("certificate ignored", "option", "cafile", "file", c.CAFile, "err", err)
		}
	}
	switch {
	case c.CertFile != "" && c.KeyFile != "":
		pair, err := readPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("options certfile and keyfile: %w", err)
		}
		settings.GetClientCertificate = alwaysSend(&pair)
		// IIS and Apache can ask for the certificate after they have read the URL: under TLS 1.2 by renegotiation.
		settings.Renegotiation = tls.RenegotiateOnceAsClient
	case c.CertFile != "" || c.KeyFile != "":
		log.Warn("no client certificate is used: certfile and keyfile must both be set",
			"certfile", c.CertFile, "keyfile", c.KeyFile)
	}
	return settings, nil
}

// VerifyWithoutZone has a transport verify the certificate of an IPv6 address without its zone, as curl does. The zone
// in https://[fe80::1%25eth0] names an interface of this machine; net/http demands a certificate that contains it.
func VerifyWithoutZone(t *http.Transport) {
	dial := t.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if t.TLSHandshakeTimeout > 0 {
			limited, cancel := context.WithTimeout(ctx, t.TLSHandshakeTimeout)
			defer cancel()
			ctx = limited
		}
		settings := t.TLSClientConfig.Clone()
		settings.ServerName = hostname.WithoutZone(host)
		secure := tls.Client(conn, settings)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err // unwrapped: net/http looks for a tls.RecordHeaderError
		}
		return secure, nil
	}
}

// alwaysSend returns a function for tls.Config.GetClientCertificate that returns the certificate whichever authorities
// the server names, as OpenSSL does. crypto/tls would withhold it if the server names the root and the file lacks the
// intermediate.
func alwaysSend(pair *tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		request := *info
		request.AcceptableCAs = nil
		if err := request.SupportsCertificate(pair); err != nil {
			return &tls.Certificate{}, nil //nolint:nilerr // the server supports no signature algorithm of the key
		}
		return pair, nil
	}
}

func readPool(name string) (pool *x509.CertPool, unusable []error, err error) {
	data, err := bounded.ReadFile(name, maxPEM)
	if err != nil {
		return nil, nil, err
	}
	if pool, unusable, err = authorities.Parse(data); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return pool, unusable, nil
}

func readPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := bounded.ReadFile(certFile, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := bounded.ReadFile(keyFile, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	return pair, nil
}
