package image

import (
	"crypto/md5" //nolint:gosec // Ironic still allows it; the caller decides
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// algorithms are the hashes that images may be checked with, and the number of their hexadecimal digits.
var algorithms = []struct {
	name   string
	digits int
	open   func() hash.Hash
}{
	{"md5", 2 * md5.Size, md5.New},
	{"sha256", 2 * sha256.Size, sha256.New},
	{"sha512", 2 * sha512.Size, sha512.New},
}

// hash returns the hash that c is of, or why there is none.
func (c Checksum) hash() (hash.Hash, error) {
	if c.Algorithm == "" || c.Value == "" {
		return nil, fmt.Errorf("the image has no checksum (algorithm %q, value %q)", c.Algorithm, c.Value)
	}
	for _, a := range algorithms {
		if a.name != strings.ToLower(c.Algorithm) {
			continue
		}
		if !isHex(c.Value, a.digits) {
			return nil, fmt.Errorf("checksum %q: got %d characters, want %d hexadecimal digits for %s", c.Value, len(c.Value), a.digits, a.name)
		}
		return a.open(), nil
	}
	return nil, fmt.Errorf("checksum algorithm %q is not supported, want md5, sha256 or sha512", c.Algorithm)
}

// verify compares c, of an image from url, with the sum of what has arrived.
func (c Checksum) verify(h hash.Hash, url string) error {
	got := hex.EncodeToString(h.Sum(nil))
	if !strings.EqualFold(got, c.Value) {
		return &ChecksumError{URL: url, Algorithm: strings.ToLower(c.Algorithm), Want: strings.ToLower(c.Value), Got: got}
	}
	return nil
}

// algorithmOf finds the algorithm whose sums have the length of value.
func algorithmOf(value string) (string, error) {
	for _, a := range algorithms {
		if isHex(value, a.digits) {
			return a.name, nil
		}
	}
	return "", fmt.Errorf("the algorithm of checksum %q could not be identified: got %d characters, want 32, 64 or 128 hexadecimal digits", clip(value), len(value))
}

func isHex(text string, digits int) bool {
	if len(text) != digits {
		return false
	}
	_, err := hex.DecodeString(text)
	return err == nil
}

// clip shortens foreign text for an error.
func clip(text string) string {
	if len(text) > 140 {
		return text[:140] + "..."
	}
	return text
}
