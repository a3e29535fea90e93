package burnin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// output is the file for the report of a test. The nil output discards it.
type output struct{ file *os.File }

// openOutput creates the file with its directories. It is called before a test begins: otherwise a wrong path would
// become known a day later. Devices and files of the kernel are rejected.
func openOutput(path string) (*output, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // the nil output can be used
	}
	target, err := resolve(path)
	if err != nil {
		return nil, fmt.Errorf("create output file %s: %w", path, err)
	}
	for _, name := range []string{path, target} {
		if isKernelFile(name) {
			return nil, fmt.Errorf("create output file %s: %s is a file of the kernel", path, name)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create output file: %w", err)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("create output file %s: not a regular file", path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create output file: %w", err)
	}
	return &output{f}, nil
}

// isKernelFile reports whether a path is in one of the directories where file systems of the kernel are mounted. Some
// of their files are regular ones to stat(2), and a write to them is a command.
func isKernelFile(path string) bool {
	return slices.ContainsFunc([]string{"/dev/", "/proc/", "/sys/"}, func(dir string) bool {
		return strings.HasPrefix(path, dir)
	})
}

// resolve returns a path without symbolic links. The end of the path that does not exist is unchanged.
func resolve(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) {
		dir, err := resolve(filepath.Dir(path))
		return filepath.Join(dir, filepath.Base(path)), err
	}
	return target, err
}

// finish writes the report and closes the file.
func (o *output) finish(report []byte) error {
	if o == nil {
		return nil
	}
	_, err := o.file.Write(report)
	if err := errors.Join(err, o.file.Close()); err != nil {
		return fmt.Errorf("write output file: %w", err)
	}
	return nil
}
