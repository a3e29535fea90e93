package config

import (
	"fmt"
	"strings"
)

// setting is an entry of a configuration file.
type setting struct{ group, name, value string }

// parseINI returns the settings of a configuration file in their order. It reads the file as oslo.config does. Sections
// are groups. Group names other than DEFAULT become lower-case. Lines that begin with # or ; are comments. Indented
// lines continue the previous value, up to an empty line or a comment that is not indented. Single or double quotes
// around the first line of a value are removed.
//
// Unlike oslo.config, parseINI assigns entries before the first section to DEFAULT. It parses an indented line that
// continues no value as if it were not indented.
func parseINI(text string) ([]setting, error) {
	var settings []setting
	var value []string // the lines of the last setting
	end := func() {
		if value != nil {
			settings[len(settings)-1].value = strings.Join(value, "\n")
		}
		value = nil
	}
	group := defaultGroup
	for number, line := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") {
		indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			end()
			continue
		case indented && value != nil:
			value = append(value, line)
			continue
		}
		end()
		switch line[0] {
		case '#', ';':
		case '[':
			name, ok := strings.CutSuffix(line[1:], "]")
			if !ok || name == "" {
				return nil, fmt.Errorf("line %d: got no name of a section, want [NAME]", number+1)
			}
			if group = name; name != defaultGroup {
				group = strings.ToLower(name)
			}
		default:
			separator := strings.IndexAny(line, "=:")
			if separator <= 0 {
				return nil, fmt.Errorf("line %d: got no name and value, want NAME = VALUE", number+1)
			}
			settings = append(settings, setting{group: group, name: strings.TrimSpace(line[:separator])})
			value = []string{unquote(strings.TrimSpace(line[separator+1:]))}
		}
	}
	end()
	return settings, nil
}

// unquote returns value without the quotes around it.
func unquote(value string) string {
	for _, quote := range []string{`"`, `'`} {
		if strings.HasPrefix(value, quote) && strings.HasSuffix(value, quote) {
			return strings.TrimSuffix(strings.TrimPrefix(value, quote), quote)
		}
	}
	return value
}
