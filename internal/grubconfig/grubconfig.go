// Package grubconfig writes configurations of GRUB (https://www.gnu.org/software/grub/manual/grub/, chapter 6).
package grubconfig

import (
	"fmt"
	"strings"
)

// Boot returns a configuration that starts a kernel without a menu. kernel and initramfs are paths in GRUB's syntax,
// without spaces.
func Boot(kernel, initramfs, cmdline string) string {
	words := split(cmdline)
	for i, word := range words {
		words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return fmt.Sprintf(`set timeout=0
set default=0
menuentry 'boot' {
  linux %s %s
  initrd %s
}
`, kernel, strings.Join(words, " "), initramfs)
}

// split splits a kernel command line at spaces outside of double quotes, and removes the quotes: GRUB quotes a
// word with spaces itself, and would make a quote within a word part of its value.
func split(cmdline string) []string {
	var words []string
	var word strings.Builder
	inWord, quoted := false, false
	for _, c := range cmdline {
		switch {
		case c == '"':
			quoted, inWord = !quoted, true
		case c == ' ' && !quoted:
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words
}
