package config

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Params are kernel parameters by name, "ipa-api-url" for example. They may hold secrets and print without values.
type Params map[string]string

// ParseCmdline splits a kernel command line at white space into parameters. Words without "=" are passed over, a
// parameter's name ends at the first "=", and the last of several parameters of one name wins. Quotes mean nothing,
// with two exceptions whose values hold spaces: sshkey="..." and rootpwd="..." reach to the closing quote, and so do
// "sshkey=..." and "rootpwd=...", which is how GRUB hands them on. Nothing inside any other quotes can therefore hide
// from, or smuggle itself into, what the kernel and other tools see.
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

// quotedParam returns the parameter at the beginning of line where it is one of those that may be quoted and is, and
// the length of all of it. A quote that is never closed, or is not followed by white space, is an ordinary character.
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

// LogValue keeps values, which may be secrets, out of logs.
func (p Params) LogValue() slog.Value { return slog.StringValue(p.String()) }

// String returns the sorted names only, as values may be secrets.
func (p Params) String() string {
	names := slices.Sorted(maps.Keys(p))
	return "parameters " + strings.Join(names, ",")
}

// GoString is String.
func (p Params) GoString() string { return p.String() }
