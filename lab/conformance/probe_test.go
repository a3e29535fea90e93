//go:build linux

package conformance

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// tlsMethod is the method of a request that is a TLS handshake only. Its path is the version.
const tlsMethod = "TLS"

// silence is the time after which an agent that has sent nothing is taken to be one that does not start.
const silence = 45 * time.Second

// silent starts an agent and reports whether it sends nothing to Ironic.
func (m *machine) silent(ctx context.Context, s scenario, reached <-chan struct{}) bool {
	if err := m.start(ctx, s); err != nil {
		return true // invalid options
	}
	select {
	case <-reached:
		return false
	case <-time.After(silence):
		return len(m.conductor.seen()) == 0
	}
}

// handshake connects to the agent with one version of TLS, and describes its certificate. With TLS 1.2 it also tries
// each cipher suite.
func handshake(ctx context.Context, client *http.Client, r request) (exchange, error) {
	versions := map[string]uint16{"1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}
	version := versions[r.path]
	x := exchange{Request: r.method + " " + r.path, Body: "rejected"}
	certificates, err := certificatesOf(ctx, client, version, nil)
	if err != nil || certificates == nil {
		return x, err
	}
	body := object{"certificates": len(certificates)}
	describeCertificate(body, certificates[0])
	if version == tls.VersionTLS12 {
		var suites []string
		for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
			if !slices.Contains(suite.SupportedVersions, version) {
				continue
			}
			accepted, err := certificatesOf(ctx, client, version, []uint16{suite.ID})
			if err != nil {
				return x, err
			}
			if accepted != nil {
				suites = append(suites, suite.Name)
			}
		}
		slices.Sort(suites)
		body["suites"] = suites
	}
	x.Status, x.Body = http.StatusOK, body
	return x, nil
}

// certificatesOf returns the certificates of the agent, or nil if it rejects the version or all cipher suites.
func certificatesOf(
	ctx context.Context,
	client *http.Client,
	version uint16,
	suites []uint16,
) ([]*x509.Certificate, error) {
	transport, ok := client.Transport.(*http.Transport)
	if !ok {
		return nil, fmt.Errorf("transport is a %T", client.Transport)
	}
	conn, err := transport.DialContext(ctx, "tcp", "")
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	session := tls.Client(conn, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the certificate is described
		MinVersion:         version, MaxVersion: version, CipherSuites: suites,
	})
	if err := session.HandshakeContext(ctx); err != nil {
		return nil, nil //nolint:nilerr // rejected
	}
	return session.ConnectionState().PeerCertificates, nil
}

// describeCertificate describes what is not random in a certificate.
func describeCertificate(body object, c *x509.Certificate) {
	body["signature"] = c.SignatureAlgorithm.String()
	if key, ok := c.PublicKey.(*ecdsa.PublicKey); ok {
		body["curve"] = key.Curve.Params().Name
	}
	body["addresses"], body["names"] = fmt.Sprint(c.IPAddresses), fmt.Sprint(c.DNSNames)
	body["issuer is subject"] = c.Issuer.String() == c.Subject.String()
	body["hours"] = int(c.NotAfter.Sub(c.NotBefore).Hours())
	var extensions []string
	for _, extension := range c.Extensions {
		extensions = append(extensions, fmt.Sprintf("%v critical=%v", extension.Id, extension.Critical))
	}
	body["extensions"] = extensions
}
