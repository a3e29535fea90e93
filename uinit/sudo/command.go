//go:build linux

package sudo

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"ironroot/uinit/account"
)

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
