package iso

import (
	"fmt"
	"strings"
)

// isolinuxConfig starts the kernel without a prompt. The serial port shows errors of the loader.
func isolinuxConfig(cmdline string) string {
	return fmt.Sprintf(`SERIAL 0 115200
DEFAULT boot
PROMPT 0
LABEL boot
  KERNEL /vmlinuz
  APPEND initrd=/initrd %s
`, cmdline)
}

// grubConfig does the same for GRUB.
func grubConfig(cmdline string) string {
	words := grubWords(cmdline)
	for i, word := range words {
		words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return fmt.Sprintf(`set timeout=0
set default=0
menuentry 'boot' {
  linux /vmlinuz %s
  initrd /initrd
}
`, strings.Join(words, " "))
}

// grubWords splits a kernel command line at spaces outside of double quotes, and removes the quotes: GRUB quotes a
// word with spaces itself, and would make a quote within a word part of its value.
func grubWords(cmdline string) []string {
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
