package config

import (
	"iter"
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
func ParseCmdline(line string) Params { return maps.Collect(AllParams(line)) }

// AllParams yields the name and the value of each parameter of a kernel command line, in order, as [ParseCmdline]
// splits it. A name can occur several times.
func AllParams(line string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimSpace(rest) {
			end := strings.IndexFunc(rest, unicode.IsSpace)
			if end < 0 {
				end = len(rest)
			}
			name, value, ok := strings.Cut(rest[:end], "=")
			if quotedName, quoted, length, found := quotedParam(rest); found {
				name, value, end = quotedName, quoted, length
			}
			if ok && name != "" && !yield(name, value) {
				return
			}
			rest = rest[end:]
		}
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
