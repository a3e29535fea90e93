package account

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"ironroot/internal/bounded"
)

// Paths of the user database below a root directory.
const (
	passwdFile = "etc/passwd"
	groupFile  = "etc/group"
)

// maxDatabase limits a file of the user database in bytes.
const maxDatabase = 1 << 20

// Install adds the accounts to the user database below the directory root, and creates their home directories where
// they are missing. Programs find the names of users there; it contains no hashes. Lines of other users and groups stay
// as they are.
func Install(root string, accounts List) error {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return fmt.Errorf("install accounts: %w", err)
	}
	defer dir.Close() //nolint:errcheck // only a position
	for _, a := range accounts {
		if err := install(dir, a); err != nil {
			return fmt.Errorf("install account %s in %s: %w", a.Name, root, err)
		}
	}
	return nil
}

func install(dir *os.Root, a Account) error {
	if err := a.check(); err != nil {
		return err
	}
	if err := dir.MkdirAll("etc", 0o755); err != nil {
		return err
	}
	err := edit(dir, passwdFile, func(lines []string) []string {
		line := fmt.Sprintf("%s:x:%d:%d:%s:%s:%s", a.Name, a.UID, a.GID, a.Name, a.Home, a.Shell)
		return replace(lines, a.Name, line)
	})
	if err != nil {
		return err
	}
	err = edit(dir, groupFile, func(lines []string) []string {
		if !slices.ContainsFunc(lines, func(line string) bool { return hasNumber(line, a.GID) }) {
			lines = replace(lines, a.Name, fmt.Sprintf("%s:x:%d:", a.Name, a.GID))
		}
		for _, group := range a.Groups {
			lines = addMember(lines, group, a.Name)
		}
		return lines
	})
	if err != nil {
		return err
	}
	home := path.Join(".", a.Home)
	if _, err := dir.Stat(home); err == nil {
		return nil
	}
	if err := dir.MkdirAll(home, 0o755); err != nil {
		return err
	}
	return errors.Join(dir.Chown(home, a.UID, a.GID), dir.Chmod(home, 0o700))
}

// edit replaces the lines of a file of the user database, which need not exist.
func edit(dir *os.Root, name string, change func(lines []string) []string) error {
	text, err := readDatabase(dir, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines := change(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return line == "" }))
	temporary := name + ".new"
	if err := dir.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := dir.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(lines, "\n") + "\n")
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return dir.Rename(temporary, name)
}

// readDatabase reads a file of the user database.
func readDatabase(dir *os.Root, name string) (string, error) {
	f, err := dir.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := bounded.ReadOpen(f, maxDatabase)
	return string(text), err
}

// replace replaces the line that begins with a name, or adds the line.
func replace(lines []string, name, line string) []string {
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+":") })
	if at < 0 {
		return append(lines, line)
	}
	lines[at] = line
	return lines
}

// hasNumber reports whether a line of the group file is that of a group.
func hasNumber(line string, group int) bool {
	fields := strings.Split(line, ":")
	return len(fields) == 4 && fields[2] == strconv.Itoa(group)
}

// addMember adds a user to a group, which is created if there is none with that number.
func addMember(lines []string, group int, user string) []string {
	at := slices.IndexFunc(lines, func(line string) bool { return hasNumber(line, group) })
	if at < 0 {
		name := "group" + strconv.Itoa(group)
		if group == SudoGroup {
			name = "sudo"
		}
		return append(lines, fmt.Sprintf("%s:x:%d:%s", name, group, user))
	}
	head, list := lines[at][:strings.LastIndex(lines[at], ":")+1], lines[at][strings.LastIndex(lines[at], ":")+1:]
	members := slices.DeleteFunc(strings.Split(list, ","), func(member string) bool { return member == "" })
	if !slices.Contains(members, user) {
		members = append(members, user)
	}
	lines[at] = head + strings.Join(members, ",")
	return lines
}

// Lookup returns the entry of a user in the user database below the directory root. The user is a name, or # and a
// number. Hash, Keys and Root of the result are empty.
func Lookup(root, user string) (Account, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return Account{}, fmt.Errorf("look up user: %w", err)
	}
	defer dir.Close() //nolint:errcheck // only a position
	text, err := readDatabase(dir, passwdFile)
	if err != nil {
		return Account{}, fmt.Errorf("look up user: %w", err)
	}
	a, ok := lookup(text, user)
	if !ok {
		return Account{}, fmt.Errorf("unknown user %q", user)
	}
	group, err := readDatabase(dir, groupFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Account{}, fmt.Errorf("look up groups: %w", err)
	}
	a.Groups = groupsOf(group, a.Name)
	return a, nil
}

// lookup returns the first valid entry of a user. Lines that are not entries are ignored.
func lookup(text, user string) (Account, bool) {
	number, byNumber := strings.CutPrefix(user, "#")
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(fields) != 7 || (byNumber && fields[2] != number) || (!byNumber && fields[0] != user) {
			continue
		}
		uid, uidErr := strconv.Atoi(fields[2])
		gid, gidErr := strconv.Atoi(fields[3])
		a := Account{Name: fields[0], UID: uid, GID: gid, Home: fields[5], Shell: fields[6]}
		if a.Shell == "" {
			a.Shell = "/bin/sh" // see passwd(5)
		}
		if uidErr == nil && gidErr == nil && a.check() == nil {
			return a, true
		}
	}
	return Account{}, false
}

// maxGroups is the kernel's limit of the supplementary groups of a process.
const maxGroups = 1 << 16

// groupsOf returns the numbers of the groups that list a user.
func groupsOf(text, user string) []int {
	var groups []int
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(fields) != 4 || !slices.Contains(strings.Split(fields[3], ","), user) {
			continue
		}
		number, err := strconv.Atoi(fields[2])
		if err == nil && number >= 0 && number <= maxID && len(groups) < maxGroups {
			groups = append(groups, number)
		}
	}
	return groups
}
