// Package newfile writes files that are always complete.
package newfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write is WriteMode for a file that everybody may read.
func Write(name string, data []byte) error { return WriteMode(name, data, 0o644) }

// WriteMode writes a temporary file and renames it, so that a file with the final name is always complete. Its mode
// does not depend on the umask.
func WriteMode(name string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // renamed on success
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
