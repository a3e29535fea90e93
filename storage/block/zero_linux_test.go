package block

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A file with holes gets another one; a file that has all its blocks reads as zeros and keeps them.
func TestPunchFiles(t *testing.T) {
	const size, off, length = 8 << 20, 1 << 20, 4 << 20
	dir, err := os.MkdirTemp("/var/tmp", "punch") // mostly on a disk: a file system in memory knows holes only
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the test has ended
	content := bytes.Repeat([]byte{0xa5}, size)
	want := append([]byte(nil), content...)
	clear(want[off : off+length])

	full := int64(size)
	if !zeroesRanges(t, dir) {
		full -= length // the range becomes a hole, as on tmpfs
	}
	for name, has := range map[string]struct{ size, blocks int64 }{
		"full":   {size, full},
		"sparse": {2 * size, size - length},
	} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(has.size); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil { // blocks are taken no later
			t.Fatal(err)
		}
		if err := Punch(f, off, length); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, size)
		if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the range does not read as zeros, or more does: %v", name, err)
		}
		var stat unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
			t.Fatal(err)
		}
		const most = 64 << 10 // of what a file system takes for itself
		if blocks := stat.Blocks * 512; blocks < has.blocks || blocks > has.blocks+most {
			t.Errorf("%s: got %d bytes of blocks, want %d", name, blocks, has.blocks)
		}
	}
}

// zeroesRanges reports whether the file system of a directory can zero a range and keep its blocks.
func zeroesRanges(t *testing.T, dir string) bool {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "probe"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Fatal(err)
	}
	return err == nil
}
