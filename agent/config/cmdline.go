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
// with two exceptions whose values hold spaces: sshkey="..." and rootpwd="..." reach to the closing quote. Nothing
// inside any other quotes can therefore hide from, or smuggle itself into, what the kernel and other tools see.
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
		if quoted, length, found := quotedValue(line, name); found {
			value, end = quoted, length
		}
		if ok && name != "" {
			params[name] = value
		}
		line = line[end:]
	}
}

// quotedValue returns the quoted value at the beginning of line where name is one that may be quoted, and the length
// of the whole parameter. A quote that is never closed, or is not followed by white space, is an ordinary character.
func quotedValue(line, name string) (value string, length int, found bool) {
	if name != "sshkey" && name != "rootpwd" {
		return "", 0, false
	}
	rest, ok := strings.CutPrefix(line, name+`="`)
	if !ok {
		return "", 0, false
	}
	value, after, ok := strings.Cut(rest, `"`)
	if !ok || strings.TrimLeftFunc(after, unicode.IsSpace) == after && after != "" {
		return "", 0, false
	}
	return value, len(line) - len(after), true
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
