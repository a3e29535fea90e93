package authorities

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	begin   = "-----BEGIN "
	kind    = "CERTIFICATE"
	minBits = 1024 // crypto/rsa rejects signatures of smaller keys
)

// Parse returns the certificates of a text of PEM blocks, and an error for each block that is unusable, with its number
// in the text. A text without a usable certificate is an error that names all of them.
func Parse(text []byte) (pool *x509.CertPool, unusable []error, err error) {
	pool = x509.NewCertPool()
	blocks := bytes.Split(text, []byte(begin))[1:]
	for i, rest := range blocks {
		certificate, err := parse(append([]byte(begin), rest...))
		if err != nil {
			unusable = append(unusable, fmt.Errorf("PEM block %d of %d: %w", i+1, len(blocks), err))
			continue
		}
		pool.AddCert(certificate)
	}
	if len(unusable) == len(blocks) {
		err = errors.New("no usable certificate in PEM form")
		return nil, nil, errors.Join(append([]error{err}, unusable...)...)
	}
	return pool, unusable, nil
}

// parse returns the certificate of a PEM block, or an error that says why it could verify nothing.
func parse(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	switch {
	case block == nil:
		return nil, errors.New("not in PEM form")
	case block.Type != kind && block.Type != "X509 "+kind: // an old name
		return nil, fmt.Errorf("got type %.40q, want %s", block.Type, kind)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if err := checkKey(certificate); err != nil {
		return nil, fmt.Errorf("certificate of %q: %w", certificate.Subject, err)
	}
	return certificate, nil
}

// checkKey returns an error if crypto/x509 and crypto/tls verify no signature by the key of a certificate.
func checkKey(certificate *x509.Certificate) error {
	switch certificate.PublicKeyAlgorithm {
	case x509.UnknownPublicKeyAlgorithm, x509.DSA:
		return errors.New("public key of an unsupported algorithm, want RSA, ECDSA or Ed25519")
	case x509.RSA:
		key, ok := certificate.PublicKey.(*rsa.PublicKey)
		if ok && key.N.BitLen() < minBits {
			return fmt.Errorf("RSA key of %d bits, want at least %d", key.N.BitLen(), minBits)
		}
	}
	return nil
}
