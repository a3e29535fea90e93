package checksum

import (
	"crypto/fips140"
	"crypto/md5"  //nolint:gosec // Ironic still allows it
	"crypto/sha1" //nolint:gosec // Ironic still allows it
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"

	"golang.org/x/crypto/blake2b"
	"golang.org/x/crypto/blake2s"
)

// algorithm is a hash with which images can be verified.
type algorithm struct {
	name   string // as Python's hashlib spells it
	digits int    // hexadecimal digits of a digest
	open   func() hash.Hash
	// bare reports whether the length of a digest without a name selects this algorithm.
	bare bool
	// listed reports the same for a line of a checksum file.
	listed bool
	// named reports whether the algorithm is used only if the caller names it.
	named bool
	// notApproved reports whether FIPS 140-3 does not approve the algorithm, or only for a time.
	notApproved bool
}

// algorithms are all known hashes, the strongest first.
var algorithms = []algorithm{
	{name: "sha512", digits: 128, open: sha512.New, bare: true, listed: true},
	{name: "sha3_512", digits: 128, open: func() hash.Hash { return sha3.New512() }},
	{name: "blake2b", digits: 128, open: func() hash.Hash { return must(blake2b.New512(nil)) }, notApproved: true},
	{name: "sha384", digits: 96, open: sha512.New384, listed: true},
	{name: "sha3_384", digits: 96, open: func() hash.Hash { return sha3.New384() }},
	{name: "sha256", digits: 64, open: sha256.New, bare: true, listed: true},
	{name: "sha512_256", digits: 64, open: sha512.New512_256},
	{name: "sha3_256", digits: 64, open: func() hash.Hash { return sha3.New256() }},
	{name: "blake2s", digits: 64, open: func() hash.Hash { return must(blake2s.New256(nil)) }, notApproved: true},
	{name: "sha224", digits: 56, open: sha256.New224, listed: true},
	{name: "sha512_224", digits: 56, open: sha512.New512_224},
	{name: "sha3_224", digits: 56, open: func() hash.Hash { return sha3.New224() }},
	{name: "sha1", digits: 40, open: sha1.New, named: true, notApproved: true},
	{name: "md5", digits: 32, open: md5.New, bare: true, listed: true, notApproved: true},
}

// must returns the hash of a constructor. It panics on an error, which only an invalid key causes.
func must(h hash.Hash, err error) hash.Hash {
	if err != nil {
		panic(err)
	}
	return h
}

// canonicalName returns an algorithm's name as hashlib spells it: sha3_256 for "SHA3-256", sha512_256 for
// "SHA512/256".
func canonicalName(name string) string {
	return strings.NewReplacer("-", "_", "/", "_").Replace(strings.ToLower(strings.TrimSpace(name)))
}

// available reports whether the algorithm may be used: in FIPS 140-3 mode, only approved ones.
func (a *algorithm) available() bool { return !a.notApproved || !fips140.Enabled() }

// findAlgorithm returns the algorithm with that name in any spelling, or nil if it is unknown.
func findAlgorithm(name string) *algorithm {
	name = canonicalName(name)
	for i := range algorithms {
		if algorithms[i].name == name {
			return &algorithms[i]
		}
	}
	return nil
}

// Available reports whether the algorithm of that name can be used: in FIPS 140-3 mode, only the SHA-2 and SHA-3
// families.
func Available(name string) bool {
	a := findAlgorithm(name)
	return a != nil && a.available()
}

// Algorithms returns the names of all algorithms that can be used, the strongest first.
func Algorithms() []string {
	names := make([]string, 0, len(algorithms))
	for _, a := range algorithms {
		if a.available() {
			names = append(names, a.name)
		}
	}
	return names
}

// detectAlgorithm returns the algorithm of a digest without a name: preferred, which may be nil, if the length fits,
// and otherwise the first one of that length for which isAllowed returns true. It returns nil if there is none.
func detectAlgorithm(value string, preferred *algorithm, isAllowed func(algorithm) bool) *algorithm {
	if preferred != nil && isHex(value, preferred.digits) {
		return preferred
	}
	for i, a := range algorithms {
		if isAllowed(a) && isHex(value, a.digits) {
			return &algorithms[i]
		}
	}
	return nil
}

func isBare(a algorithm) bool   { return a.bare }
func isListed(a algorithm) bool { return a.listed }

// Hash returns a hash of c's algorithm. The error does not repeat the value.
func (c Sum) Hash() (hash.Hash, error) {
	if c.Algorithm == "" || c.Value == "" {
		return nil, fmt.Errorf("the image has no checksum (algorithm %q, %d digits)", c.Algorithm, len(c.Value))
	}
	a := findAlgorithm(c.Algorithm)
	if a == nil {
		return nil, fmt.Errorf("checksum algorithm %q is not supported, want one of %s",
			c.Algorithm, strings.Join(Algorithms(), ", "))
	}
	if !a.available() {
		return nil, fmt.Errorf("checksum algorithm %q is not available in FIPS 140-3 mode (fips=1), want one of %s",
			a.name, strings.Join(Algorithms(), ", "))
	}
	if !isHex(c.Value, a.digits) {
		return nil, fmt.Errorf("checksum: got %d characters, want %d hexadecimal digits for %s",
			len(c.Value), a.digits, a.name)
	}
	return a.open(), nil
}

// Verify compares c, of an image from url, with the sum of what has arrived.
func (c Sum) Verify(h hash.Hash, url string) error {
	got := hex.EncodeToString(h.Sum(nil))
	if strings.EqualFold(got, c.Value) {
		return nil
	}
	want := strings.ToLower(c.Value)
	if c.File != "" {
		want = "the digest in " + c.File // fetched content does not appear in errors
	}
	return &MismatchError{URL: url, Algorithm: canonicalName(c.Algorithm), Want: want, Got: got}
}

func isHex(text string, digits int) bool {
	if len(text) != digits {
		return false
	}
	_, err := hex.DecodeString(text)
	return err == nil
}

// Sum is the checksum of a file.
type Sum struct {
	Algorithm string // one of Algorithms
	Value     string // hexadecimal digits, in either case
	File      string // URL of the checksum file that contained Value, without credentials and query; may be empty
}

// MismatchError means that a file has another checksum than was expected.
type MismatchError struct {
	URL       string // without credentials and query
	Algorithm string
	Want, Got string // hexadecimal
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("image %s has the wrong checksum: got %s %s, want %s", e.URL, e.Algorithm, e.Got, e.Want)
}
