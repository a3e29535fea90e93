package checksum

import (
	"cmp"
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

// Find finds the strongest digest of a file in a checksum file. Of digests of equal length it prefers the digest of the
// algorithm that the caller named, "" for none. A digest that is shorter than the named algorithm's is an error. Find
// reads lines of the forms of [parseLine], also in sections as [parseSection] reads them, or a digest alone in the
// file.
//
// Lines with exactly this name count, also after "./". If there are none, lines with a path that ends with it count.
// Two different digests of one algorithm are an error, and so are digests of files in two directories.
//
// Errors do not repeat the file's content.
func Find(text []byte, name, algorithmName string) (Sum, error) {
	named := findAlgorithm(algorithmName)
	decoded := decode(text)
	content := strings.TrimSpace(decoded)
	if content == "" {
		return Sum{}, errors.New("the file is empty")
	}
	if !strings.ContainsAny(content, " \t\n") {
		a := detectAlgorithm(content, named, isBare)
		if a == nil {
			return Sum{}, fmt.Errorf("the algorithm could not be identified: got %d characters, "+
				"want 32, 64 or 128 hexadecimal digits", len(content))
		}
		if err := checkStrength(a, named); err != nil {
			return Sum{}, err
		}
		return Sum{Algorithm: a.name, Value: content}, nil
	}
	matches := findMatches(decoded, toUTF8(name), named)
	if len(matches) == 0 {
		return Sum{}, fmt.Errorf("no line has a checksum for %q", name)
	}
	best, err := strongest(matches, named)
	if err != nil {
		return Sum{}, fmt.Errorf("%w for %q", err, name)
	}
	if err := checkStrength(best.algorithm, named); err != nil {
		return Sum{}, err
	}
	return Sum{Algorithm: best.algorithm.name, Value: best.digits}, nil
}

// checkStrength returns an error if the digests of an algorithm are shorter than the digests of the named one, which
// may be nil.
func checkStrength(found, named *algorithm) error {
	if named != nil && found.digits < named.digits {
		return fmt.Errorf("the strongest algorithm of the checksum file is %s, want %s", found.name, named.name)
	}
	return nil
}

// match is a digest that a checksum file has for the wanted file.
type match struct {
	directory string // of the file, as the line spells it
	algorithm *algorithm
	digits    string
	line      int // counted from 1
}

// findMatches returns the digests of the file called name: the digests of lines with exactly that name or, if there are
// none, of lines whose path ends with it.
func findMatches(content, name string, named *algorithm) []match {
	var exact, similar []match
	heading, section := "", ""
	for i, text := range strings.Split(content, "\n") {
		text = toUTF8(strings.TrimSpace(text))
		if tag, ok := parseSection(text); ok {
			section = tag
		}
		l := parseLine(text, heading)
		l.tag = cmp.Or(l.tag, section)
		heading = text
		directory, isExact, ok := splitPath(l.path, name)
		if !ok {
			continue
		}
		for _, digits := range l.digits {
			switch m := (match{directory, l.algorithm(digits, named), digits, i + 1}); {
			case m.algorithm == nil:
			case isExact:
				exact = append(exact, m)
			default:
				similar = append(similar, m)
			}
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return similar
}

// strongest returns the digest of the strongest algorithm. Different digests of that algorithm are an error, and so are
// files in other directories without a digest of it.
func strongest(matches []match, named *algorithm) (match, error) {
	best := matches[0]
	for _, m := range matches {
		if stronger(m.algorithm, best.algorithm, named) {
			best = m
		}
	}
	hasBest := map[string]bool{}
	for _, m := range matches {
		if m.algorithm != best.algorithm {
			continue
		}
		if !strings.EqualFold(m.digits, best.digits) {
			return match{}, fmt.Errorf("lines %d and %d have different %s digests", best.line, m.line, m.algorithm.name)
		}
		hasBest[m.directory] = true
	}
	for _, m := range matches {
		if !hasBest[m.directory] {
			return match{}, fmt.Errorf("lines %d and %d have digests of files in different directories",
				best.line, m.line)
		}
	}
	return best, nil
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
