package license

import (
	"slices"
	"strings"
)

// Copyright is the copyright file of a Debian package in the machine-readable format
// (https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/).
type Copyright struct {
	owner string // name of the package
	files []filesParagraph
	texts map[string]string // of licences, by name
}

// filesParagraph is a paragraph about files of the source package.
type filesParagraph struct {
	patterns []string
	license  string
}

// maxParagraphs limits the paragraphs of a copyright file. The one of Debian's firmware has 400.
const maxParagraphs = 10000

// ParseCopyright parses a copyright file. A file in another format has no licences.
func ParseCopyright(owner string, text []byte) Copyright {
	c := Copyright{owner: owner, texts: map[string]string{}}
	for i, paragraph := range strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n\n") {
		if i == maxParagraphs {
			break
		}
		fields := parseFields(paragraph)
		name, body, _ := strings.Cut(fields["license"], "\n")
		name = strings.Join(strings.Fields(name), " ")
		if name != "" && strings.TrimSpace(body) != "" && c.texts[name] == "" {
			c.texts[name] = plainText(body)
		}
		if patterns := strings.Fields(fields["files"]); len(patterns) > 0 && name != "" {
			c.files = append(c.files, filesParagraph{patterns, name})
		}
	}
	return c
}

// parseFields returns the fields of a paragraph by their names in lower case.
func parseFields(paragraph string) map[string]string {
	fields := map[string]string{}
	name := ""
	for line := range strings.SplitSeq(paragraph, "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"):
			if name != "" {
				fields[name] += "\n" + line
			}
		default:
			before, value, _ := strings.Cut(line, ":")
			name = strings.ToLower(strings.TrimSpace(before))
			fields[name] = value
		}
	}
	return fields
}

// plainText returns the text of a field without its indentation.
func plainText(body string) string {
	lines := strings.Split(strings.Trim(body, "\n"), "\n")
	for i, line := range lines {
		line = strings.TrimPrefix(line, " ")
		if line == "." {
			line = ""
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}

// OfPackage returns the licence of all files of the package, except the packaging.
func (c Copyright) OfPackage() Found {
	var found []Found
	for _, paragraph := range c.files {
		packaging := func(pattern string) bool { return strings.HasPrefix(pattern, "debian/") }
		if !slices.ContainsFunc(paragraph.patterns, func(p string) bool { return !packaging(p) }) {
			continue
		}
		found = append(found, c.expression(paragraph.license))
	}
	return all(found...)
}

// OfFile returns the licence of a file, by its path in the source package. Of the paragraphs that match, the last one
// applies.
func (c Copyright) OfFile(name string) Found {
	for _, paragraph := range slices.Backward(c.files) {
		if slices.ContainsFunc(paragraph.patterns, func(pattern string) bool { return matches(pattern, name) }) {
			return c.expression(paragraph.license)
		}
	}
	return Found{}
}

// matches reports whether a pattern matches a name: "*" and "?" match slashes, too.
func matches(pattern, name string) bool {
	star, mark := -1, 0 // places of the latest "*" in pattern and of what it matches up to in name
	p, n := 0, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p+1 < len(pattern) && pattern[p] == '\\' && pattern[p+1] == name[n]:
			p, n = p+2, n+1
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n] && pattern[p] != '\\'):
			p, n = p+1, n+1
		case star >= 0:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// expression converts a licence of Debian: names, joined by "and" and "or". "and" binds more strongly. Other
// expressions, such as those with commas, become one licence.
func (c Copyright) expression(text string) Found {
	words := strings.Fields(text)
	if strings.Contains(text, ",") || slices.Contains(words, "with") {
		return c.name(text)
	}
	var expression []string
	var result Found
	for i, word := range words {
		if i%2 == 1 {
			if word != "and" && word != "or" {
				return c.name(text)
			}
			expression = append(expression, strings.ToUpper(word))
			continue
		}
		found := c.name(word)
		expression = append(expression, found.Expression)
		result.Licenses = append(result.Licenses, found.Licenses...)
	}
	if len(words)%2 == 0 {
		return c.name(text)
	}
	result.Expression = strings.Join(expression, " ")
	return result
}

// debianNames are licences of SPDX by the names in copyright files, in lower case.
var debianNames = map[string]string{
	"apache-2.0": "Apache-2.0", "artistic-2.0": "Artistic-2.0", "bsd-2-clause": "BSD-2-Clause",
	"bsd-3-clause": "BSD-3-Clause", "cc0-1.0": "CC0-1.0", "cc-by-sa-3.0": "CC-BY-SA-3.0", "expat": "MIT",
	"gpl-1+": "GPL-1.0-or-later", "gpl-2": "GPL-2.0-only", "gpl-2+": "GPL-2.0-or-later", "gpl-2.0": "GPL-2.0-only",
	"gpl-2.0+": "GPL-2.0-or-later", "gpl-3": "GPL-3.0-only", "gpl-3+": "GPL-3.0-or-later", "isc": "ISC",
	"lgpl-2": "LGPL-2.0-only", "lgpl-2+": "LGPL-2.0-or-later", "lgpl-2.1": "LGPL-2.1-only",
	"lgpl-2.1+": "LGPL-2.1-or-later", "lgpl-3": "LGPL-3.0-only", "lgpl-3+": "LGPL-3.0-or-later",
	"mpl-1.1": "MPL-1.1", "mpl-2.0": "MPL-2.0", "zlib": "Zlib",
}

// name returns a licence by its name in the copyright file.
func (c Copyright) name(name string) Found {
	if known := debianNames[strings.ToLower(name)]; known != "" {
		return Found{Expression: known}
	}
	text := c.texts[name]
	if text == "" {
		text = "The copyright file of the Debian package names the licence as: " + name
	}
	return reference(c.owner, name, text)
}
