package external

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"ironroot/agent/hardware"
	"ironroot/agent/status"
)

// RootsDir is the directory of the ramdisk with the manager roots: images of file systems, in which executables find
// the libraries and the interpreters that the ramdisk lacks.
const RootsDir = "/usr/lib/ironroot/roots"

// rootSuffix is the suffix of the names of manager roots.
const rootSuffix = ".squashfs"

// rootTimeout limits describe and evaluate of a manager in a root, and the list of the managers and programs in it. An
// interpreter starts slower than an executable of the ramdisk, from a compressed image. The agent waits longer for the
// support level.
const rootTimeout = 50 * time.Second

// root is a manager root.
type root struct {
	path  string
	calls map[string][]string // see CallsName
	log   *slog.Logger
}

// LoadRoots describes the managers in all manager roots of a directory, which must be on the root file system, and logs
// the SHA-256 of the roots and of the managers. Roots that cannot be used are logged. A manager of [hardware.Unusable]
// is in place of each root and manager that cannot be used: such a root could have a manager. A directory that does not
// exist has none. The board shows the progress of steps; nil shows nothing.
func LoadRoots(ctx context.Context, dir string, log *slog.Logger, board status.Trackers) []hardware.Manager {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		log.Error("manager roots not read", "err", err)
		return []hardware.Manager{hardware.Unusable("in "+dir, err)}
	}
	calls, err := readCalls(dir)
	if err != nil {
		log.Error("further system calls of hardware managers not permitted", "err", err)
	}
	var loaded []hardware.Manager
	for _, entry := range entries {
		r := root{path: filepath.Join(dir, entry.Name()), calls: calls}
		r.log = log.With("root", r.path)
		managers, err := r.load(ctx, board)
		if err != nil {
			r.log.Error("manager root ignored", "err", err)
			managers = []hardware.Manager{hardware.Unusable("in "+r.path, err)}
		}
		loaded = append(loaded, managers...)
	}
	return loaded
}

// checkRoot reports an error if a file is not a manager root of the ramdisk.
func checkRoot(path string) error {
	if filepath.Ext(path) != rootSuffix {
		return fmt.Errorf("want a name that ends with %s", rootSuffix)
	}
	return checkOrigin(path)
}

// load describes the managers in the root.
func (r root) load(ctx context.Context, board status.Trackers) ([]hardware.Manager, error) {
	if err := checkRoot(r.path); err != nil {
		return nil, err
	}
	sum, err := checksum(r.path)
	if err != nil {
		return nil, err
	}
	r.log.Info("manager root found", "sha256", sum)
	var found []rootManager
	err = repeated(r.log, func() (err error) {
		found, err = r.managers(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list managers: %w", err)
	}
	var paths []string
	var unusable []hardware.Manager
	suffix := " in " + r.path
	for _, f := range found {
		if f.Reason != "" {
			unusable = append(unusable, hardware.Unusable(f.Path+suffix, errors.New(f.Reason)))
			continue
		}
		r.log.Info("external hardware manager found", "path", f.Path, "sha256", f.SHA256,
			"calls", r.calls[filepath.Base(f.Path)])
		paths = append(paths, f.Path)
	}
	loaded := loadAll(paths, suffix, board, func(path string) (*Manager, error) {
		p := program{Root: r.path, Argv: []string{path}, Calls: r.calls[filepath.Base(path)]}
		m := newManager(path, r.log, p)
		m.describeTimeout = rootTimeout
		return m, m.describeForLoad(ctx)
	})
	return append(loaded, unusable...), nil
}

// rootManager is an executable in a root.
type rootManager struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Reason string `json:"reason,omitempty"` // why it cannot be used
}

// managers mounts the root and lists its executables.
func (r root) managers(ctx context.Context) ([]rootManager, error) {
	output, err := run(ctx, program{Root: r.path}, rootTimeout)
	if err != nil {
		return nil, err
	}
	var list []rootManager
	if err := json.Unmarshal(output, &list); err != nil {
		return nil, fmt.Errorf("parse list: %w", err)
	}
	return list, nil
}

// printManagers prints the executables in Dir, as JSON. It runs in the root.
func printManagers(out io.Writer) error {
	entries, err := os.ReadDir(Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	list := make([]rootManager, len(entries))
	for i, entry := range entries {
		path := filepath.Join(Dir, entry.Name())
		list[i].Path = path
		err := checkExecutable(path)
		if err == nil {
			list[i].SHA256, err = checksum(path)
		}
		if err != nil {
			list[i].Reason = err.Error()
		}
	}
	return json.NewEncoder(out).Encode(list)
}
