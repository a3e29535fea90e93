package partition

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

// The boot code and the space beside partitions are zeroed. The table and the partitions are not changed.
func TestWipeGaps(t *testing.T) {
	for scheme, table := range map[string]string{
		"gpt": "label: gpt\nstart=4096, size=2MiB\nstart=20MiB, size=4MiB\n",
		"dos": "label: dos\nstart=4096, size=2MiB\nstart=20MiB, size=4MiB\n",
	} {
		path := testenv.SparseFile(t, 64*mib)
		if err := os.WriteFile(path, bytes.Repeat([]byte("tenant! "), 8*mib), 0o600); err != nil {
			t.Fatal(err)
		}
		testenv.Run(t, "sh", "-c", "printf '"+table+"' | sfdisk --wipe never --wipe-partitions never "+path)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := WipeGaps(t.Context(), path); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range [][2]int{{2 * mib, 4 * mib}, {20 * mib, 24 * mib}, {440, 512}} {
			if !bytes.Equal(after[r[0]:r[1]], before[r[0]:r[1]]) {
				t.Errorf("%s: bytes %d to %d have changed", scheme, r[0], r[1])
			}
		}
		for _, r := range [][2]int{
			{0, 440},
			{17408, 2 * mib},
			{4 * mib, 12 * mib},
			{12 * mib, 20 * mib},
			{24 * mib, 32 * mib},
			{56 * mib, 64*mib - 33*512},
		} {
			if len(bytes.Trim(after[r[0]:r[1]], "\x00")) > 0 {
				t.Errorf("%s: data are left in bytes %d to %d", scheme, r[0], r[1])
			}
		}
		if scheme == "gpt" {
			if out := testenv.Run(t, "sgdisk", "-v", path); !strings.Contains(out, "No problems found") {
				t.Errorf("sgdisk: %s", out)
			}
		}
	}
}

// The bytes that follow the MBR in a sector of 4 KiB are zeroed.
func TestWipeGapsLargeSector(t *testing.T) {
	for _, scheme := range []string{"gpt", "dos"} {
		path := testenv.Loop(t, testenv.SparseFile(t, 64*mib), 4096)
		testenv.Run(t, "sh", "-c", "printf 'label: "+scheme+"\nstart=4MiB, size=2MiB\n' | sfdisk "+path)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck // the test reads it again
		if _, err := f.WriteAt(bytes.Repeat([]byte("tenant! "), (4096-512)/8), 512); err != nil {
			t.Fatal(err)
		}
		if err := WipeGaps(t.Context(), path); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
		sector := make([]byte, 4096)
		if _, err := f.ReadAt(sector, 0); err != nil {
			t.Fatal(err)
		}
		if len(bytes.Trim(sector[512:], "\x00")) > 0 {
			t.Errorf("%s: data are left after the MBR", scheme)
		}
		if sector[510] != 0x55 || sector[511] != 0xaa {
			t.Errorf("%s: the MBR has changed", scheme)
		}
	}
}

// A table that could name partitions elsewhere is an error, and the disk is not written to.
func TestWipeGapsRefused(t *testing.T) {
	for want, prepare := range map[string]func(path string){
		"extended partition": func(path string) {
			const table = "label: dos\\nsize=2MiB\\nsize=8MiB, type=5\\nsize=1MiB\\n"
			testenv.Run(t, "sh", "-c", "printf '"+table+"' | sfdisk "+path)
		},
		"damaged": func(path string) {
			testenv.GPT(t, path, "size=2MiB")
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close() //nolint:errcheck // the test reads it again
			if _, err := f.WriteAt([]byte("damage"), 32*mib-512); err != nil {
				t.Fatal(err)
			}
		},
		"at an unusual place": func(path string) { // in the space before the first partition
			testenv.GPT(t, path, "start=4MiB, size=2MiB")
			testenv.Run(t, "sgdisk", "--move-main-table=1000", path)
		},
		"entries at an unusual place": func(path string) { // more of them than usual
			testenv.GPT(t, path, "start=4MiB, size=2MiB")
			testenv.Run(t, "sgdisk", "--resize-table=256", path)
		},
		ErrNoTable.Error(): func(string) {},
	} {
		path := testenv.SparseFile(t, 32*mib)
		prepare(path)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := WipeGaps(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
			t.Errorf("%s: the disk was written to (%v)", want, err)
		}
	}
}

// The disk is opened exclusively, and closed afterwards.
func TestWipeGapsExclusive(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector closes what nothing refers to
	path := testenv.Loop(t, gptImage(t, 32*mib), 512)
	exclusive := func() *os.File {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	holder := exclusive()
	if err := WipeGaps(t.Context(), path); !errors.Is(err, unix.EBUSY) {
		t.Errorf("in use: got %v, want %v", err, unix.EBUSY)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	if err := WipeGaps(t.Context(), path); err != nil {
		t.Error(err)
	}
	if err := exclusive().Close(); err != nil {
		t.Error(err)
	}
}

// A table that differs afterwards is an error.
func TestWipeGapsTableChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	for want, change := range map[error][]string{
		errChanged: {"sfdisk", "--part-label", path, "1", "other"},
		ErrNoTable: {"wipefs", "-a", "-f", path},
	} {
		copyFile(t, gptImage(t, 32*mib), path)
		if err := WipeGaps(afterBootCode(t, path, change), path); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", change[0], err, want)
		}
	}
}

// afterBootCode returns a context that runs a command on a disk as soon as its boot code is overwritten.
func afterBootCode(t *testing.T, path string, command []string) context.Context {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // a test's file
	if _, err := f.WriteAt([]byte{0xeb}, 0); err != nil {
		t.Fatal(err)
	}
	done := false
	return hooked{t.Context(), func() error {
		code := make([]byte, 1)
		if _, err := f.ReadAt(code, 0); err != nil {
			return err
		}
		if code[0] == 0 && !done {
			done = true
			testenv.Run(t, command[0], command[1:]...)
		}
		return nil
	}}
}

// Gaps are the ranges that neither the table nor a partition takes, without empty ones.
func TestGaps(t *testing.T) {
	const mib = 1 << 20
	for scheme, tt := range map[string]struct {
		table string
		want  [][2]int64
	}{
		"gpt": {
			"label: gpt\nstart=4096, size=2MiB\nsize=4MiB\nstart=20MiB, size=4MiB\n",
			[][2]int64{{17408, 2 * mib}, {8 * mib, 20 * mib}, {24 * mib, 64*mib - 33*512}},
		},
		"dos": {
			"label: dos\nstart=4096, size=2MiB\nstart=20MiB\n",
			[][2]int64{{512, 2 * mib}, {4 * mib, 20 * mib}},
		},
	} {
		path := testenv.SparseFile(t, 64*mib)
		testenv.Run(t, "sh", "-c", "printf '"+tt.table+"' | sfdisk "+path)
		got, err := Gaps(t.Context(), path)
		if !slices.Equal(got, tt.want) || err != nil {
			t.Errorf("%s: got %d and %v, want %d", scheme, got, err, tt.want)
		}
	}
	if _, err := Gaps(t.Context(), testenv.SparseFile(t, mib)); !errors.Is(err, ErrNoTable) {
		t.Errorf("got %v, want %v", err, ErrNoTable)
	}
	path := testenv.SparseFile(t, 64*mib)
	testenv.Run(t, "sh", "-c", "printf 'label: dos\nstart=4096, type=5\n' | sfdisk "+path)
	if _, err := Gaps(t.Context(), path); err == nil || !strings.Contains(err.Error(), "extended partition") {
		t.Errorf("got %v, want an error of the extended partition", err)
	}
}
