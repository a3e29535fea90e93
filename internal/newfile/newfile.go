// Package newfile writes files that are always complete.
package newfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write writes a temporary file and renames it, so that a file with the final name is always complete. Everybody may
// read it.
func Write(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // renamed on success
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
