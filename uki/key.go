package uki

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"ironroot/internal/bounded"
)

const (
	maxKeyFile   = 64 << 10 // bytes of a file with a key or a certificate
	minKeyBits   = 2048     // UEFI 2.10, section 32.2.4: signatures are RSA-2048 or stronger
	maxSignature = 4 << 10  // bytes of the output of a command that signs
	signTimeout  = 5 * time.Minute
)

// readCertificate reads an X.509 certificate with an RSA key, as PEM or DER. The issuers' certificates follow in the
// file.
func readCertificate(path string) (cert *x509.Certificate, issuers []*x509.Certificate, err error) {
	data, err := bounded.ReadFile(path, maxKeyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate: %w", err)
	}
	der := data
	if blocks := pemBlocks(data, "CERTIFICATE"); len(blocks) > 0 {
		der = bytes.Join(blocks, nil)
	}
	all, err := x509.ParseCertificates(der)
	if err == nil && len(all) == 0 {
		err = errors.New("contains no certificate")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("certificate %s: %w", path, err)
	}
	key, ok := all[0].PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, nil, fmt.Errorf("certificate %s: has a key of type %v, want RSA, as UEFI firmware does",
			path, all[0].PublicKeyAlgorithm)
	}
	if key.N.BitLen() < minKeyBits {
		return nil, nil, fmt.Errorf("certificate %s: has a key of %d bits, want at least %d",
			path, key.N.BitLen(), minKeyBits)
	}
	return all[0], all[1:], nil
}

// readKey reads an RSA key, as PEM (PKCS #8 or PKCS #1) without a passphrase.
func readKey(path string) (*rsa.PrivateKey, error) {
	data, err := bounded.ReadFile(path, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	key, err := parseKey(data)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err) // err contains nothing of the key
	}
	return key, nil
}

func parseKey(data []byte) (*rsa.PrivateKey, error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, errors.New("contains no private key in PEM form")
		}
		switch {
		case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
			return nil, errors.New("is encrypted, which is not supported: decrypt it, or sign by a command")
		case block.Type == "RSA PRIVATE KEY":
			key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
			if err != nil {
				return nil, errors.New("is not a valid RSA key (PKCS #1)")
			}
			return key, nil
		case block.Type == "PRIVATE KEY":
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, errors.New("is not a valid key (PKCS #8)")
			}
			known, ok := key.(*rsa.PrivateKey)
			if !ok {
				return nil, fmt.Errorf("has the type %T, want RSA, as UEFI firmware does", key)
			}
			return known, nil
		}
	}
}

func pemBlocks(data []byte, kind string) [][]byte {
	var found [][]byte
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return found
		}
		if block.Type == kind {
			found = append(found, block.Bytes)
		}
	}
}

// commandSigner signs with a command, for example one that uses a hardware security module.
type commandSigner struct {
	ctx     context.Context // crypto.Signer has no parameter for it
	command string          // for /bin/sh
	public  crypto.PublicKey
}

// Public implements [crypto.Signer].
func (s commandSigner) Public() crypto.PublicKey { return s.public }

// Sign implements [crypto.Signer]. The command gets the digest on its standard input, and in IRONROOT_DIGEST as
// hexadecimal digits. It writes the signature to its standard output.
func (s commandSigner) Sign(_ io.Reader, digest []byte, _ crypto.SignerOpts) ([]byte, error) {
	ctx, cancel := context.WithTimeout(s.ctx, signTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", s.command)
	cmd.Env = append(os.Environ(), "IRONROOT_DIGEST="+hex.EncodeToString(digest))
	cmd.Stdin = bytes.NewReader(digest)
	output := limitedBuffer{limit: maxSignature}
	messages := limitedBuffer{limit: maxSignature}
	cmd.Stdout, cmd.Stderr = &output, &messages
	cmd.WaitDelay = time.Second // children of the shell can keep the pipes open
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("command to sign: %w: %s", err, bytes.TrimSpace(messages.kept))
	}
	if output.full {
		return nil, fmt.Errorf("command to sign: wrote more than %d bytes, want a signature", maxSignature)
	}
	return output.kept, nil
}

// limitedBuffer keeps the first limit bytes.
type limitedBuffer struct {
	kept  []byte
	limit int
	full  bool
}

// Write implements [io.Writer].
func (b *limitedBuffer) Write(p []byte) (int, error) {
	free := b.limit - len(b.kept)
	b.full = b.full || len(p) > free
	b.kept = append(b.kept, p[:min(free, len(p))]...)
	return len(p), nil
}
