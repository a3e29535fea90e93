package journal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

func TestReadEnd(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(file, []byte("first\nsecond\nthird"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	// A part of a line could be a part of a secret.
	for limit, want := range map[int64]string{4: "", 7: "third", 100: "first\nsecond\nthird", 0: ""} {
		if got, err := readEnd(file, limit); err != nil || string(got) != want {
			t.Errorf("at most %d bytes: got %q and %v, want %q", limit, got, err, want)
		}
	}
	if err := os.WriteFile(file, bytes.Repeat([]byte("x"), 3*maxCut), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readEnd(file, 2*maxCut); err != nil || len(got) != maxCut {
		t.Errorf("file without lines: got %d bytes and %v, want %d", len(got), err, maxCut)
	}
	for _, name := range []string{pipe, dir} { // the pipe has no writer
		if _, err := readEnd(name, 5); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: got %v, want an error about its type", name, err)
		}
	}
}

// logTree makes a tree of log files in a directory, which becomes the current one.
func logTree(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"agent.log": "one", "logs/b.log": "two", "logs/a/c.log": "three", "logs/a/deep/er/.hidden": "four",
		"elsewhere/f.log": "five",
	} {
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		os.MkdirAll("logs/empty", 0o755), unix.Mkfifo("logs/a/pipe", 0o600), os.Symlink("gone", "logs/broken"),
		os.Symlink("../elsewhere", "logs/directory"), os.Symlink("../elsewhere/f.log", "logs/link.log"),
		os.Symlink("logs", "also"), os.Symlink(".", "logs/a/loop"),
	); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The files of directories are read with all directories below them.
//
// Parity: E11 (log_file and log_dir)
func TestFiles(t *testing.T) {
	dir := logTree(t)
	below := func(directory string) map[string]string {
		return map[string]string{
			directory + "/b.log": "two", directory + "/a/c.log": "three", directory + "/a/deep/er/.hidden": "four",
			directory + "/link.log": "five",
		}
	}
	absolute := strings.TrimPrefix(dir, "/")
	skipped := []string{"logs/a/loop", "logs/a/pipe", "logs/broken", "logs/directory"}
	for _, tt := range []struct {
		paths   []string
		want    map[string]string
		skipped []string
	}{
		{paths: nil, want: map[string]string{}},
		{paths: []string{"", ""}, want: map[string]string{}},
		{paths: []string{dir + "/agent.log"}, want: map[string]string{absolute + "/agent.log": "one"}},
		{paths: []string{dir + "/logs"}, want: below(absolute + "/logs"), skipped: skipped},
		{paths: []string{dir + "/logs/"}, want: below(absolute + "/logs"), skipped: skipped},
		{paths: []string{"logs"}, want: below("logs"), skipped: skipped},
		{paths: []string{"also"}, want: below("also"), skipped: []string{
			"also/a/loop", "also/a/pipe", "also/broken", "also/directory",
		}},
		{paths: []string{"logs/b.log", "logs"}, want: below("logs"), skipped: skipped}, // once
		{
			paths: []string{"none", "logs/empty", "agent.log"}, want: map[string]string{"agent.log": "one"},
			skipped: []string{"none"},
		},
		{paths: []string{"../" + filepath.Base(dir) + "/agent.log"}, want: map[string]string{
			filepath.Base(dir) + "/agent.log": "one", // does not leave the directory where the archive is unpacked
		}},
	} {
		var log strings.Builder
		got := map[string]string{}
		members := Files(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), tt.paths...)
		for _, m := range members {
			got[m.Name] = string(m.Data)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || len(members) != len(got) {
			t.Errorf("%q: got %d members, which differ (-want +got):\n%s", tt.paths, len(members), diff)
		}
		if lines := strings.Count(log.String(), "missing in log archive"); lines != len(tt.skipped) {
			t.Errorf("%q: got log %s, want %d lines", tt.paths, &log, len(tt.skipped))
		}
		for _, name := range tt.skipped {
			if !strings.Contains(log.String(), name+" ") {
				t.Errorf("%q: got log %s, want it to name %s", tt.paths, &log, name)
			}
		}
	}
}

// The members have the names that ironic-python-agent gives them: the names of Python's tarfile.
//
// Parity: E11 (names of files)
func TestFilesAsPython(t *testing.T) {
	testenv.Programs(t, "python3")
	dir := logTree(t)
	const script = `import io, sys, tarfile
tar = tarfile.open(fileobj=io.BytesIO(), mode="w:gz")
for path in sys.argv[1:]:
    tar.add(path)
print("\n".join(m.name for m in tar.getmembers() if m.isreg() or m.issym() and m.linkname.endswith(".log")))`
	for _, paths := range [][]string{{dir + "/logs"}, {"logs"}, {dir + "/agent.log", dir + "/logs"}} {
		want := strings.Fields(testenv.Run(t, "python3", slices.Concat([]string{"-c", script}, paths)...))
		var got []string
		for _, m := range Files(t.Context(), slog.New(slog.DiscardHandler), paths...) {
			got = append(got, m.Name)
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" || len(got) < 3 {
			t.Errorf("%q: names differ (-want +got):\n%s", paths, diff)
		}
	}
}

// The files have limits of bytes and of their number, and the log says that files are missing. The end of the context
// ends the search.
func TestFilesAreBounded(t *testing.T) {
	large, many := filepath.Join(t.TempDir(), "large"), filepath.Join(t.TempDir(), "many")
	if err := errors.Join(os.Mkdir(large, 0o755), os.Mkdir(many, 0o755)); err != nil {
		t.Fatal(err)
	}
	for i := range maxFilesBytes/maxFileBytes + 2 { // without lines
		path := filepath.Join(large, strconv.Itoa(i))
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, maxFileBytes+1)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range maxFiles + 1 {
		if err := os.WriteFile(filepath.Join(many, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, tt := range []struct {
		ctx          context.Context
		dir          string
		count, bytes int
		log          error
	}{
		{t.Context(), large, maxFilesBytes/maxFileBytes + 1, maxFilesBytes - maxCut, errFull},
		{t.Context(), many, maxFiles, 0, errFull},
		{ended, many, 0, 0, context.Canceled},
	} {
		var log bytes.Buffer
		members := Files(tt.ctx, slog.New(slog.NewTextHandler(&log, nil)), tt.dir)
		total := 0
		for _, m := range members {
			total += len(m.Data)
		}
		for _, m := range members {
			if len(m.Data) > maxFileBytes-maxCut {
				t.Errorf("%s: got %d bytes of a file, want at most %d", m.Name, len(m.Data), maxFileBytes-maxCut)
			}
		}
		if len(members) != tt.count || total != tt.bytes {
			t.Errorf("%s: got %d members and %d bytes, want %d and %d", tt.dir, len(members), total, tt.count, tt.bytes)
		}
		if text := log.String(); !strings.Contains(text, tt.log.Error()) || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: got log %s, want one line with %q", tt.dir, text, tt.log)
		}
	}
}

// A secret in a file is redacted in the archive.
func TestFilesAreRedacted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.log")
	if err := os.WriteFile(path, []byte("token planted-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := New(io.Discard, nil, 1<<20)
	j.Redact("planted-secret")
	members := Files(t.Context(), slog.New(slog.DiscardHandler), path)
	archive, err := j.Archive(t.Context(), sysfs.Root{Path: t.TempDir()}, members...)
	if err != nil {
		t.Fatal(err)
	}
	if got := testenv.Untar(t, archive)[strings.TrimPrefix(path, "/")]; got != "token ***\n" {
		t.Errorf("got %q, want the file without the secret", got)
	}
}
