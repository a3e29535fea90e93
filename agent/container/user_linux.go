package container

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// maxUserFile limits /etc/passwd and /etc/group of an image, in bytes.
const maxUserFile = 1 << 20

// credential returns the user and group of the program, nil for root. It runs inside of the image.
func (p *plan) credential() (*syscall.Credential, error) {
	name, group, hasGroup := strings.Cut(p.User, ":")
	if name == "" || name == "root" || name == "0" {
		if !hasGroup || group == "root" || group == "0" {
			return nil, nil //nolint:nilnil // the value of SysProcAttr for no change
		}
		name = "0"
	}
	uid, gid, err := lookUser(name)
	if err != nil {
		return nil, err
	}
	if hasGroup {
		if gid, err = lookGroup(group); err != nil {
			return nil, err
		}
	}
	return &syscall.Credential{Uid: uid, Gid: gid}, nil
}

// lookUser returns the number of a user and of its group. A number that the image does not list has the group 0.
func lookUser(name string) (uid, gid uint32, err error) {
	number, numberErr := strconv.ParseUint(name, 10, 31)
	fields, err := lookFile("/etc/passwd", name, numberErr == nil)
	switch {
	case err != nil:
		return 0, 0, err
	case fields == nil && numberErr == nil:
		return uint32(number), 0, nil
	case len(fields) < 4:
		return 0, 0, fmt.Errorf("user %q: not in /etc/passwd of the image", name)
	}
	u, err := strconv.ParseUint(fields[2], 10, 31)
	g, groupErr := strconv.ParseUint(fields[3], 10, 31)
	if err = errors.Join(err, groupErr); err != nil {
		return 0, 0, fmt.Errorf("user %q in /etc/passwd of the image: %w", name, err)
	}
	return uint32(u), uint32(g), nil
}

// lookGroup returns the number of a group.
func lookGroup(name string) (uint32, error) {
	if number, err := strconv.ParseUint(name, 10, 31); err == nil {
		return uint32(number), nil
	}
	fields, err := lookFile("/etc/group", name, false)
	if err != nil {
		return 0, err
	}
	if len(fields) < 3 {
		return 0, fmt.Errorf("group %q: not in /etc/group of the image", name)
	}
	number, err := strconv.ParseUint(fields[2], 10, 31)
	if err != nil {
		return 0, fmt.Errorf("group %q in /etc/group of the image: %w", name, err)
	}
	return uint32(number), nil
}

// lookFile calls findLine on a file. It returns nil if the file does not exist.
func lookFile(file, name string, number bool) ([]string, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return findLine(f, name, number)
}

// findLine returns the fields of the first line for a name, or for a number as the third field; nil if there is none.
func findLine(database io.Reader, name string, number bool) ([]string, error) {
	lines := bufio.NewScanner(io.LimitReader(database, maxUserFile))
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if fields[0] == name || number && len(fields) > 2 && fields[2] == name {
			return fields, nil
		}
	}
	return nil, lines.Err()
}
