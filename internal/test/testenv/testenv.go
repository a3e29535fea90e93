// Package testenv checks and provides the requirements of tests: root privileges, programs, loop devices and build
// results. If a requirement is missing, the test is skipped with a message that names it. If the environment variable
// CI is set, the test fails instead, so that no test is skipped unnoticed.
package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// missing ends the test because of a missing requirement: as failed if CI is set, otherwise as skipped.
func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("missing on this machine: "+format, args...)
	}
	t.Skipf("missing on this machine: "+format, args...)
}

// Linux ends the test on other systems than Linux; what names the feature that the test needs.
func Linux(t testing.TB, what string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		missing(t, "Linux (%s)", what)
	}
}

// Root ends the test unless it runs as root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		missing(t, "root (run the tests with sudo)")
	}
}

// Programs ends the test unless every named program is on PATH or in /usr/sbin.
func Programs(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if _, err := os.Stat(filepath.Join("/usr/sbin", name)); err == nil {
			continue
		}
		missing(t, "program %s", name)
	}
}

// Files ends the test unless every named file exists. hint describes how to create them.
func Files(t testing.TB, hint string, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := os.Stat(name); err != nil {
			missing(t, "file %s (%s)", name, hint)
		}
	}
}

// Run runs a program and returns its standard output and error combined. If the program fails, the test fails.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if cmd.Err != nil {
		if path := filepath.Join("/usr/sbin", name); fileExists(path) {
			cmd.Path, cmd.Err = path, nil
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// GPT creates a partition table with sfdisk. Each partition is a line of sfdisk's input: "start=2048, size=8MiB". This
// is a second faster than sgdisk, which sleeps after writing. sfdisk sleeps for a quarter of a second and writes back
// all file systems of the machine before it tells the kernel; blockdev does neither.
func GPT(t testing.TB, path string, partitions ...string) {
	t.Helper()
	Programs(t, "sfdisk", "blockdev")
	input := filepath.Join(t.TempDir(), "partitions")
	text := "label: gpt\nfirst-lba: 34\n" + strings.Join(partitions, "\n") + "\n"
	if err := os.WriteFile(input, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	Run(t, "sh", "-c", `exec sfdisk --quiet --no-tell-kernel --wipe never "$0" <"$1"`, path, input)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode()&os.ModeDevice != 0 {
		Run(t, "blockdev", "--rereadpt", path)
	}
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// Build returns the path of a file in the repository's directory build. It ends the test if `make build` has not
// created the file.
func Build(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(Top(t), "build", name)
	Files(t, "run make build", path)
	return path
}

// Data returns the content of a file in the repository's directory testdata, which contains recordings that several
// packages share.
func Data(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(Top(t), "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Top returns the root directory of the repository.
func Top(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if fileExists(filepath.Join(dir, "go.mod")) {
			return dir
		}
	}
	t.Fatal("no go.mod above the test's directory")
	return ""
}

// SparseFile creates a sparse file of size bytes in a temporary directory of the test and returns its path.
func SparseFile(t testing.TB, size int64) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "disk")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// Content returns the content of a file or block device. os.ReadFile does not know the size of a device, and so
// allocates and copies several times as much.
func Content(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	if _, err := f.ReadAt(data, 0); err != nil {
		t.Fatal(err)
	}
	return data
}

// Fill writes length bytes at an offset of a file or block device, which it creates as a file if it does not exist: a
// text again and again. The length of the text must be a power of two.
func Fill(t testing.TB, name string, at, length int64, text string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	chunk := bytes.Repeat([]byte(text), 1<<20/len(text))
	for end := at + length; at < end && err == nil; at += int64(len(chunk)) {
		_, err = f.WriteAt(chunk[:min(int64(len(chunk)), end-at)], at)
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// Context returns a context that ends with the test or after limit, but before the time limit of all tests of the
// package (go test -timeout): a test that hangs must have time to report what it waits for.
func Context(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	if all, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, ok := all.Deadline(); ok {
			left := time.Until(end)
			limit = min(limit, left-min(time.Minute, left/10))
		}
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("not within %v", limit))
	t.Cleanup(cancel)
	return ctx
}
