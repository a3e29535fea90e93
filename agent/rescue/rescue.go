// Package rescue stores what a rescue needs: the hash of the password of the user who logs in, and a marker. The files
// outlive the agent. Their paths are the same as in ironic-python-agent's images.
package rescue

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"ironroot/internal/bounded"
	"ironroot/internal/password"
)

// Paths below the root directory, which is "/" if a caller gives "".
const (
	passwordFile = "etc/ipa-rescue-config/ipa-rescue-password"
	markerFile   = "etc/.rescued"
)

// maxHash limits the size of the password file in bytes.
const maxHash = 4 << 10

// Save stores the hash of the password, and then the marker.
func Save(root string, hash password.Hash) error {
	if err := save(root, hash); err != nil {
		return fmt.Errorf("store rescue password: %w", err)
	}
	return nil
}

func save(root string, hash password.Hash) error {
	dir, err := os.OpenRoot(cmp.Or(root, "/"))
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // only a position
	if err := dir.MkdirAll(path.Dir(passwordFile), 0o755); err != nil {
		return err
	}
	if err := write(dir, passwordFile, hash.Text(), 0o600); err != nil {
		return err
	}
	return write(dir, markerFile, "", 0o644)
}

// write replaces a file. It does not write through a link.
func write(dir *os.Root, name, text string, mode fs.FileMode) error {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// IsMarked reports whether the machine is in a rescue: the agent must not run on it.
func IsMarked(root string) bool {
	_, err := os.Lstat(path.Join("/", root, markerFile))
	return err == nil
}

// Load returns the stored hash.
func Load(root string) (password.Hash, error) {
	name := path.Join("/", root, passwordFile)
	text, err := bounded.ReadFile(name, maxHash)
	if err != nil {
		return password.Hash{}, fmt.Errorf("read rescue password: %w", err)
	}
	hash, err := password.Parse(string(text))
	if err != nil {
		return password.Hash{}, fmt.Errorf("read %s: %w", name, err)
	}
	return hash, nil
}
