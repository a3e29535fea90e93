package erase

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// The device is opened for direct I/O, and nobody else can open it exclusively. Partitions whose table was overwritten
// are gone afterwards.
func TestExclusive(t *testing.T) {
	file := testenv.SparseFile(t, 8*mib)
	testenv.GPT(t, file, "start=2048, size=1MiB")
	path := testenv.Loop(t, file, 512)
	if err := partition.Sync(t.Context(), sysfs.Root{}, path); err != nil {
		t.Fatal(err)
	}
	shown := func() int {
		parts, err := block.Partitions(t.Context(), sysfs.Root{}, path)
		if err != nil {
			t.Error(err)
		}
		return len(parts)
	}
	if n := shown(); n != 1 {
		t.Fatalf("got %d partitions before the test, want 1", n)
	}
	calls := 0
	var failure error
	use := func(f *os.File, size int64) error {
		calls++
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || flags&directIO == 0 || size != 8*mib {
			t.Errorf("got flags %#x, %v and %d bytes, want direct I/O and %d bytes", flags, err, size, 8*mib)
		}
		if other, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0); !errors.Is(err, unix.EBUSY) {
			t.Errorf("second exclusive open: got %v and %v, want %v", other, err, unix.EBUSY)
		}
		return failure
	}
	if err := Exclusive(t.Context(), sysfs.Root{}, device(t, path), patient, use); err != nil || calls != 1 {
		t.Errorf("got %v after %d calls, want 1", err, calls)
	}
	if n := shown(); n != 1 {
		t.Errorf("got %d partitions after a use that changed nothing, want 1", n)
	}
	failure = io.EOF
	if err := Exclusive(t.Context(), sysfs.Root{}, device(t, path), patient, use); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the error of the function", err)
	}
	err := Exclusive(t.Context(), sysfs.Root{}, device(t, path), patient, func(f *os.File, size int64) error {
		_, err := f.WriteAt(alignedZeros(), 0)
		_, endErr := f.WriteAt(alignedZeros(), size-zerosSize)
		return errors.Join(err, endErr)
	})
	if n := shown(); n != 0 || err != nil {
		t.Errorf("got %d partitions and %v after the table was overwritten, want 0", n, err)
	}
	removed := device(t, path)
	removed.Path = filepath.Join(t.TempDir(), "disk")
	if err := os.Symlink(path, removed.Path); err != nil {
		t.Fatal(err)
	}
	err = Exclusive(t.Context(), sysfs.Root{}, removed, patient, func(*os.File, int64) error {
		return os.Remove(removed.Path)
	})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("table that cannot be read again: got %v, want %v", err, os.ErrNotExist)
	}
	if f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0); err != nil {
		t.Errorf("the device is still open: %v", err)
	} else if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A device that must not be overwritten is not opened.
func TestExclusiveRefuses(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	d := device(t, path)
	use := func(*os.File, int64) error { t.Error("the device was opened"); return nil }
	holder, err := os.OpenFile(path, os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := Exclusive(t.Context(), sysfs.Root{}, d, Wait{}, use); !errors.Is(err, ErrBusy) {
		t.Errorf("in use: got %v, want %v", err, ErrBusy)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	d.Zoned = "host-managed"
	if err := Exclusive(t.Context(), sysfs.Root{}, d, Wait{}, use); !errors.Is(err, ErrZoned) {
		t.Errorf("zoned: got %v, want %v", err, ErrZoned)
	}
	d.Zoned = ""
	missing := block.Device{Name: "missing", Path: "/dev/missing"}
	if err := Exclusive(t.Context(), nvmeTree(t, "missing"), missing, Wait{}, use); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: got %v, want %v", err, os.ErrNotExist)
	}
	empty := device(t, testenv.Loop(t, testenv.SparseFile(t, 0), 512))
	if err := Exclusive(t.Context(), sysfs.Root{}, empty, Wait{}, use); err == nil ||
		!strings.Contains(err.Error(), "has no size") {
		t.Errorf("empty: got %v, want an error of the size", err)
	}
	testenv.Programs(t, "blockdev")
	testenv.Run(t, "blockdev", "--setro", path)
	defer func() { testenv.Run(t, "blockdev", "--setrw", path) }() // the flag would outlive the loop device
	if err := Exclusive(t.Context(), sysfs.Root{}, d, Wait{}, use); !errors.Is(err, ErrReadOnly) {
		t.Errorf("read-only: got %v, want %v", err, ErrReadOnly)
	}
}
