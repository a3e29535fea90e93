package iscsi

import (
	"bytes"
	"crypto/fips140"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
)

// CHAP contains the names and secrets of the Challenge Handshake Authentication Protocol (RFC 1994; RFC 7143, 12.1.3).
// With Name "", the initiator is not authenticated.
type CHAP struct {
	Name, Secret string // of the initiator
	// TargetName and TargetSecret belong to the target, which authenticates itself to the initiator. With TargetSecret
	// "", it does not. A TargetName of "" accepts any.
	TargetName, TargetSecret string
}

// String returns the directions of the authentication and the initiator's name, without the secrets.
func (c CHAP) String() string {
	switch {
	case c.mutual():
		return "mutual as " + c.Name
	case c.Name != "":
		return "as " + c.Name
	}
	return "none"
}

func (c CHAP) mutual() bool { return c.TargetSecret != "" }

// The numbers of hash functions in PPP's registry.
const (
	chapMD5    = "5"
	chapSHA256 = "7"
)

// chapAlgorithms returns the hash functions, the preferred one first. MD5 precedes SHA-256 because Debian's target
// means SHA-1 by 7. Without MD5, which FIPS 140-3 does not approve, a target uses SHA-256.
func chapAlgorithms() []string {
	if fips140.Enabled() {
		return []string{chapSHA256}
	}
	return []string{chapMD5, chapSHA256}
}

// maxChallenge limits a challenge or response, in bytes (RFC 7143, 12.1.3).
const maxChallenge = 1024

var (
	errTargetUnknown = errors.New("the target has not proved that it knows its CHAP secret")
	errReflected     = errors.New("the target returned the initiator's own CHAP challenge")
	errSameSecret    = errors.New("CHAP secrets of initiator and target are the same, want different ones")
)

// chap is the state of an authentication.
type chap struct {
	CHAP

	algorithm string // the target's choice
	id        byte
	challenge []byte // the initiator's, to the target
}

// offer returns the algorithms.
func (c *chap) offer() pair {
	return pair{"CHAP_A", strings.Join(chapAlgorithms(), ",")}
}

// answer returns the response to the challenge of a target, and a challenge to it if it must authenticate itself.
func (c *chap) answer(got map[string]string) ([]pair, error) {
	c.algorithm = got["CHAP_A"]
	isOffered := slices.Contains(chapAlgorithms(), c.algorithm)
	switch {
	case !isOffered && fips140.Enabled():
		return nil, fmt.Errorf("got CHAP_A=%.40q, want %s (MD5 is not available in FIPS 140-3 mode)",
			c.algorithm, c.offer().value)
	case !isOffered:
		return nil, fmt.Errorf("got CHAP_A=%.40q, want one of %s", c.algorithm, c.offer().value)
	}
	id, err := strconv.ParseUint(got["CHAP_I"], 0, 8)
	if err != nil {
		return nil, fmt.Errorf("got CHAP_I=%.40q, want a byte", got["CHAP_I"])
	}
	challenge, err := decodeBinary(got["CHAP_C"])
	if err != nil || len(challenge) == 0 {
		return nil, fmt.Errorf("CHAP_C is not 1 to %d bytes in hexadecimal or base64", maxChallenge)
	}
	pairs := []pair{
		{"CHAP_N", c.Name},
		{"CHAP_R", encodeBinary(c.response(byte(id), c.Secret, challenge))},
	}
	if !c.mutual() {
		return pairs, nil
	}
	if c.Secret == c.TargetSecret {
		return nil, errSameSecret
	}
	own := make([]byte, 1+c.newHash().Size())
	if _, err := rand.Read(own); err != nil {
		return nil, err
	}
	if c.id, c.challenge = own[0], own[1:]; bytes.Equal(c.challenge, challenge) {
		return nil, errReflected
	}
	return append(pairs, pair{"CHAP_I", strconv.Itoa(int(c.id))}, pair{"CHAP_C", encodeBinary(c.challenge)}), nil
}

// verify checks the target's response.
func (c *chap) verify(got map[string]string) error {
	if !c.mutual() {
		return nil
	}
	response, err := decodeBinary(got["CHAP_R"])
	if err != nil || subtle.ConstantTimeCompare(response, c.response(c.id, c.TargetSecret, c.challenge)) != 1 {
		return errTargetUnknown
	}
	if name := got["CHAP_N"]; c.TargetName != "" && name != c.TargetName {
		return fmt.Errorf("got CHAP name %.80q of the target, want %q", name, c.TargetName)
	}
	return nil
}

func (c *chap) newHash() hash.Hash {
	if c.algorithm == chapMD5 {
		return md5.New()
	}
	return sha256.New()
}

// response returns the hash of id, secret and challenge (RFC 1994, 4.1).
func (c *chap) response(id byte, secret string, challenge []byte) []byte {
	h := c.newHash()
	h.Write([]byte{id})
	h.Write([]byte(secret))
	h.Write(challenge)
	return h.Sum(nil)
}

func encodeBinary(data []byte) string { return "0x" + hex.EncodeToString(data) }

// decodeBinary decodes a binary value (RFC 7143, 6.1).
func decodeBinary(text string) (data []byte, err error) {
	if len(text) > 2+2*maxChallenge || len(text) < 2 {
		return nil, errors.New("binary value is too long or too short")
	}
	switch prefix, digits := strings.ToLower(text[:2]), text[2:]; prefix {
	case "0x":
		if len(digits)%2 == 1 {
			digits = "0" + digits
		}
		data, err = hex.DecodeString(digits)
	case "0b":
		data, err = base64.StdEncoding.DecodeString(digits)
	default:
		err = errors.New("binary value is neither hexadecimal nor base64")
	}
	if err == nil && len(data) > maxChallenge {
		err = errors.New("binary value is too long")
	}
	return data, err
}
