package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits of the files of an archive that Files reads.
const (
	maxFileBytes  = 16 << 20 // of one; of a larger one, the end is read
	maxFilesBytes = 64 << 20 // of all together
	maxFiles      = 4096
)

var errFull = fmt.Errorf("log archive is full: want at most %d files with %d bytes", maxFiles, maxFilesBytes)

// Files reads files and the trees of directories for an archive. As in ironic-python-agent's archive, a member has the
// path of its file, without the leading slash. A symbolic link below a directory has the content of its file; links to
// directories are not followed. Files that cannot be read are skipped and logged. Empty paths are ignored.
func Files(ctx context.Context, log *slog.Logger, paths ...string) []Member {
	f := files{ctx: ctx, log: log, left: maxFilesBytes, added: map[string]bool{}}
	for _, path := range paths {
		if path == "" {
			continue
		}
		if err := f.addTree(filepath.Clean(path)); err != nil {
			log.Warn("log file missing in log archive", "path", path, "err", err)
		}
	}
	return f.members
}

// files collects the members that Files returns.
type files struct {
	ctx     context.Context
	log     *slog.Logger
	left    int64           // bytes
	added   map[string]bool // names of members
	members []Member
}

// addTree adds a file, or all files below a directory in the order of their names.
func (f *files) addTree(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return f.add(path)
	}
	// With the slash, WalkDir follows path itself if it is a link.
	return filepath.WalkDir(path+"/", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return f.ctx.Err()
		}
		if err == nil {
			err = f.add(name)
		}
		if errors.Is(err, errFull) || f.ctx.Err() != nil {
			return err
		}
		if err != nil {
			f.log.Warn("log file missing in log archive", "path", name, "err", err)
		}
		return nil
	})
}

// add adds a file unless it was added before. A file longer than the limits is truncated to its end.
func (f *files) add(path string) error {
	name := strings.TrimPrefix(filepath.Clean("/"+path), "/")
	if f.added[name] {
		return nil
	}
	if f.left <= maxCut || len(f.members) == maxFiles { // nothing of a longer file would be left
		return errFull
	}
	data, err := readEnd(path, min(maxFileBytes, f.left))
	if err != nil {
		return err
	}
	f.left -= int64(len(data))
	f.added[name] = true
	f.members = append(f.members, Member{name, data})
	return nil
}

// maxCut is the number of bytes that readEnd drops at most to begin with a complete line.
const maxCut = 4 << 10

// readEnd returns the last bytes of a regular file, at most limit. The rest of a line that it would begin with is
// dropped, because redaction cannot recognize a part of a secret. It does not block on a pipe.
func readEnd(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", name)
	}
	start := max(0, info.Size()-limit)
	data, err := io.ReadAll(io.NewSectionReader(f, start, limit))
	if start == 0 {
		return data, err
	}
	cut := min(maxCut, len(data))
	if end := bytes.IndexByte(data[:cut], '\n'); end >= 0 {
		cut = end + 1
	}
	return data[cut:], err
}
