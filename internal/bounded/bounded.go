// Package bounded reads files and streams into memory up to a limit, and fails if there is more.
package bounded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ReadFile returns the content of a file of at most limit bytes. Errors name the file.
func ReadFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return ReadOpen(f, limit)
}

// ReadOpen returns the rest of an open file, at most limit bytes, and does not close it. Errors name the file.
func ReadOpen(f *os.File, limit int64) ([]byte, error) {
	data, err := ReadAll(f, limit)
	if err != nil && !errors.As(err, new(*fs.PathError)) {
		err = fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return data, err
}

// ReadAll returns the rest of a stream, at most limit bytes. With an error it returns no data.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("more than %d bytes", limit)
	}
	return data, nil
}
