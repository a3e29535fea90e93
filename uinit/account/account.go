package account

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"

	"ironroot/internal/password"
)

// RescueName is the name with which the user of a rescue logs in.
const RescueName = "rescue"

// Account is a user who may log in. The processes of every account are root's.
type Account struct {
	Name  string        `json:"name"`
	Hash  password.Hash `json:"hash"` // of the password; the zero value matches none
	Keys  []Key         `json:"keys,omitempty"`
	Home  string        `json:"home"`
	Shell string        `json:"shell"`
	// Root is the root directory of the user's processes, "" for the ramdisk's. Home and Shell are below it.
	Root string `json:"root,omitempty"`
}

// Root returns the account of the administrator, who logs in with a password if hash is not zero, and with any of keys.
func Root(hash password.Hash, keys []Key, shell string) Account {
	return Account{Name: "root", Hash: hash, Keys: keys, Home: "/root", Shell: shell}
}

// Rescue returns the account of the user of a rescue. Its processes run in the directory root.
func Rescue(hash password.Hash, shell, root string) Account {
	return Account{Name: RescueName, Hash: hash, Home: "/home/" + RescueName, Shell: shell, Root: root}
}

// validName matches names of users that every tool accepts.
var validName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

// check returns an error about an account that no process can be started for.
func (a *Account) check() error {
	if !validName.MatchString(a.Name) {
		return errors.New("account: invalid name, want lower-case letters, digits, _ and -, at most 32")
	}
	for _, name := range []string{a.Home, a.Shell} {
		if !path.IsAbs(name) {
			return fmt.Errorf("account %s: path %q of home directory or shell, want an absolute one", a.Name, name)
		}
	}
	if a.Root != "" && !path.IsAbs(a.Root) {
		return fmt.Errorf("account %s: root directory %q, want an absolute path", a.Name, a.Root)
	}
	return nil
}

// MakeHome creates the home directory below the account's root directory if it is missing.
func (a *Account) MakeHome() error {
	dir, err := os.OpenRoot(cmp.Or(a.Root, "/"))
	if err != nil {
		return fmt.Errorf("create home directory: %w", err)
	}
	defer dir.Close() //nolint:errcheck // only a position
	home := path.Join(".", a.Home)
	if _, err := dir.Stat(home); err == nil {
		return nil
	}
	if err := errors.Join(dir.MkdirAll(home, 0o755), dir.Chmod(home, 0o700)); err != nil {
		return fmt.Errorf("create home directory: %w", err)
	}
	return nil
}

// List contains all accounts of the ramdisk.
type List []Account

// maxAccounts limits the number of accounts of a list.
const maxAccounts = 16

// Check returns an error if an account is invalid or two have the same name.
func (l List) Check() error {
	if len(l) > maxAccounts {
		return fmt.Errorf("%d accounts, want at most %d", len(l), maxAccounts)
	}
	seen := map[string]bool{}
	for i := range l {
		if err := l[i].check(); err != nil {
			return err
		}
		if seen[l[i].Name] {
			return fmt.Errorf("account %s: listed twice", l[i].Name)
		}
		seen[l[i].Name] = true
	}
	return nil
}

// Find returns the account of a user.
func (l List) Find(name string) (Account, bool) {
	at := slices.IndexFunc(l, func(a Account) bool { return a.Name == name })
	if at < 0 {
		return Account{}, false
	}
	return l[at], true
}

// HasPasswords reports whether any user can log in with a password.
func (l List) HasPasswords() bool {
	return slices.ContainsFunc(l, func(a Account) bool { return !a.Hash.IsZero() })
}

// HasKeys reports whether any user can log in with a key.
func (l List) HasKeys() bool {
	return slices.ContainsFunc(l, func(a Account) bool { return len(a.Keys) > 0 })
}

// MatchesPassword reports whether the user has this password. For names without an account or a password, the password
// is checked against a hash of another account, so that the time of the check does not show which users exist.
func (l List) MatchesPassword(name string, given []byte) bool {
	at := slices.IndexFunc(l, func(a Account) bool { return a.Name == name && !a.Hash.IsZero() })
	known := at >= 0
	if !known {
		if at = slices.IndexFunc(l, func(a Account) bool { return !a.Hash.IsZero() }); at < 0 {
			return false
		}
	}
	return l[at].Hash.Matches(given) && known
}

// HasKey reports whether the user may log in with this public key, which is in the wire format of SSH.
func (l List) HasKey(name string, key []byte) bool {
	a, _ := l.Find(name)
	return slices.ContainsFunc(a.Keys, func(k Key) bool { return string(k) == string(key) })
}
