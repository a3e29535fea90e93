package checksum

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

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
