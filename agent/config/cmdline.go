package config

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Params are kernel parameters by name, "ipa-api-url" for example. They can contain secrets, so values are never
// printed.
type Params map[string]string

// ParseCmdline splits a kernel command line at white space into parameters. Words without "=" are ignored. A
// parameter's name ends at the first "=". Of several parameters with one name the last one wins. Quotes are ordinary
// characters, with two exceptions whose values contain spaces: sshkey="..." and rootpwd="..." extend to the closing
// quote, as do "sshkey=..." and "rootpwd=...", the form in which GRUB passes them. Other quotes can therefore neither
// hide a parameter that the kernel sees nor add one.
func ParseCmdline(line string) Params {
	params := Params{}
	for {
		line = strings.TrimLeftFunc(line, unicode.IsSpace)
		if line == "" {
			return params
		}
		end := strings.IndexFunc(line, unicode.IsSpace)
		if end < 0 {
			end = len(line)
		}
		name, value, ok := strings.Cut(line[:end], "=")
		if quotedName, quoted, length, found := quotedParam(line); found {
			name, value, end = quotedName, quoted, length
		}
		if ok && name != "" {
			params[name] = value
		}
		line = line[end:]
	}
}

// quotedParam returns the quoted parameter at the beginning of line, and its length with quotes. found is false if the
// parameter cannot be quoted or is not. A quote that is not closed, or is not followed by white space, is an ordinary
// character.
func quotedParam(line string) (name, value string, length int, found bool) {
	for _, name := range []string{"sshkey", "rootpwd"} {
		for _, opening := range []string{name + `="`, `"` + name + `=`} {
			rest, ok := strings.CutPrefix(line, opening)
			if !ok {
				continue
			}
			value, after, ok := strings.Cut(rest, `"`)
			if ok && (after == "" || strings.TrimLeftFunc(after, unicode.IsSpace) != after) {
				return name, value, len(line) - len(after), true
			}
		}
	}
	return "", "", 0, false
}

// LogValue returns the names only, because values can be secrets.
func (p Params) LogValue() slog.Value { return slog.StringValue(p.String()) }

// String returns the sorted names only, because values can be secrets.
func (p Params) String() string {
	names := slices.Sorted(maps.Keys(p))
	return "parameters " + strings.Join(names, ",")
}

// GoString returns the same as String.
func (p Params) GoString() string { return p.String() }
