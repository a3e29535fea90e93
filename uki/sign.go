package uki

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io"

	"github.com/foxboron/go-uefi/authenticode"
	"github.com/foxboron/go-uefi/pkcs7"
)

// signer signs images. Without a key it leaves them unsigned.
type signer struct {
	key     crypto.Signer
	cert    *x509.Certificate
	issuers []*x509.Certificate
}

// newSigner returns the signer that the options describe.
func newSigner(ctx context.Context, o Options) (*signer, error) {
	sources := 0
	for _, set := range []bool{o.Key != "", o.SignCommand != "", o.Unsigned} {
		if set {
			sources++
		}
	}
	if sources != 1 {
		return nil, errors.New("want exactly one of a key, a command to sign, and an unsigned image")
	}
	if o.Unsigned {
		if o.Cert != "" {
			return nil, errors.New("an unsigned image has no certificate")
		}
		return &signer{}, nil
	}
	if o.Cert == "" {
		return nil, errors.New("a signature needs the certificate of its key")
	}
	cert, issuers, err := readCertificate(o.Cert)
	if err != nil {
		return nil, err
	}
	s := &signer{cert: cert, issuers: issuers}
	if o.SignCommand != "" {
		s.key = commandSigner{ctx, o.SignCommand, cert.PublicKey}
		return s, nil
	}
	key, err := readKey(o.Key)
	if err != nil {
		return nil, err
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("key %s does not belong to certificate %s", o.Key, o.Cert)
	}
	s.key = key
	return s, nil
}

// sign returns the image with a signature (Windows Authenticode Portable Executable Signature Format).
func (s *signer) sign(image []byte) ([]byte, error) {
	if s.key == nil {
		return image, nil
	}
	p, err := authenticode.Parse(bytes.NewReader(image))
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	if _, err := p.Sign(checkedSigner{s.key}, s.cert, pkcs7.WithAdditionalCerts(s.issuers)); err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	signed := p.Bytes()
	again, err := authenticode.Parse(bytes.NewReader(signed))
	if err != nil {
		return nil, fmt.Errorf("read signed image: %w", err)
	}
	if ok, err := again.Verify(s.cert); err != nil || !ok {
		return nil, fmt.Errorf("verify signed image: valid %t: %w", ok, err)
	}
	return signed, nil
}

// checkedSigner verifies each signature before it is used.
type checkedSigner struct{ crypto.Signer }

// Sign implements [crypto.Signer].
func (s checkedSigner) Sign(random io.Reader, digest []byte, o crypto.SignerOpts) ([]byte, error) {
	signature, err := s.Signer.Sign(random, digest, o)
	if err != nil {
		return nil, err
	}
	public, ok := s.Public().(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("key has the type %T, want RSA", s.Public())
	}
	if len(signature) != public.Size() {
		return nil, fmt.Errorf("signature has %d bytes, want %d", len(signature), public.Size())
	}
	if err := rsa.VerifyPKCS1v15(public, o.HashFunc(), digest, signature); err != nil {
		return nil, errors.New("signature was not made with the key of the certificate, over this SHA-256 digest")
	}
	return signature, nil
}

// imageDigest returns the Authenticode digest of an image, which its signature does not change.
func imageDigest(image []byte, hash crypto.Hash) ([]byte, error) {
	p, err := authenticode.Parse(bytes.NewReader(image))
	if err != nil {
		return nil, err
	}
	return p.Hash(hash), nil
}
