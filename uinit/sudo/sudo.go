//go:build linux

package sudo

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"ironroot/uinit/account"
)

// name is the name of this program by which it runs other programs.
const name = "sudo"

const usage = `usage: sudo [-EHknS] [-u root] [NAME=VALUE...] COMMAND [ARG...]
       sudo [-EHknS] [-u root] -i|-s [COMMAND [ARG...]]
       sudo -l|-v|-h`

// Child runs a program, if this process was started as sudo, and ends. Otherwise it returns.
func Child() {
	if filepath.Base(os.Args[0]) != name {
		return
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run replaces this process by the program. It returns after an error, or if the options ask for no program.
func run(args []string) error {
	r, err := parse(args)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, usage)
	}
	if r.help {
		fmt.Println(usage)
	}
	if r.help {
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("only root can run programs as root")
	}
	if r.check {
		return nil
	}
	root := account.Account{Name: "root", Home: "/root", Shell: cmp.Or(os.Getenv("SHELL"), "/bin/sh")}
	own := []string{"HOME=" + root.Home, "USER=" + root.Name, "LOGNAME=" + root.Name}
	for _, entry := range append(own, r.variables...) {
		variable, value, _ := strings.Cut(entry, "=")
		if err := os.Setenv(variable, value); err != nil {
			return fmt.Errorf("set variable %s: %w", variable, err)
		}
	}
	program, args := root.Shell, []string{filepath.Base(root.Shell)}
	if r.login {
		args[0] = root.LoginShell()
		if err := os.Chdir(root.Home); err != nil { // as sudo(8), it is no reason to fail
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		}
	}
	if len(r.args) > 0 {
		args = r.args
		if program = find(args[0]); program == "" {
			return fmt.Errorf("%s: command not found", args[0])
		}
	}
	return fmt.Errorf("execute %s: %w", program, syscall.Exec(program, args, os.Environ()))
}

// find returns the path of a program, "" if there is none.
func find(program string) string {
	paths := []string{program}
	if !strings.Contains(program, "/") {
		paths = nil
		for dir := range strings.SplitSeq(account.SearchPath, ":") {
			paths = append(paths, filepath.Join(dir, program))
		}
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// request is a parsed command line.
type request struct {
	login, shell bool // -i, -s
	check, help  bool // no program is run: -l or -v, -h
	variables    []string
	args         []string // the program and its arguments; none for a shell
}

// long contains the letters of the options by their long names.
var long = map[string]string{
	"user": "u", "login": "i", "shell": "s", "preserve-env": "E", "set-home": "H", "non-interactive": "n",
	"stdin": "S", "prompt": "p", "reset-timestamp": "k", "list": "l", "validate": "v", "help": "h",
}

// assignment matches a variable before the program.
var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// parse parses the arguments. Options end at the first argument that is none, or at "--".
func parse(args []string) (*request, error) {
	r := &request{}
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		letters, value := args[0][1:], ""
		args = args[1:]
		if letters == "-" {
			break
		}
		if option, ok := strings.CutPrefix(letters, "-"); ok {
			option, value, _ = strings.Cut(option, "=")
			if letters = long[option]; letters == "" {
				return nil, fmt.Errorf("unknown option --%.32q", option)
			}
		}
		for letters != "" {
			letter := letters[0]
			letters = letters[1:]
			if letter == 'u' || letter == 'p' {
				value, letters = cmp.Or(value, letters), ""
				if value == "" && len(args) == 0 {
					return nil, fmt.Errorf("option -%c needs a value", letter)
				}
				if value == "" {
					value, args = args[0], args[1:]
				}
			}
			if err := r.set(letter, value); err != nil {
				return nil, err
			}
		}
	}
	for len(args) > 0 && assignment.MatchString(args[0]) {
		r.variables, args = append(r.variables, args[0]), args[1:]
	}
	r.args = args
	if len(args) == 0 && !r.login && !r.shell && !r.check && !r.help {
		return nil, errors.New("no command given")
	}
	return r, nil
}

// set applies an option.
func (r *request) set(letter byte, value string) error {
	switch letter {
	case 'u':
		if value != "root" && value != "#0" {
			return fmt.Errorf("option -u: user %.64q not supported, only root", value)
		}
	case 'i':
		r.login = true
	case 's':
		r.shell = true
	case 'l', 'v':
		r.check = true
	case 'h':
		r.help = true
	case 'E', 'H', 'n', 'S', 'p', 'k': // without a password and another environment, nothing to do
	default:
		return fmt.Errorf("unknown option -%.4q", string(rune(letter)))
	}
	return nil
}
