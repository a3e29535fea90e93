package password

import (
	"crypto/fips140"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-crypt/crypt/algorithm"
	"github.com/go-crypt/crypt/algorithm/bcrypt"
	"github.com/go-crypt/crypt/algorithm/scrypt"
	"github.com/go-crypt/crypt/algorithm/shacrypt"
)

// MaxLength is the maximum length of a password in bytes. The time of a check grows with the length.
const MaxLength = 512

// Limits of the parameters of a hash. At these limits a check takes one to two seconds on a slow processor.
const (
	minRounds, maxRounds = 1000, 1_000_000 // SHA-256 and SHA-512
	minCost, maxCost     = 4, 14           // bcrypt: binary logarithm of the rounds
	minBlocks, maxBlocks = 10, 18          // yescrypt: binary logarithm of the number of blocks
	maxBlockSize         = 32              // yescrypt: in units of 128 bytes
	maxMemory            = 64 << 20        // yescrypt: all blocks, in bytes
)

// ErrFormat is wrapped by the errors about hashes that are not supported.
var ErrFormat = errors.New("want a hash in a format of crypt(5): SHA-256 ($5$), SHA-512 ($6$), yescrypt ($y$) or " +
	"bcrypt ($2b$)")

// format is a supported format.
type format struct {
	name   string
	shape  *regexp.Regexp
	check  func(groups []string) error // checks the parameters, the groups of shape
	decode func(text string) (algorithm.Digest, error)
	// notApproved means that the format is not available in FIPS 140-3 mode.
	notApproved bool
}

// shaSalt matches the rounds and the salt of a SHA hash. The salt can contain any printable characters but $ and :.
const shaSalt = `\$(?:rounds=([0-9]{1,9})\$)?[!-#%-9;-~]{1,16}\$`

// formats are the supported formats by their prefix.
var formats = map[string]*format{
	"$5$": {
		name: "SHA-256", shape: regexp.MustCompile(`^\$5` + shaSalt + `[./0-9A-Za-z]{43}$`),
		check: checkRounds, decode: shacrypt.Decode,
	},
	"$6$": {
		name: "SHA-512", shape: regexp.MustCompile(`^\$6` + shaSalt + `[./0-9A-Za-z]{86}$`),
		check: checkRounds, decode: shacrypt.Decode,
	},
	"$y$": {
		name:  "yescrypt",
		shape: regexp.MustCompile(`^\$y\$j([./0-9A-Za-z])([./0-9A-Za-z])\$[./0-9A-Za-z]{2,86}\$[./0-9A-Za-z]{43}$`),
		check: checkBlocks, decode: scrypt.Decode, notApproved: true,
	},
	"$2a$": bcryptFormat, "$2b$": bcryptFormat, "$2y$": bcryptFormat,
}

var bcryptFormat = &format{
	name: "bcrypt", shape: regexp.MustCompile(`^\$2[aby]\$([0-9]{2})\$[./0-9A-Za-z]{53}$`),
	check: checkCost, decode: bcrypt.Decode, notApproved: true,
}

// refused are formats that are not supported, by their prefix, for errors.
var refused = map[string]string{
	"$1$": "MD5", "$md5": "SunMD5", "$sha1": "SHA-1", "$7$": "scrypt", "$gy$": "GOST yescrypt", "$3$": "NT",
	"$2x$": "bcrypt with a sign extension bug", "$2$": "the first bcrypt", "$apr1$": "MD5 of Apache",
	"$argon2": "Argon2", "$pbkdf2": "PBKDF2", "_": "BSDi DES",
}

// Hash is a hash of a password. The zero value matches no password. Printed and logged, it shows its format only.
type Hash struct{ text string }

// Parse checks the text of a hash.
func Parse(text string) (Hash, error) {
	f := formatOf(text)
	if f != nil && f.notApproved && fips140.Enabled() {
		return Hash{}, fmt.Errorf("password hash: format %s not available in FIPS 140-3 mode: want SHA-256 ($5$) or "+
			"SHA-512 ($6$)", f.name)
	}
	if f == nil {
		for prefix, name := range refused {
			if strings.HasPrefix(text, prefix) {
				return Hash{}, fmt.Errorf("password hash: format %s not supported: %w", name, ErrFormat)
			}
		}
		return Hash{}, fmt.Errorf("password hash: format unknown: %w", ErrFormat)
	}
	groups := f.shape.FindStringSubmatch(text)
	if groups == nil {
		return Hash{}, fmt.Errorf("password hash: format %s, but malformed", f.name)
	}
	if err := f.check(groups[1:]); err != nil {
		return Hash{}, fmt.Errorf("password hash: format %s: %w", f.name, err)
	}
	if _, err := f.decode(text); err != nil { // the error can contain parts of the hash
		return Hash{}, fmt.Errorf("password hash: format %s, but malformed", f.name)
	}
	return Hash{text}, nil
}

// New returns a SHA-256 hash of a password with a random salt.
func New(password string) (Hash, error) {
	const rounds = 5000 // the default of crypt(5), which is not part of the text
	if len(password) == 0 || len(password) > MaxLength {
		return Hash{}, fmt.Errorf("password of %d bytes, want 1 to %d", len(password), MaxLength)
	}
	hasher, err := shacrypt.New(shacrypt.WithSHA256(), shacrypt.WithIterations(rounds))
	if err != nil {
		return Hash{}, fmt.Errorf("hash password: %w", err)
	}
	digest, err := hasher.Hash(password)
	if err != nil {
		return Hash{}, fmt.Errorf("hash password: %w", err)
	}
	return Parse(digest.Encode())
}

// formatOf returns the format of a text, nil if it is not supported.
func formatOf(text string) *format {
	const longest = len("$2b$")
	for length := range longest {
		if length++; len(text) >= length && formats[text[:length]] != nil {
			return formats[text[:length]]
		}
	}
	return nil
}

// Matches reports whether the hash is one of this password. The time that it takes depends on the parameters of the
// hash and the length of the password only, see MaxLength.
func (h Hash) Matches(password []byte) bool {
	f := formatOf(h.text)
	if f == nil || len(password) > MaxLength {
		return false
	}
	digest, err := f.decode(h.text)
	return err == nil && digest.MatchBytes(password)
}

// IsZero reports whether the hash is the zero value.
func (h Hash) IsZero() bool { return h.text == "" }

// Text returns the hash as crypt(5) defines it. It is a secret.
func (h Hash) Text() string { return h.text }

// String returns the name of the format.
func (h Hash) String() string {
	if f := formatOf(h.text); f != nil {
		return f.name + " hash"
	}
	return "no hash"
}

// GoString returns the same as String.
func (h Hash) GoString() string { return h.String() }

// LogValue implements [slog.LogValuer].
func (h Hash) LogValue() slog.Value { return slog.StringValue(h.String()) }

// MarshalText implements [encoding.TextMarshaler]. Its result is a secret.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.text), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. An empty text is the zero value.
func (h *Hash) UnmarshalText(text []byte) (err error) {
	*h = Hash{}
	if len(text) > 0 {
		*h, err = Parse(string(text))
	}
	return err
}

func checkRounds(groups []string) error {
	if groups[0] == "" {
		return nil
	}
	return checkRange("rounds", groups[0], minRounds, maxRounds)
}

func checkCost(groups []string) error { return checkRange("cost", groups[0], minCost, maxCost) }

// checkRange checks a decimal number. The number is a parameter of the format and no secret.
func checkRange(name, text string, least, most int) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return fmt.Errorf("%s %s, want %d to %d", name, text, least, most)
	}
	return nil
}

// checkBlocks checks the parameters of yescrypt: two digits to the base of 64, each one less than the number.
func checkBlocks(groups []string) error {
	const digits = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	blocks, size := strings.Index(digits, groups[0])+1, strings.Index(digits, groups[1])+1
	if blocks < minBlocks || blocks > maxBlocks {
		return fmt.Errorf("2^%d blocks, want 2^%d to 2^%d", blocks, minBlocks, maxBlocks)
	}
	if size > maxBlockSize {
		return fmt.Errorf("blocks of %d bytes, want at most %d", 128*size, 128*maxBlockSize)
	}
	if memory := int64(128*size) << blocks; memory > maxMemory {
		return fmt.Errorf("%d bytes of memory, want at most %d", memory, maxMemory)
	}
	return nil
}
