// Package printable removes characters from foreign text that would control the terminal of its reader.
package printable

import (
	"strings"
	"unicode"
)

// Text replaces control characters, and those that cannot be printed, by question marks.
func Text(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || !unicode.IsPrint(c) && !unicode.IsSpace(c) {
			return '?'
		}
		return c
	}, text)
}
