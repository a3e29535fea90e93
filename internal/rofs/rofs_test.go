package rofs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"
)

// medium has directories of dirBytes bytes by their starts. Files have the content "content".
type medium struct {
	directories map[int64][]File
	dirBytes    int64
	lists       int
}

func (m *medium) Root() File { return File{Name: "/", Mode: Directory} }

func (m *medium) Content(file File) io.Reader {
	if file.Start != 0 {
		return iotest.ErrReader(fmt.Errorf("block %d: %w", file.Start, io.EOF))
	}
	return strings.NewReader("content"[:file.Size])
}

func (m *medium) List(directory File) ([]File, int64, error) {
	m.lists++
	files, found := m.directories[directory.Start]
	if !found {
		return nil, 0, errors.New("medium error")
	}
	return files, m.dirBytes, nil
}

func newMedium() *medium {
	return &medium{dirBytes: 1 << 10, directories: map[int64][]File{
		0: {
			{Name: "directory", Mode: Directory, Start: 1},
			{Name: "file", Mode: Regular, Size: 7},
			{Name: "broken", Mode: Regular, Size: 7, Start: 1},
		},
		1: {
			{Name: "file", Mode: Regular, Size: 3},
			{Name: "link", Mode: Other},
			{Name: "self", Mode: Directory, Start: 1},
		},
	}}
}

// The files form a correct [fs.FS].
func TestFS(t *testing.T) {
	m := newMedium()
	m.directories[0], m.directories[1] = m.directories[0][:2], m.directories[1][:1]
	if err := fstest.TestFS(New(m, false), "directory/file", "file"); err != nil {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	m := newMedium()
	m.directories[0] = append(m.directories[0], File{Name: "unreadable", Mode: Directory, Start: 2})
	f := New(m, false)
	deep := strings.TrimSuffix(strings.Repeat("directory/", maxDepth+1), "/")
	for name, want := range map[string]string{
		"broken": "read broken: block 1: EOF", "directory": "read directory: is a directory",
		"directory/link": "read directory/link: not a regular file", "unreadable": "open unreadable: medium error",
		"unreadable/file": "open unreadable/file: medium error", "none": "open none: file does not exist",
		"file/none": "open file/none: file does not exist", "../file": "open ../file: invalid argument",
		"FILE": "open FILE: file does not exist", deep: "more than 512 directories within each other",
	} {
		content, err := f.ReadFile(name)
		var pathError *fs.PathError
		if !errors.As(err, &pathError) || pathError.Path != name || !strings.Contains(err.Error(), want) {
			t.Errorf("got %q and error %v, want %s", content, err, want)
		}
	}
}

// The file with exactly the name precedes others that are equal without case; of those, the first is the file.
func TestFoldCase(t *testing.T) {
	m := newMedium()
	m.directories[0] = []File{
		{Name: "FILE", Mode: Regular, Size: 1},
		{Name: "file", Mode: Regular, Size: 7},
		{Name: "k", Mode: Regular, Size: 2},
		{Name: "\u212a", Mode: Regular, Size: 3},
	}
	for name, want := range map[string]string{
		"file": "content", "File": "c", "FILE": "c", "k": "co", "K": "co", "\u212a": "con",
	} {
		if content, err := New(m, true).ReadFile(name); err != nil || string(content) != want {
			t.Errorf("%s: got %q and error %v, want %s", name, content, err, want)
		}
	}
	if content, err := New(m, false).ReadFile("file"); err != nil || string(content) != "content" {
		t.Errorf("with case: got %q and error %v, want content", content, err)
	}
}

// A directory that contains itself is not listed forever, though it is read once.
func TestTotalOfDirectories(t *testing.T) {
	m := newMedium()
	m.dirBytes = 1 << 20
	f, name := New(m, false), "directory"
	for n := range maxListed/m.dirBytes - 1 {
		if _, err := f.ReadDir(name); err != nil {
			t.Fatalf("list %d: %v", n, err)
		}
		name = path.Join(name, "self")
	}
	if _, err := f.ReadDir(name); err == nil || !strings.Contains(err.Error(), "more than 67108864 bytes") {
		t.Errorf("got error %v, want one of the limit", err)
	}
	if m.lists != 2 {
		t.Errorf("got %d reads of directories, want 2", m.lists)
	}
}

// Directories are read again when others have taken their place in memory.
func TestCache(t *testing.T) {
	m := newMedium()
	m.dirBytes = maxCached/2 + 1
	f := New(m, false)
	for range 3 {
		if content, err := f.ReadFile("directory/file"); err != nil || !bytes.Equal(content, []byte("con")) {
			t.Fatalf("got %q and error %v, want con", content, err)
		}
	}
	if m.lists != 6 {
		t.Errorf("got %d reads of directories, want 6", m.lists)
	}
}
