package signature

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"aead.dev/minisign"

	"ironroot/internal/bounded"
	"ironroot/internal/newfile"
)

// Suffix is the end of the name of a signature. The rest is the name of the signed file.
const Suffix = ".minisig"

// Limits of files, in bytes. Keys have about 200 bytes; minisign limits comments to 9 KiB.
const (
	maxKeyFile   = 4 << 10
	maxPassword  = 4 << 10
	maxSignature = 16 << 10
)

// Signer signs files with a secret key.
type Signer struct{ key minisign.PrivateKey }

// LoadSigner reads a secret key from a file. If the key is encrypted, it calls password.
func LoadSigner(path string, password func() (string, error)) (Signer, error) {
	text, err := bounded.ReadFile(path, maxKeyFile)
	if err != nil {
		return Signer{}, fmt.Errorf("secret key: %w", err)
	}
	s := Signer{}
	if minisign.IsEncrypted(text) {
		secret, err := password()
		if err != nil {
			return Signer{}, fmt.Errorf("secret key %s: password: %w", path, err)
		}
		if s.key, err = minisign.DecryptKey(secret, text); err != nil {
			return Signer{}, fmt.Errorf("secret key %s: wrong password or damaged key: %w", path, err)
		}
	} else if err := s.key.UnmarshalText(text); err != nil {
		return Signer{}, fmt.Errorf("secret key %s: %w", path, err)
	}
	return s, s.test(path)
}

// test returns an error for a key whose halves do not belong together. A signature by such a key reveals it.
func (s Signer) test(path string) error {
	const message = "test"
	reader := minisign.NewReader(strings.NewReader(message))
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return err
	}
	if !reader.Verify(s.public(), reader.SignWithComments(s.key, "", "")) {
		return fmt.Errorf("secret key %s: damaged: its public half does not match", path)
	}
	return nil
}

func (s Signer) public() minisign.PublicKey {
	key, _ := s.key.Public().(minisign.PublicKey) // always of this type
	return key
}

// ValidName reports whether a file of this name can be signed: all its characters are printable.
func ValidName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Sign writes the signature of the file path to path + Suffix.
func (s Signer) Sign(path string) error {
	if err := s.sign(path); err != nil {
		return fmt.Errorf("sign %s: %w", path, err)
	}
	return nil
}

func (s Signer) sign(path string) error {
	name := filepath.Base(path)
	if !ValidName(name) {
		return errors.New("name has characters that are not printable")
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	reader := minisign.NewReader(f)
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return err
	}
	// The comments are those that minisign writes.
	comment := fmt.Sprintf("timestamp:%d\tfile:%s\thashed", time.Now().Unix(), name)
	return newfile.Write(path+Suffix, reader.SignWithComments(s.key, comment, "signature from minisign secret key"))
}

// PublicKey verifies signatures.
type PublicKey struct{ key minisign.PublicKey }

// LoadPublicKey returns a public key: either the key itself in base64, or the path of the file that minisign writes.
func LoadPublicKey(keyOrPath string) (PublicKey, error) {
	var k PublicKey
	if k.key.UnmarshalText([]byte(keyOrPath)) == nil {
		return k, nil
	}
	text, err := bounded.ReadFile(keyOrPath, maxKeyFile)
	if err != nil {
		return k, fmt.Errorf("public key: %w", err)
	}
	if err := k.key.UnmarshalText(bytes.TrimSpace(text)); err != nil {
		return k, fmt.Errorf("public key %s: %w", keyOrPath, err)
	}
	return k, nil
}

// VerifyFile verifies a file with the signature next to it, and copies the content of the file to w.
func (k PublicKey) VerifyFile(path string, w io.Writer) error {
	signature, err := bounded.ReadFile(path+Suffix, maxSignature)
	if err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	if err := k.verify(filepath.Base(path), io.TeeReader(f, w), signature); err != nil {
		return fmt.Errorf("signature of %s: %w", path, err)
	}
	return nil
}

// verify verifies that a signature belongs to the content with the given name.
func (k PublicKey) verify(name string, content io.Reader, text []byte) error {
	var s minisign.Signature
	if err := s.UnmarshalText(text); err != nil {
		return err
	}
	// Base64 can be written in several ways. Only one is accepted, so that each changed byte is detected.
	if canonical, err := s.MarshalText(); err != nil || !bytes.Equal(canonical, text) {
		return errors.New("is not written as by minisign")
	}
	if s.Algorithm != minisign.HashEdDSA {
		return errors.New("made with minisign -l, want one of the hash of the file")
	}
	if s.KeyID != k.key.ID() {
		return fmt.Errorf("made with key %016X, want %016X", s.KeyID, k.key.ID())
	}
	reader := minisign.NewReader(content)
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return err
	}
	if !reader.Verify(k.key, text) {
		return errors.New("does not match the content")
	}
	// Only now the comment is trusted.
	for field := range strings.SplitSeq(s.TrustedComment, "\t") {
		if signed, ok := strings.CutPrefix(field, "file:"); ok {
			if signed != name {
				return fmt.Errorf("is that of a file named %q", signed)
			}
			return nil
		}
	}
	return fmt.Errorf("names no file in its trusted comment %q", s.TrustedComment)
}

// ReadPassword returns the first line of a file.
func ReadPassword(path string) (string, error) {
	text, err := bounded.ReadFile(path, maxPassword)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSuffix(line, "\r"), nil
}
