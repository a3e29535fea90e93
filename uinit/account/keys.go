package account

import (
	"bytes"
	"crypto/rsa"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// MaxKeysFile limits the size of a file of public keys, in bytes.
const MaxKeysFile = 256 << 10

// Limits of public keys.
const (
	maxKeyLine = 16 << 10 // bytes of a line
	minRSABits = 2048
	maxRSABits = 16384 // the time to verify a signature grows with them
)

// keyTypes are the types of keys that a server accepts. DSA and certificates are not among them.
var keyTypes = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA,
	ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
}

// allowedOptions are the options of a key that are true for every login: the server forwards nothing and runs no
// scripts of users. Ignoring any other option could give more rights than the option allows.
var allowedOptions = []string{"no-port-forwarding", "no-agent-forwarding", "no-x11-forwarding", "no-user-rc", "pty"}

// Key is a public key in the wire format of SSH (RFC 4253, section 6.6).
type Key []byte

// ParseKeys parses a file of public keys in the format of authorized_keys, see sshd(8). The first line that is not a
// valid key is an error, as is a file without keys, or of more than [MaxKeysFile] bytes.
func ParseKeys(text []byte) ([]Key, error) {
	if len(text) > MaxKeysFile {
		return nil, fmt.Errorf("authorized keys: %d bytes, want at most %d", len(text), MaxKeysFile)
	}
	var keys []Key
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key, err := parseKey(line)
		if err != nil {
			return nil, fmt.Errorf("authorized keys: line %d: %w", number, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("authorized keys: no key found")
	}
	return keys, nil
}

// ParseKey parses a single key, which is a line of such a file.
func ParseKey(text string) (Key, error) {
	key, err := parseKey([]byte(strings.TrimSpace(text)))
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	return key, nil
}

func parseKey(line []byte) (Key, error) {
	if len(line) > maxKeyLine {
		return nil, fmt.Errorf("%d bytes, want at most %d", len(line), maxKeyLine)
	}
	if bytes.ContainsAny(line, "\r\n\x00") {
		return nil, errors.New("line breaks inside, want one key")
	}
	if bytes.Contains(line, []byte("PRIVATE KEY")) {
		return nil, errors.New("a private key, want a public one")
	}
	key, _, options, _, err := ssh.ParseAuthorizedKey(line)
	if err != nil { // it can contain parts of the line
		return nil, errors.New("no valid public key")
	}
	for _, option := range options {
		if !slices.Contains(allowedOptions, strings.ToLower(option)) {
			return nil, errors.New("options that restrict the key are not supported")
		}
	}
	if !slices.Contains(keyTypes, key.Type()) {
		return nil, errors.New("type of the key not supported, want Ed25519, ECDSA or RSA, and no certificate")
	}
	if wrapped, ok := key.(ssh.CryptoPublicKey); ok {
		if public, ok := wrapped.CryptoPublicKey().(*rsa.PublicKey); ok {
			if bits := public.N.BitLen(); bits < minRSABits || bits > maxRSABits {
				return nil, fmt.Errorf("RSA key of %d bits, want %d to %d", bits, minRSABits, maxRSABits)
			}
		}
	}
	return key.Marshal(), nil
}
