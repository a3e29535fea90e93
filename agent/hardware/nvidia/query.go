package nvidia

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// firmware is mstflint's report about a card or an image.
type firmware struct {
	psid    string
	version string
	running string // version that the card runs, "" if it is the same
}

var (
	psidLine    = regexp.MustCompile(`(?m)^\s*PSID:\s*(\w+)`)
	versionLine = regexp.MustCompile(`(?m)^\s*FW Version:\s*(\d+\.\d+\.\d+)`)
	runningLine = regexp.MustCompile(`(?m)^\s*FW Version\(Running\):\s*(\d+\.\d+\.\d+)`)
)

// parseFirmware parses the output of mstflint query.
func parseFirmware(out string) (firmware, error) {
	find := func(line *regexp.Regexp) string {
		if m := line.FindStringSubmatch(out); m != nil {
			return m[1]
		}
		return ""
	}
	f := firmware{find(psidLine), find(versionLine), find(runningLine)}
	if f.running == f.version {
		f.running = ""
	}
	if f.psid == "" || f.version == "" {
		return f, fmt.Errorf("parse output of mstflint query: got PSID %q, FW Version %q, want both", f.psid, f.version)
	}
	return f, nil
}

// parseParameters parses the output of mstconfig query: the lines after "Configurations:" have a parameter and the
// value that it has from the next start on. Marks of values that were changed, and of those that are read-only, precede
// the name.
func parseParameters(out string) (map[string]string, error) {
	_, table, found := strings.Cut(out, "Configurations:")
	_, table, _ = strings.Cut(table, "\n")
	values := map[string]string{}
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		for len(fields) > 2 && (fields[0] == "*" || fields[0] == "RO" || fields[0] == "*RO") {
			fields = fields[1:]
		}
		if len(fields) >= 2 && parameterForm.MatchString(fields[0]) {
			values[fields[0]] = fields[1]
		}
	}
	if !found || len(values) == 0 {
		return nil, fmt.Errorf("parse output of mstconfig query: no parameters in %.200q", out)
	}
	return values, nil
}

// mentions reports whether a text has name as a whole word.
func mentions(text, name string) bool {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		if word == name {
			return true
		}
	}
	return false
}

var (
	// parameterForm is a parameter: NAME, NAME[I] or NAME[FIRST..LAST].
	parameterForm = regexp.MustCompile(`^(\w+)(?:\[(\d{1,4})(?:\.\.(\d{1,4}))?\])?$`)
	// arrayForm is the value that mstconfig shows for all elements of an array.
	arrayForm = regexp.MustCompile(`^Array\[(\d{1,4})\.\.(\d{1,4})\]$`)
	// namedForm is a value with its name, such as True(1).
	namedForm = regexp.MustCompile(`^(.*)\((\w+)\)$`)
)

// parameter is the name of a parameter, or of elements of an array.
type parameter struct {
	name        string
	isArray     bool
	first, last int // indexes
}

// parseParameter parses the name of a parameter.
func parseParameter(text string) (parameter, bool) {
	m := parameterForm.FindStringSubmatch(text)
	if m == nil {
		return parameter{}, false
	}
	p := parameter{name: m[1], isArray: m[2] != ""}
	if p.isArray {
		p.first, p.last = index(m[2]), index(m[2])
		if m[3] != "" {
			p.last = index(m[3])
		}
	}
	return p, p.first <= p.last
}

// isIn reports whether the firmware has the parameter: value is the text that mstconfig shows for its name, "" for
// nothing.
func (p parameter) isIn(value string) bool {
	if !p.isArray {
		return value != ""
	}
	m := arrayForm.FindStringSubmatch(value)
	return m != nil && index(m[1]) <= p.first && p.last <= index(m[2])
}

// elements returns the names of all elements, or the name of a parameter that is no array.
func (p parameter) elements() []string {
	if !p.isArray {
		return []string{p.name}
	}
	var names []string
	for i := p.first; i <= p.last; i++ {
		names = append(names, fmt.Sprintf("%s[%d]", p.name, i))
	}
	return names
}

// index converts up to four decimal digits.
func index(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		panic(err) // the forms match only digits
	}
	return n
}

// isSet reports whether a value that mstconfig shows, such as 8 or True(1), is the wanted one.
func isSet(shown, wanted string) bool {
	forms := []string{shown}
	if m := namedForm.FindStringSubmatch(shown); m != nil {
		forms = append(forms, m[1], m[2])
	}
	for _, form := range forms {
		if strings.EqualFold(form, wanted) {
			return true
		}
		have, isNumber := number(form)
		if want, ok := number(wanted); ok && isNumber && have == want {
			return true
		}
	}
	return false
}

// number returns the value of a decimal or hexadecimal number.
func number(text string) (uint64, bool) {
	digits, base := text, 10
	if hex, ok := strings.CutPrefix(strings.ToLower(text), "0x"); ok {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 64)
	return n, err == nil
}
