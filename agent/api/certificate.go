package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"time"
)

// CertificateOptions describe a generated certificate.
type CertificateOptions struct {
	CommonName string        // the machine's host name
	Host       string        // the advertised address or host name
	Curve      string        // "p256", "p384" or "p521"
	Skew       time.Duration // subtracted from the start of validity, for clients whose clock is behind
	Lifetime   time.Duration // until the certificate expires
	Now        time.Time
}

// Certificate is a generated certificate: with its key for the listener, and as PEM without the key for Ironic.
type Certificate struct {
	TLS tls.Certificate
	PEM string
}

// NewCertificate creates a self-signed ECDSA certificate. Its only extension is a critical subjectAltName (RFC 5280,
// 4.2.1.6) with one address. The private key is only kept in memory.
func NewCertificate(o CertificateOptions) (*Certificate, error) {
	curve, err := curveByName(o.Curve)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate certificate key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 159))
	if err != nil {
		return nil, fmt.Errorf("generate certificate serial number: %w", err)
	}
	names, err := subjectAltName(o.Host)
	if err != nil {
		return nil, fmt.Errorf("create certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// RFC 5280: ub-common-name.
		Subject:            pkix.Name{CommonName: o.CommonName[:min(len(o.CommonName), 64)]},
		NotBefore:          o.Now.Add(-o.Skew),
		NotAfter:           o.Now.Add(o.Lifetime),
		SignatureAlgorithm: x509.ECDSAWithSHA512,
		ExtraExtensions:    []pkix.Extension{names},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create certificate: %w", err)
	}
	return &Certificate{
		TLS: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		PEM: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
	}, nil
}

func curveByName(name string) (elliptic.Curve, error) {
	switch name {
	case "p256":
		return elliptic.P256(), nil
	case "p384":
		return elliptic.P384(), nil
	case "p521":
		return elliptic.P521(), nil
	}
	return nil, fmt.Errorf("create certificate: got curve %q, want p256, p384 or p521", name)
}

// subjectAltName encodes the extension itself, because crypto/x509 marks it critical only if the subject is empty.
func subjectAltName(host string) (pkix.Extension, error) {
	const dnsName, ipAddress = 2, 7 // tags of GeneralName
	name := asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: dnsName, Bytes: []byte(host)}
	if addr, err := netip.ParseAddr(host); err == nil {
		name.Tag, name.Bytes = ipAddress, addr.Unmap().WithZone("").AsSlice()
	}
	value, err := asn1.Marshal([]asn1.RawValue{name})
	if err != nil {
		return pkix.Extension{}, fmt.Errorf("encode subjectAltName %s: %w", host, err)
	}
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: true, Value: value}, nil
}

// TLSSettings returns the listener's settings: no client certificates, no protocol version below minimum, and for TLS
// 1.2 only the given cipher suites.
func TLSSettings(certificate tls.Certificate, minimum uint16, suites []uint16) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{certificate},
		MinVersion:   minimum,
		CipherSuites: suites,
		NextProtos:   []string{"http/1.1"},
	}
}
