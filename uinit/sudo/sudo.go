//go:build linux

package sudo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
