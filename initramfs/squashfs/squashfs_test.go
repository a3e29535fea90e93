package squashfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
)

// broken is content that cannot be read.
type broken struct{}

func (broken) Open() (File, error) { return nil, errors.New("broken") }

// file returns a regular file.
func file(path string, data []byte) Entry {
	return Entry{
		Path: path, Mode: 0o644, Size: int64(len(data)), ModTime: time.Unix(1e9, 0),
		Content: Bytes(data),
	}
}

// sample returns entries of all kinds: files smaller and larger than a block, that compress and that do not; links;
// directories whose listings need several headers and the long form.
func sample() []Entry {
	random := make([]byte, 3*blockSize+17)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(random) // never fails
	entries := []Entry{
		file("empty", nil), file("small", []byte("small")), file("random", random),
		file("block", bytes.Repeat([]byte("block "), blockSize/6+1)[:blockSize]),
		file("zeros", make([]byte, 5*blockSize)), file("tail", random[:blockSize+1]),
		file("nearly", random[:blockSize-1]),
		{Path: "link", Mode: fs.ModeSymlink | 0o777, Target: "deep/er"},
		{Path: "second", Link: "deep/first"},
		file("deep/first", []byte("two names")),
		{Path: "deep/er", Mode: fs.ModeDir | 0o700},
		{Path: "program", Mode: fs.ModeSetuid | 0o755, Content: Bytes(nil)},
		{Path: "sticky", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	}
	for i := range 4000 {
		entries = append(entries, file(fmt.Sprintf("many/%s-%04d", strings.Repeat("long", 10), i), fmt.Append(nil, i)))
	}
	return entries
}

// Other implementations, unsquashfs and the kernel, read the image as it was written.
func TestImage(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "unsquashfs", "mount", "umount")
	image, err := Image(sample())
	if err != nil {
		t.Fatal(err)
	}
	again, err := Image(sample())
	if err != nil || !bytes.Equal(image, again) {
		t.Errorf("the same entries give other bytes (%v)", err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "image")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	unpacked := filepath.Join(dir, "unpacked")
	testenv.Run(t, "unsquashfs", "-quiet", "-no-progress", "-dest", unpacked, path)
	check(t, unpacked)
	mounted := filepath.Join(dir, "mounted")
	if err := os.Mkdir(mounted, 0o700); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "mount", "-t", "squashfs", "-o", "loop,ro", path, mounted)
	defer testenv.Run(t, "umount", mounted)
	check(t, mounted)
}

// check compares a directory with the sample.
func check(t *testing.T, dir string) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(dir, func(string, fs.DirEntry, error) error {
		found++
		return nil
	})
	want := sample()
	if err != nil || found != len(want)+3 { // the root, deep and many
		t.Errorf("got %d names, %v, want %d", found, err, len(want)+3)
	}
	for _, e := range want {
		path := filepath.Join(dir, e.Path)
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if e.Link != "" {
			first, err := os.Stat(filepath.Join(dir, e.Link))
			if err != nil || !os.SameFile(first, info) {
				t.Errorf("%s is not %s: %v", e.Path, e.Link, err)
			}
			continue
		}
		if info.Mode() != e.Mode {
			t.Errorf("%s: got mode %v, want %v", e.Path, info.Mode(), e.Mode)
		}
		switch {
		case e.Target != "":
			if target, err := os.Readlink(path); err != nil || target != e.Target {
				t.Errorf("%s: got target %q, %v, want %q", e.Path, target, err, e.Target)
			}
		case e.Mode.IsRegular():
			checkFile(t, path, e)
		}
	}
}

func checkFile(t *testing.T, path string, e Entry) {
	t.Helper()
	f, err := e.Content.Open()
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, e.Size)
	if _, err := f.ReadAt(want, 0); err != nil && e.Size > 0 {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: got %d bytes, %v, want other %d bytes", e.Path, len(got), err, len(want))
	}
	if info, err := os.Stat(path); err != nil || e.ModTime.Unix() > 0 && !info.ModTime().Equal(e.ModTime) {
		t.Errorf("%s: got %v, %v, want time %v", e.Path, info.ModTime(), err, e.ModTime)
	}
}

// Entries that cannot be written are refused with their path.
func TestImageRefuses(t *testing.T) {
	shorter := file("shorter", []byte("abc"))
	shorter.Size = 4
	failing := file("failing", []byte("abc"))
	failing.Content = broken{}
	for want, entries := range map[string][]Entry{
		`path "../a": want a clean relative path`:                 {file("../a", nil)},
		`path "/a": want a clean relative path`:                   {file("/a", nil)},
		`path "a//b": want a clean relative path`:                 {file("a//b", nil)},
		"a: duplicate path":                                       {file("a", nil), file("a", nil)},
		"a/b: a is no directory":                                  {file("a", nil), file("a/b", nil)},
		"b: link to a, which is no file":                          {{Path: "b", Link: "a"}},
		"pipe: type p---------: want a file":                      {{Path: "pipe", Mode: fs.ModeNamedPipe}},
		"shorter: read 4 bytes at 0, got 3: unexpected EOF":       {shorter},
		"failing: broken":                                         {failing},
		strings.Repeat("n", 257) + ": name longer than 256 bytes": {file(strings.Repeat("n", 257), nil)},
	} {
		if _, err := Image(entries); err == nil || !strings.HasPrefix(err.Error(), "squashfs: "+want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
