package checksum

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Parse returns the checksum with these hexadecimal digits. If algorithmName is empty or unknown, the number of
// digits selects the algorithm.
func Parse(value, algorithmName string) (Sum, error) {
	if named := findAlgorithm(algorithmName); named != nil {
		return Sum{Algorithm: named.name, Value: value}, nil
	}
	a := detectAlgorithm(value, nil, isBare)
	if a == nil {
		return Sum{}, fmt.Errorf("the algorithm of the checksum could not be identified: got %d characters, "+
			"want 32, 64 or 128 hexadecimal digits", len(value))
	}
	return Sum{Algorithm: a.name, Value: value}, nil
}

// Find finds the strongest digest of a file in a checksum file. Of digests of equal length it prefers that of the
// algorithm that the caller named, "" for none. A digest that is shorter than those of that algorithm is an error. Find
// reads these forms:
//
//	DIGITS                         alone in the file
//	DIGITS  name   DIGITS *name    as md5sum and similar tools write them, in text and in binary mode
//	SHA256 (name) = DIGITS         as BSD's tools and "cksum --tag" write them, and OpenSSL's without the spaces
//
// Errors do not repeat the file's content.
func Find(text []byte, name, algorithmName string) (Sum, error) {
	named := findAlgorithm(algorithmName)
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return Sum{}, errors.New("the file is empty")
	}
	if !bytes.ContainsAny(text, " \t\r\n") {
		a := detectAlgorithm(string(text), named, isBare)
		if a == nil {
			return Sum{}, fmt.Errorf("the algorithm could not be identified: got %d characters, "+
				"want 32, 64 or 128 hexadecimal digits", len(text))
		}
		if err := checkStrength(a, named); err != nil {
			return Sum{}, err
		}
		return Sum{Algorithm: a.name, Value: string(text)}, nil
	}
	var best Sum
	var found *algorithm
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for lines.Scan() {
		a, digits := parseChecksumLine(strings.TrimSpace(lines.Text()), name, named)
		if a == nil || found != nil && !stronger(a, found, named) {
			continue
		}
		best, found = Sum{Algorithm: a.name, Value: digits}, a
	}
	if err := lines.Err(); err != nil {
		return Sum{}, err
	}
	if found == nil {
		return Sum{}, fmt.Errorf("no line has a checksum for %q", name)
	}
	if err := checkStrength(found, named); err != nil {
		return Sum{}, err
	}
	return best, nil
}

// checkStrength returns an error if the digests of an algorithm are shorter than those of the named one, which may be
// nil.
func checkStrength(found, named *algorithm) error {
	if named != nil && found.digits < named.digits {
		return fmt.Errorf("the strongest algorithm of the checksum file is %s, want %s", found.name, named.name)
	}
	return nil
}

// stronger reports whether a digest of algorithm a is preferred to one of b.
func stronger(a, b, named *algorithm) bool {
	if a.available() != b.available() {
		return a.available()
	}
	if a.digits != b.digits {
		return a.digits > b.digits
	}
	return a == named && b != named
}

// parseChecksumLine returns the digest that a line has for the file called name, and its algorithm. The algorithm is
// nil if the line has none.
func parseChecksumLine(line, name string, named *algorithm) (*algorithm, string) {
	if strings.HasPrefix(line, "#") {
		return nil, ""
	}
	if tag, digits, ok := parseTagged(line, name); ok {
		a := findAlgorithm(tag)
		if a == nil || !isHex(digits, a.digits) || a.named && a != named {
			return nil, ""
		}
		return a, digits
	}
	if !namesFile(line, name) {
		return nil, ""
	}
	fields := strings.Fields(line)
	for _, digits := range []string{fields[0], fields[len(fields)-1]} {
		if a := detectAlgorithm(digits, named, isListed); a != nil {
			return a, digits
		}
	}
	return nil, ""
}

// parseTagged reads "TAG (name) = DIGITS" and "TAG(name)= DIGITS".
func parseTagged(line, name string) (tag, digits string, ok bool) {
	tag, rest, ok := strings.Cut(line, "("+name+")")
	if !ok {
		return "", "", false
	}
	tag = strings.TrimSpace(tag)
	digits, ok = strings.CutPrefix(strings.TrimSpace(rest), "=")
	if !ok || tag == "" || strings.ContainsAny(tag, " \t") {
		return "", "", false
	}
	tag = strings.TrimPrefix(canonicalName(tag), "sha2_") // OpenSSL 3 writes SHA2-256
	if strings.Trim(tag, "0123456789") == "" {
		tag = "sha" + tag
	}
	return tag, strings.TrimSpace(digits), true
}

// namesFile reports whether a line of a checksum file names the file called name.
func namesFile(line, name string) bool {
	if strings.Contains(line, " ("+name+") ") {
		return true
	}
	rest, ok := strings.CutSuffix(line, name)
	rest = strings.TrimSuffix(rest, "*")
	return ok && rest != strings.TrimRight(rest, " \t")
}
