package evidence

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

const (
	// MaxBytes limits the bytes of evidence that [Parse] reads.
	MaxBytes = 16 << 20

	maxKeyBytes = 64 << 10

	// signedPrefix keeps a signature of evidence from being one of anything else.
	signedPrefix = "ironroot-erase-evidence-v1\n"

	algorithm = "ed25519"
)

// ErrInvalid is part of the errors of evidence that does not have the form of this version, contradicts itself, or has
// a wrong signature.
var ErrInvalid = errors.New("evidence is not valid")

// Envelope is the content of an evidence file. It has either a signature, or the reason why there is none.
type Envelope struct {
	// Record is a [Record] in the JSON of [Seal]. The signature covers its bytes without white space between tokens.
	Record    json.RawMessage `json:"record"`
	Signature *Signature      `json:"signature"`
	Unsigned  string          `json:"unsigned,omitempty"` // reason
}

// Signature is an Ed25519 signature (RFC 8032) of the text "ironroot-erase-evidence-v1", a line feed, and the record.
type Signature struct {
	Algorithm string `json:"algorithm"`
	Key       string `json:"public_key"` // base64
	Value     string `json:"value"`      // base64
}

// Seal completes a record by its format and category and encodes it. With a key it signs it; otherwise the envelope
// says that it is unsigned, and why. Redact is applied to the texts of the record before that; nil changes nothing.
// The error wraps [ErrInvalid] for a record that contradicts itself.
func Seal(r Record, key ed25519.PrivateKey, unsigned string, redact func(string) string) (Envelope, error) {
	r.Format, r.Version = Format, r.version()
	r.Started, r.Ended = r.Started.UTC(), r.Ended.UTC()
	r, err := normalized(r, redact)
	if err != nil {
		return Envelope{}, err
	}
	r.Sanitization = Classify(r)
	if err := r.check(); err != nil {
		return Envelope{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	data, err := encode(r)
	if err != nil {
		return Envelope{}, fmt.Errorf("encode evidence: %w", err)
	}
	e := Envelope{Record: data}
	if key == nil {
		e.Unsigned = strings.ToValidUTF8(unsigned, "\uFFFD")
		if e.Unsigned == "" {
			e.Unsigned = "no key"
		}
		return e, nil
	}
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return Envelope{}, errors.New("sign evidence: not an Ed25519 key")
	}
	e.Signature = &Signature{
		Algorithm: algorithm, Key: base64.StdEncoding.EncodeToString(public),
		Value: base64.StdEncoding.EncodeToString(ed25519.Sign(key, append([]byte(signedPrefix), data...))),
	}
	return e, nil
}

// texts matches the strings of JSON, keys with their colon.
var texts = regexp.MustCompile(`"(?:[^"\\]|\\.)*":?`)

// fixed are the keys of a record whose values are not redacted: they are words and forms of this package, so that a
// secret can occur in them by chance only.
var fixed = []string{
	"format", "started", "ended", "time", "seed", "source", "outcome", "technique", "pattern", "expected",
	"kind",
}

// normalized returns a record as a reader gets it: bytes that are not UTF-8 are replaced, and its texts redacted.
func normalized(r Record, redact func(string) string) (Record, error) {
	data, err := encode(r)
	if err != nil {
		return Record{}, fmt.Errorf("encode evidence: %w", err)
	}
	key := ""
	data = texts.ReplaceAllFunc(data, func(token []byte) []byte {
		quoted, isKey := bytes.CutSuffix(token, []byte(":"))
		var text string
		if err := json.Unmarshal(quoted, &text); err != nil { // never fails for a string that encode has written
			return token
		}
		if isKey {
			key = text
		}
		if isKey || redact == nil || slices.Contains(fixed, key) {
			return token
		}
		if encoded, err := encode(redact(text)); err == nil { // never fails for a string
			return encoded
		}
		return []byte(`""`)
	})
	var result Record
	if err := json.Unmarshal(data, &result); err != nil {
		return Record{}, fmt.Errorf("encode evidence: %w", err)
	}
	return result, nil
}

// JSON returns the content of the evidence file.
func (e Envelope) JSON() ([]byte, error) {
	compact, err := encode(e)
	if err != nil {
		return nil, fmt.Errorf("encode evidence: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, compact, "", "  "); err != nil {
		return nil, fmt.Errorf("encode evidence: %w", err)
	}
	return append(out.Bytes(), '\n'), nil
}

// encode returns the JSON of a value without white space, and without the escapes for HTML, which other programs would
// not keep.
func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Evidence is an evidence file whose form, signature and consistency are valid.
type Evidence struct {
	Record   Record
	Key      ed25519.PublicKey // of the signature; nil if unsigned
	Unsigned string            // reason
}

// Parse reads the content of an evidence file and checks it: its form, which must match this version exactly except
// for white space, its signature with the key in the file, and the consistency of the record. The caller must check
// whose key it is. Errors wrap [ErrInvalid].
func Parse(data []byte) (Evidence, error) {
	e, err := parse(data)
	if err != nil {
		return Evidence{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return e, nil
}

func parse(data []byte) (Evidence, error) {
	if len(data) > MaxBytes {
		return Evidence{}, fmt.Errorf("got more than %d bytes", MaxBytes)
	}
	var envelope Envelope
	if err := decode(data, &envelope); err != nil {
		return Evidence{}, err
	}
	var version struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(envelope.Record, &version); err != nil {
		return Evidence{}, fmt.Errorf("record: %w", err)
	}
	if version.Format != Format || version.Version < 1 || version.Version > Version {
		return Evidence{}, fmt.Errorf("got format %q version %d, want %q version 1 to %d",
			version.Format, version.Version, Format, Version)
	}
	var e Evidence
	if err := decode(envelope.Record, &e.Record); err != nil {
		return Evidence{}, fmt.Errorf("record: %w", err)
	}
	switch {
	case envelope.Signature != nil && envelope.Unsigned != "":
		return Evidence{}, errors.New("it has a signature and says that it is unsigned")
	case envelope.Signature == nil && envelope.Unsigned == "":
		return Evidence{}, errors.New("it has no signature and does not say that it is unsigned")
	case envelope.Signature == nil:
		e.Unsigned = envelope.Unsigned
	default:
		var err error
		if e.Key, err = envelope.Signature.verify(envelope.Record); err != nil {
			return Evidence{}, err
		}
	}
	return e, e.Record.check()
}

// decode decodes JSON that encode has written. Text that would be encoded differently is an error, except for white
// space: another program could read it differently, for example a key that occurs twice.
func decode(data []byte, value any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the JSON value")
	}
	var got bytes.Buffer
	if err := json.Compact(&got, data); err != nil {
		return err
	}
	want, err := encode(value)
	if err != nil {
		return err
	}
	if !bytes.Equal(got.Bytes(), want) {
		return errors.New("not in the form that this version writes")
	}
	return nil
}

// verify verifies the signature of a record and returns its key.
func (s Signature) verify(record []byte) (ed25519.PublicKey, error) {
	if s.Algorithm != algorithm {
		return nil, fmt.Errorf("signature: got algorithm %q, want %q", s.Algorithm, algorithm)
	}
	key, err := decodeBase64(s.Key)
	if err == nil && len(key) != ed25519.PublicKeySize {
		err = fmt.Errorf("got %d bytes, want %d", len(key), ed25519.PublicKeySize)
	}
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	value, err := decodeBase64(s.Value)
	if err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	message := bytes.NewBufferString(signedPrefix)
	if err := json.Compact(message, record); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if !ed25519.Verify(key, message.Bytes(), value) {
		return nil, errors.New("signature does not match the record")
	}
	return key, nil
}

// decodeBase64 decodes base64 in the form that Seal writes. The decoder ignores line ends.
func decodeBase64(text string) ([]byte, error) {
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	if err == nil && base64.StdEncoding.EncodeToString(data) != text {
		err = errors.New("base64 with line ends")
	}
	return data, err
}

// Fingerprint returns a short name of a public key: the SHA-256 of its 32 bytes.
func Fingerprint(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return "SHA256:" + hex.EncodeToString(sum[:])
}

// ReadPrivateKey reads an Ed25519 key in PEM (PKCS #8, as "openssl genpkey -algorithm ed25519" writes it). Only the
// file's owner may have access to the file. Secret is called with the encoded key before anything else can fail, so
// that it can be redacted. Errors do not contain the file's content.
func ReadPrivateKey(name string, secret func(string)) (ed25519.PrivateKey, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not wait for the writer of a named pipe
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxKeyBytes {
		return nil, fmt.Errorf("read %s: not a regular file of at most %d bytes", name, maxKeyBytes)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("read %s: others have access: got mode %#o, want 0600", name, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyBytes))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("read %s: no PEM block PRIVATE KEY", name)
	}
	if secret != nil {
		secret(base64.StdEncoding.EncodeToString(block.Bytes))
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read %s: not a key in PKCS #8", name)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read %s: got a key of type %T, want Ed25519", name, parsed)
	}
	return key, nil
}

// ReadPublicKey reads an Ed25519 key in PEM, as "openssl pkey -pubout" writes it.
func ReadPublicKey(name string) (ed25519.PublicKey, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, fmt.Errorf("read %s: no PEM block PUBLIC KEY", name)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("read %s: got a key of type %T, want Ed25519", name, parsed)
	}
	return key, nil
}
