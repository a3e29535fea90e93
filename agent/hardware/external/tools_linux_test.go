package external

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/initramfs/squashfs"
	"ironroot/internal/test/testenv"
)

// writeTools writes a manager root with a shell and scripts into dir.
func writeTools(t *testing.T, dir, name string, scripts map[string]string) {
	t.Helper()
	testenv.Programs(t, "ldd")
	entries := programEntries(t, map[string]bool{}, "sh", "cat", "head", "sleep")
	for _, name := range []string{"dev", "proc", "sys", "run", "tmp"} {
		entries = append(entries, squashfs.Entry{Path: name, Mode: fs.ModeDir | 0o755})
	}
	for name, text := range scripts {
		mode := fs.FileMode(0o755)
		if strings.HasSuffix(name, ".txt") {
			name, mode = strings.TrimSuffix(name, ".txt"), 0o644
		}
		entries = append(entries, textFile(name, mode, "#!/bin/sh\n"+text+"\n"))
	}
	image, err := squashfs.Image(entries)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), image, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Programs are found in the first root that has all of them. The error names what is missing where.
func TestFindTools(t *testing.T) {
	dir := onRoot(t)
	writeTools(t, dir, "a.squashfs", map[string]string{"usr/bin/query": "echo a", "usr/bin/write.txt": "echo a"})
	writeTools(t, dir, "b.squashfs", map[string]string{"usr/bin/query": "echo b", "usr/sbin/write": "echo b $1"})
	writeTools(t, dir, "c.squashfs", map[string]string{"usr/bin/query": "echo c", "usr/bin/write": "echo c"})
	if err := os.WriteFile(filepath.Join(dir, "d.squashfs"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	tools, err := FindTools(t.Context(), dir, "query", "write")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tools.Run(t.Context(), nil, never, "write", "x"); string(got) != "b x" || err != nil {
		t.Errorf("got %q and %v, want b x", got, err)
	}
	if got, err := tools.Run(t.Context(), nil, never, "cat"); !errors.Is(err, ErrNoTools) {
		t.Errorf("got %q and %v, want an error for a program that was not looked for", got, err)
	}
	_, err = FindTools(t.Context(), dir, "query", "absent")
	want := "programs query, absent: not in a manager root of this image; " + dir + "/a.squashfs lacks absent; "
	if !errors.Is(err, ErrNoTools) || !strings.HasPrefix(err.Error(), want) ||
		!strings.Contains(err.Error(), dir+"/d.squashfs: find programs: ") {
		t.Errorf("got %v, want it to begin with %q, and the damaged root", err, want)
	}
	for _, dir := range []string{"", filepath.Join(dir, "absent")} {
		_, err := FindTools(t.Context(), dir, "query")
		if want := "programs query: not in a manager root of this image"; err == nil || err.Error() != want {
			t.Errorf("directory %q: got %v, want %s", dir, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := FindTools(ctx, dir, "query"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// Output over the limit is an error also of a program that ends before it is killed.
func TestReadLimited(t *testing.T) {
	for size, want := range map[int]string{maxOutput: "", maxOutput + 1: "output longer than 1048576 bytes"} {
		var stopped, failed string
		out := strings.NewReader(strings.Repeat("x", size))
		output, err := readLimited(out, func(err error) { stopped = err.Error() })
		if err != nil {
			failed = err.Error()
		}
		if failed != want || stopped != want || len(output) != size {
			t.Errorf("%d bytes: got %d, error %q, stopped by %q, want %q", size, len(output), failed, stopped, want)
		}
	}
}

// A program that only reads is killed when it takes too long, when the context ends, and when it floods its output. One
// that writes is not killed. The errors have what the program has printed.
func TestRunTools(t *testing.T) {
	dir := onRoot(t)
	const flood = "head -c 3000000 /dev/zero"
	writeTools(t, dir, "tools.squashfs", map[string]string{
		"bin/copy": "cat /proc/self/fd/0 /proc/self/fd/0", "bin/hang": "echo waiting; sleep 1000",
		"bin/flood": flood + "; echo end >&2",
		"bin/fail":  "echo '-E- no device'; exit 3", "bin/complain": "echo output; echo reason >&2; exit 4",
		"bin/floodfail": flood + "; echo reason >&2; exit 5",
	})
	tools, err := FindTools(t.Context(), dir, "copy", "hang", "flood", "fail", "complain", "floodfail")
	if err != nil {
		t.Fatal(err)
	}
	input, err := os.Create(filepath.Join(t.TempDir(), "input"))
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	if _, err := input.WriteString("firmware "); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the file is read from its beginning each time
		got, err := tools.Run(t.Context(), input, never, "copy")
		if want := "firmware firmware"; string(got) != want || err != nil {
			t.Errorf("got %q and %v, want %s", got, err, want)
		}
		if got, err = tools.RunToEnd(input, "copy"); string(got) != "firmware firmware" || err != nil {
			t.Errorf("got %q and %v, want the input twice", got, err)
		}
	}
	query := func(ctx context.Context, name string) func() ([]byte, error) {
		return func() ([]byte, error) { return tools.Run(ctx, nil, never, name) }
	}
	cancelled, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("node deleted")
	cancel(cause)
	for _, tt := range []struct {
		run  func() ([]byte, error)
		want string
	}{
		{func() ([]byte, error) { return tools.Run(t.Context(), nil, short, "hang") }, "hang: not done within 200ms: "},
		{query(cancelled, "hang"), "hang: node deleted: signal: killed"},
		{query(t.Context(), "flood"), "flood: output longer than 1048576"},
		{query(t.Context(), "fail"), "fail: exit status 3: -E- no device"},
		{func() ([]byte, error) { return tools.RunToEnd(nil, "fail") }, "fail: exit status 3: -E- no device"},
		{func() ([]byte, error) { return tools.RunToEnd(nil, "complain") }, "complain: exit status 4: reason"},
		{func() ([]byte, error) { return tools.RunToEnd(nil, "floodfail") }, "floodfail: exit status 5: reason"},
		{func() ([]byte, error) { return tools.RunToEnd(nil, "absent") }, "program absent: not in a manager root"},
	} {
		if got, err := tt.run(); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("got %d bytes and %v, want %s", len(got), err, tt.want)
		}
	}
	got, err := tools.RunToEnd(nil, "flood")
	if want := make([]byte, maxOutput); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes and %v, want %d", len(got), err, len(want))
	}
}
