package external

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ErrNoTools is the error of FindTools if no manager root has the programs.
var ErrNoTools = errors.New("not in a manager root of this image")

// Tools are programs of a manager root. Each run has the root and the confinement of a manager.
type Tools struct {
	root  string
	paths map[string]string // by name
}

// FindTools looks for programs in the manager roots of a directory, in the order of their names, and returns the
// programs of the first root that has all of them. The directory must be on the root file system; "" has no roots.
func FindTools(ctx context.Context, dir string, names ...string) (*Tools, error) {
	var entries []os.DirEntry
	if dir != "" {
		var err error
		if entries, err = os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read manager roots: %w", err)
		}
	}
	reasons := []error{fmt.Errorf("programs %s: %w", strings.Join(names, ", "), ErrNoTools)}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		paths, err := programsOf(ctx, path, names)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return paths[name] != "" })
		switch {
		case err != nil:
			reasons = append(reasons, fmt.Errorf("%s: %w", path, err))
		case len(missing) == 0:
			return &Tools{path, paths}, nil
		case len(missing) < len(names):
			reasons = append(reasons, fmt.Errorf("%s lacks %s", path, strings.Join(missing, ", ")))
		}
	}
	return nil, joinLine(reasons)
}

// joinLine returns errors as one, in one line.
func joinLine(errs []error) error {
	all := errs[0]
	for _, err := range errs[1:] {
		all = fmt.Errorf("%w; %w", all, err)
	}
	return all
}

// programsOf mounts a root and returns the paths of the programs that it has, by name.
func programsOf(ctx context.Context, path string, names []string) (map[string]string, error) {
	if err := checkRoot(path); err != nil {
		return nil, err
	}
	output, err := run(ctx, program{Root: path, Programs: names}, rootTimeout)
	if err != nil {
		return nil, fmt.Errorf("find programs: %w", err)
	}
	var paths map[string]string
	if err := json.Unmarshal(output, &paths); err != nil {
		return nil, fmt.Errorf("parse list of programs: %w", err)
	}
	return paths, nil
}

// Run runs a program of the root to its end and returns its standard output, at most 1 MiB, without space at its ends.
// argv are its name and arguments. input, if not nil, is its standard input. After the timeout, or when ctx ends, the
// program is killed.
func (t *Tools) Run(ctx context.Context, input *os.File, timeout time.Duration, argv ...string) ([]byte, error) {
	p, err := t.program(input, argv)
	if err != nil {
		return nil, err
	}
	output, err := run(ctx, p, timeout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return output, nil
}

// RunToEnd is Run for a program that must not be killed, because it leaves hardware unusable then: there is no time
// limit, and what exceeds 1 MiB of the output is discarded.
func (t *Tools) RunToEnd(input *os.File, argv ...string) ([]byte, error) {
	p, err := t.program(input, argv)
	if err != nil {
		return nil, err
	}
	output, err := runToEnd(p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return output, nil
}

func (t *Tools) program(input *os.File, argv []string) (program, error) {
	path := t.paths[argv[0]]
	if path == "" {
		return program{}, fmt.Errorf("program %s: %w", argv[0], ErrNoTools)
	}
	return program{Root: t.root, Argv: append([]string{path}, argv[1:]...), input: input}, nil
}

// printPrograms prints the paths of the programs that are in the directories of PATH, by name, as JSON. It runs in the
// root.
func printPrograms(out io.Writer, names []string) error {
	paths := map[string]string{}
	for _, name := range names {
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			path := filepath.Join(dir, name)
			info, err := os.Stat(path)
			if err == nil && info.Mode().IsRegular() && info.Mode()&0o100 != 0 {
				paths[name] = path
				break
			}
		}
	}
	return json.NewEncoder(out).Encode(paths)
}
