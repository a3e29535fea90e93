//go:build linux

package sudo

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// usage is the text of --help.
const usage = `usage: sudo [-EHnS] [-u USER] [NAME=VALUE...] COMMAND [ARG...]
       sudo [-EHnS] [-u USER] -i|-s [COMMAND [ARG...]]
       sudo -v|-l|-h
`

// request is a parsed command line.
type request struct {
	user                 string
	login, shell         bool // -i, -s
	keep                 bool // -E
	list, validate, help bool
	variables            []string
	args                 []string // the program and its arguments, empty for an interactive shell
}

// flag is an option of the command line.
type flag struct {
	long  string
	value bool             // it has one
	set   func(r *request) // nil if it changes nothing
}

// flags are the options by their letter. The password and the home directory need none.
var flags = map[byte]flag{
	'u': {"user", true, nil},
	'i': {"login", false, func(r *request) { r.login = true }},
	's': {"shell", false, func(r *request) { r.shell = true }},
	'E': {"preserve-env", false, func(r *request) { r.keep = true }},
	'H': {"set-home", false, nil},
	'n': {"non-interactive", false, nil},
	'S': {"stdin", false, nil},
	'k': {"reset-timestamp", false, nil},
	'p': {"prompt", true, nil},
	'l': {"list", false, func(r *request) { r.list = true }},
	'v': {"validate", false, func(r *request) { r.validate = true }},
	'h': {"help", false, func(r *request) { r.help = true }},
}

// assignment matches a variable before the program.
var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// parse parses the arguments. Options end at the first argument that is none, or at "--".
func parse(args []string) (*request, error) {
	r := &request{user: "root"}
	for len(args) > 0 {
		arg := args[0]
		if arg == "--" {
			args = args[1:]
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			break
		}
		args = args[1:]
		var err error
		if long, ok := strings.CutPrefix(arg, "--"); ok {
			args, err = r.long(long, args)
		} else {
			args, err = r.short(arg[1:], args)
		}
		if err != nil {
			return nil, err
		}
	}
	for len(args) > 0 && assignment.MatchString(args[0]) {
		r.variables, args = append(r.variables, args[0]), args[1:]
	}
	r.args = args
	switch {
	case r.login && r.shell:
		return nil, errors.New("options -i and -s exclude each other")
	case len(args) == 0 && !r.login && !r.shell && !r.list && !r.validate && !r.help:
		return nil, errors.New("no command given")
	}
	return r, nil
}

// long applies an option such as --user=NAME. It returns the arguments that follow.
func (r *request) long(text string, rest []string) ([]string, error) {
	long, value, hasValue := strings.Cut(text, "=")
	for letter, f := range flags {
		if f.long != long {
			continue
		}
		if hasValue && !f.value && letter != 'E' { // --preserve-env=LIST preserves all
			return nil, fmt.Errorf("option --%s has no value", long)
		}
		if f.value && !hasValue {
			if len(rest) == 0 {
				return nil, fmt.Errorf("option --%s needs a value", long)
			}
			value, rest = rest[0], rest[1:]
		}
		r.apply(letter, value)
		return rest, nil
	}
	return nil, fmt.Errorf("unknown option --%.32q", long)
}

// short applies options such as -nu NAME. It returns the arguments that follow.
func (r *request) short(letters string, rest []string) ([]string, error) {
	for i := range len(letters) {
		f, ok := flags[letters[i]]
		if !ok {
			return nil, fmt.Errorf("unknown option -%.4q", letters[i:i+1])
		}
		if !f.value {
			r.apply(letters[i], "")
			continue
		}
		value := letters[i+1:]
		if value == "" {
			if len(rest) == 0 {
				return nil, fmt.Errorf("option -%c needs a value", letters[i])
			}
			value, rest = rest[0], rest[1:]
		}
		r.apply(letters[i], value)
		return rest, nil
	}
	return rest, nil
}

func (r *request) apply(letter byte, value string) {
	if letter == 'u' {
		r.user = value
	} else if set := flags[letter].set; set != nil {
		set(r)
	}
}
