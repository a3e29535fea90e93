//go:build linux

// Package sudo runs programs as another user, for members of the group sudo and without a password. It has the options
// of sudo(8) that people and tools such as Ansible use, no configuration, and no log.
//
// It is /init under another name: the file must be setuid root. Whether a user may run programs is decided by the
// groups of the process, which the kernel keeps, so no file needs to be trusted.
package sudo

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"ironroot/uinit/account"
)

// name is the name of this program by which it runs other programs.
const name = "sudo"

// Exit statuses, those of sudo(8) and of shells.
const (
	exitFailed   = 1
	exitNotRun   = 126
	exitNotFound = 127
)

// Child runs a program as another user, if this process was started as sudo, and ends. Otherwise it gives up the
// rights that a setuid file gives, and returns. It must be called first, from the main goroutine.
func Child() {
	if filepath.Base(os.Args[0]) == name {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, run(os.Args[1:]))
		os.Exit(exitFailed)
	}
	if err := drop(); err != nil {
		fmt.Fprintf(os.Stderr, "init: %v\n", err)
		os.Exit(exitFailed)
	}
}

// drop gives up the rights of a setuid or setgid file.
func drop() error {
	uid, gid := os.Getuid(), os.Getgid()
	if uid == os.Geteuid() && gid == os.Getegid() {
		return nil
	}
	if err := errors.Join(syscall.Setresgid(gid, gid, gid), syscall.Setresuid(uid, uid, uid)); err != nil {
		return fmt.Errorf("give up the rights of root: %w", err)
	}
	return nil
}

// usage is the text of --help.
const usage = `usage: sudo [-EHnS] [-u USER] [NAME=VALUE...] COMMAND [ARG...]
       sudo [-EHnS] [-u USER] -i|-s [COMMAND [ARG...]]
       sudo -v|-l|-h
`

// run runs the program. It returns only after an error.
func run(args []string) error {
	r, err := parse(args)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, strings.TrimSpace(usage))
	}
	if r.help {
		fmt.Print(usage)
		os.Exit(0)
	}
	if err := permitted(os.Getuid(), syscall.Getgroups); err != nil {
		return err
	}
	if r.list {
		fmt.Println("any program may be run as any user, without a password")
	}
	if r.list || r.validate {
		os.Exit(0)
	}
	if os.Geteuid() != 0 {
		return errors.New("the rights of root are missing: the file must be setuid root, on a mount without nosuid")
	}
	target, err := account.Lookup("/", r.user)
	if err != nil && r.user == "root" { // without a user database
		target, err = account.Account{Name: "root", Home: "/root", Shell: "/bin/sh"}, nil
	}
	if err != nil {
		return err
	}
	by, err := account.Lookup("/", "#"+strconv.Itoa(os.Getuid()))
	if err != nil {
		by.Name = "#" + strconv.Itoa(os.Getuid())
	}
	by.UID, by.GID = os.Getuid(), os.Getgid()
	c, err := r.command(target, os.Environ(), by)
	if err != nil {
		return err
	}
	return c.exec(target)
}

// permitted returns an error unless the user may run programs as others.
func permitted(uid int, groups func() ([]int, error)) error {
	if uid == 0 {
		return nil
	}
	list, err := groups()
	if err != nil {
		return fmt.Errorf("read groups: %w", err)
	}
	if !slices.Contains(list, account.SudoGroup) {
		return fmt.Errorf("user %d is not in the group sudo (%d)", uid, account.SudoGroup)
	}
	return nil
}

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

// command is a program to execute.
type command struct {
	path string
	args []string
	env  []string
	dir  string // "" = unchanged
}

// kept are the variables of the caller that stay. Those that begin with LC_ do, too.
var kept = []string{"TERM", "COLORTERM", "LANG", "LANGUAGE", "DISPLAY"}

// command returns the program of a request of the user by.
func (r *request) command(target account.Account, environ []string, by account.Account) (*command, error) {
	c := &command{args: r.args}
	if r.login || r.shell {
		c.args = []string{path.Base(target.Shell)}
		if r.login {
			c.args[0] = target.LoginShell()
		}
		if len(r.args) > 0 {
			c.args = append(c.args, "-c", quote(r.args))
		}
		c.path = target.Shell
	} else {
		found, err := find(r.args[0])
		if err != nil {
			return nil, err
		}
		c.path = found
	}
	if r.login {
		c.dir = target.Home
	}
	given := map[string]string{
		"SUDO_USER": by.Name, "SUDO_UID": strconv.Itoa(by.UID), "SUDO_GID": strconv.Itoa(by.GID),
	}
	for _, entry := range target.Environment() {
		variable, value, _ := strings.Cut(entry, "=")
		given[variable] = value
	}
	for _, entry := range environ {
		variable, value, _ := strings.Cut(entry, "=")
		if r.keep || slices.Contains(kept, variable) || strings.HasPrefix(variable, "LC_") {
			if _, ok := given[variable]; !ok {
				given[variable] = value
			}
		}
	}
	for _, entry := range r.variables {
		variable, value, _ := strings.Cut(entry, "=")
		given[variable] = value
	}
	for variable, value := range given {
		c.env = append(c.env, variable+"="+value)
	}
	slices.Sort(c.env)
	return c, nil
}

// quote returns a command line for a shell, in which arguments are words again, as sudo(8) does.
func quote(args []string) string {
	var line strings.Builder
	for i, arg := range args {
		if i > 0 {
			line.WriteByte(' ')
		}
		for _, c := range []byte(arg) {
			lower := c | 0x20
			plain := lower >= 'a' && lower <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("_-$", c) >= 0
			switch {
			case c == '\n': // after a backslash, it would disappear
				line.WriteString("'\n'")
			case plain:
				line.WriteByte(c)
			default:
				line.WriteString("\\" + string([]byte{c}))
			}
		}
	}
	return line.String()
}

// errNotFound is the error about a program that does not exist.
var errNotFound = errors.New("command not found")

// find returns the path of a program. The caller's search path is not used.
func find(program string) (string, error) {
	if strings.Contains(program, "/") {
		return program, nil
	}
	for dir := range strings.SplitSeq(account.SearchPath, ":") {
		full := path.Join(dir, program)
		if info, err := os.Stat(full); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return full, nil
		}
	}
	return "", fmt.Errorf("%s: %w", program, errNotFound)
}

// exec becomes the user and executes the program. It returns an error if it cannot become the user. If the program
// cannot be executed, it ends this process with status 126 or 127.
func (c *command) exec(target account.Account) error {
	runtime.LockOSThread()
	err := errors.Join(syscall.Setgroups(target.Groups), syscall.Setresgid(target.GID, target.GID, target.GID),
		syscall.Setresuid(target.UID, target.UID, target.UID))
	if err != nil {
		return fmt.Errorf("become user %s: %w", target.Name, err)
	}
	if c.dir != "" {
		if err := os.Chdir(c.dir); err != nil { // as sudo(8), it is no reason to fail
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		}
	}
	err = syscall.Exec(c.path, c.args, c.env)
	fmt.Fprintf(os.Stderr, "%s: %s: %v\n", name, c.path, err)
	if errors.Is(err, syscall.ENOENT) {
		os.Exit(exitNotFound)
	}
	os.Exit(exitNotRun)
	return nil
}
