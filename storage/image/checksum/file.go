package checksum

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
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

// line is a line of a checksum file.
type line struct {
	path   string   // as the line spells it, without escapes
	tag    string   // name of the algorithm, "" if the line has none
	digits []string // fields that may be digests of the file
}

// parseLine parses a line without white space around it. heading is the line before it. It returns a line without
// digits if it is of none of these forms:
//
//	DIGITS  path   DIGITS *path    as md5sum and similar tools write them, in text and in binary mode
//	SHA256 (path) = DIGITS         as BSD's tools and "cksum --tag" write them, and OpenSSL's without the spaces
//	path  DIGITS  DIGITS           as RHash writes them
//	SHA256   DIGITS   path         as PowerShell's Get-FileHash writes them
//	DIGITS                         as Windows' certutil writes them, after a heading that ends with "path:"
//
// In a line that begins with a backslash, backslashes and line ends of the path are escaped.
func parseLine(text, heading string) line {
	if strings.HasPrefix(text, "#") {
		return line{}
	}
	text, escaped := strings.CutPrefix(text, `\`)
	l, ok := parseTagged(text)
	if !ok {
		l = parseFields(text, heading)
	}
	if escaped {
		l.path = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r").Replace(l.path)
	}
	return l
}

// parseSection parses "# TAG HASH", which names the algorithm of the lines that follow in a DIGESTS file of Gentoo.
func parseSection(text string) (tag string, ok bool) {
	fields := strings.Fields(text)
	if len(fields) != 3 || fields[0] != "#" || fields[2] != "HASH" {
		return "", false
	}
	return fields[1], true
}

// parseTagged parses "TAG (path) = DIGITS" and "TAG(path)= DIGITS".
func parseTagged(text string) (l line, ok bool) {
	tag, rest, ok := strings.Cut(text, "(")
	end := strings.LastIndex(rest, ")")
	tag = strings.TrimSpace(tag)
	if !ok || end < 0 || tag == "" || strings.ContainsAny(tag, " \t") {
		return line{}, false
	}
	digits, ok := strings.CutPrefix(strings.TrimSpace(rest[end+1:]), "=")
	return line{rest[:end], tag, []string{strings.TrimSpace(digits)}}, ok
}

// parseFields parses the forms in which white space separates path and digests.
func parseFields(text, heading string) line {
	first, rest := cutField(text)
	switch file, isHeading := strings.CutSuffix(heading, ":"); {
	case isHeading && isDigest(strings.ReplaceAll(text, " ", "")): // old versions separate the bytes
		return line{path: strings.TrimSpace(file), digits: []string{strings.ReplaceAll(text, " ", "")}}
	case isDigest(first):
		return line{path: rest, digits: []string{first}}
	}
	if second, path := cutField(rest); isDigest(second) && findTag(first) != nil {
		return line{path, first, []string{second}}
	}
	l := line{path: text}
	for {
		last := l.path[strings.LastIndexAny(l.path, " \t")+1:]
		if last == l.path || !isDigest(last) {
			return l
		}
		l.path = strings.TrimRight(strings.TrimSuffix(l.path, last), " \t")
		l.digits = append(l.digits, last)
	}
}

// cutField cuts the first field from a text.
func cutField(text string) (first, rest string) {
	i := strings.IndexAny(text, " \t")
	if i < 0 {
		return text, ""
	}
	return text[:i], strings.TrimLeft(text[i:], " \t")
}

// isDigest reports whether a field has the length of a digest, and hexadecimal digits only.
func isDigest(field string) bool {
	return slices.ContainsFunc(algorithms, func(a algorithm) bool { return isHex(field, a.digits) })
}

// algorithm returns the algorithm of one of the line's digests, or nil if it is no digest of a file: by the tag or, if
// there is none, by its length.
func (l line) algorithm(digits string, named *algorithm) *algorithm {
	if l.tag == "" {
		return detectAlgorithm(digits, named, isListed)
	}
	a := findTag(l.tag)
	if a == nil || !isHex(digits, a.digits) || a.named && a != named {
		return nil
	}
	return a
}

// findTag returns the algorithm that a tag names, or nil if it is unknown. OpenSSL 3 writes SHA2-256 for SHA-256.
func findTag(tag string) *algorithm {
	tag = strings.TrimPrefix(canonicalName(tag), "sha2_")
	if strings.Trim(tag, "0123456789") == "" {
		tag = "sha" + tag
	}
	return findAlgorithm(tag)
}

// splitPath reports whether a path leads to a file called name. exact reports whether it is the name alone or in the
// current directory; otherwise directory is the text before the name, from the last white space on. A name in
// parentheses between white space also counts.
func splitPath(path, name string) (directory string, exact, ok bool) {
	for _, prefix := range []string{"", "*", "./", `.\`} {
		if path = strings.TrimPrefix(path, prefix); path == name {
			return "", true, true
		}
	}
	if strings.Contains(path+" ", " ("+name+") ") {
		return "", false, true
	}
	before, ok := strings.CutSuffix(path, name)
	directory = before[strings.LastIndexAny(before, " \t")+1:]
	if directory == "*" {
		directory = ""
	}
	return directory, false, ok && (directory == "" || strings.ContainsAny(directory[len(directory)-1:], `/\`))
}

// decode returns the text of a file with lines that end with a line feed. Text of UTF-16 is recognized by its byte
// order mark, which PowerShell writes, or a zero in the first character.
func decode(text []byte) string {
	var order binary.ByteOrder
	switch {
	case len(text) < 2:
	case text[0] == 0xff && text[1] == 0xfe, text[0] != 0 && text[1] == 0:
		order = binary.LittleEndian
	case text[0] == 0xfe && text[1] == 0xff, text[0] == 0 && text[1] != 0:
		order = binary.BigEndian
	}
	if order != nil {
		var units []uint16
		for unit := range slices.Chunk(text[:len(text)&^1], 2) {
			units = append(units, order.Uint16(unit))
		}
		text = []byte(string(utf16.Decode(units)))
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(text))
}

// toUTF8 returns text that is not valid UTF-8 as if it were Latin-1.
func toUTF8(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	runes := make([]rune, len(text))
	for i := range len(text) {
		runes[i] = rune(text[i])
	}
	return string(runes)
}
