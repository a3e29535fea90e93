package erase

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// fullDisk returns a file on ext4 with data=journal, on a device without free space: direct writes to the file go to
// the page cache, and only fsync reports that they cannot be written.
func fullDisk(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "mkfs.ext4", "fallocate")
	memory, mount := t.TempDir(), t.TempDir()
	testenv.Mount(t, "tmpfs", memory, "tmpfs", "size=24m")
	t.Cleanup(func() { testenv.Detach(t, memory) })
	image := filepath.Join(memory, "image")
	put(t, image, "")
	if err := os.Truncate(image, 64*mib); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "mkfs.ext4", "-q", "-E", "nodiscard", "-J", "size=16", image)
	testenv.Run(t, "fallocate", "--dig-holes", image)
	loop := testenv.Loop(t, image, 512)
	testenv.Mount(t, loop, mount, "ext4", "data=journal,noinit_itable,commit=300")
	t.Cleanup(func() { _ = unix.Unmount(mount, 0) })
	disk := filepath.Join(mount, "disk")
	f, err := os.Create(disk)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, 64<<10), unix.Syncfs(int(f.Fd())), f.Close()); err != nil {
		t.Fatal(err)
	}
	// The rest of the metadata, which a sync(2) of another process would fail to write to the full device.
	node, err := os.OpenFile(loop, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(node.Sync(), node.Close()); err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(memory, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 64<<10))
	}
	if err := filler.Close(); err != nil {
		t.Fatal(err)
	}
	return disk
}

// eraseFullDisk erases a full disk. If a sync(2) of another process aborts the file system's journal, writes fail
// before fsync is called; then it erases another full disk.
func eraseFullDisk(t *testing.T, do func(disk string) error) error {
	t.Helper()
	var err error
	for range 10 {
		var failed *fs.PathError
		if err = do(fullDisk(t)); !errors.As(err, &failed) || failed.Op != "write" {
			break
		}
	}
	return err
}

// A failing fsync is an error of the erase.
func TestSyncFails(t *testing.T) {
	err := eraseFullDisk(t, func(disk string) error { return Metadata(t.Context(), sysfs.Root{}, disk, patient) })
	if err == nil || !strings.Contains(err.Error(), "sync ") {
		t.Errorf("Metadata: got %v, want an error of fsync", err)
	}
	err = eraseFullDisk(t, func(disk string) error {
		_, err := wipe(t.Context(), sysfs.Root{}, disk, nil, patient)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "sync ") {
		t.Errorf("wipe: got %v, want an error of fsync", err)
	}
	err = eraseFullDisk(t, func(disk string) error {
		f, size, err := openExclusive(disk)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // nothing can be written
		_, err = takeSamples(t.Context(), f, size, sampling{})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "sync ") {
		t.Errorf("samples: got %v, want an error of fsync", err)
	}
	err = eraseFullDisk(t, func(disk string) error { return overwrite(t.Context(), disk, Options{Zeroize: true}) })
	if want := "pass 1 of 1: sync "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("overwrite: got %v, want an error with %q", err, want)
	}
}

// memoryOf returns a field of /proc/self/status in bytes.
func memoryOf(t *testing.T, field string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, value, _ := strings.Cut(string(text), field+":")
	kilobytes, err := strconv.Atoi(strings.Fields(value)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// The buffer is released after use: a machine has many disks.
func TestOverwriteBuffer(t *testing.T) {
	disk := testenv.SparseFile(t, mib)
	const passes = 64
	before := memoryOf(t, "VmData")
	for range passes {
		if err := overwrite(t.Context(), disk, Options{Zeroize: true}); err != nil {
			t.Fatal(err)
		}
	}
	if grown := memoryOf(t, "VmData") - before; grown > passes*blockSize/2 {
		t.Errorf("%d disks took %d bytes of memory, want their buffers of %d bytes released", passes, grown, blockSize)
	}
}

// An express erase reports what happened to the device, and fails where a full erase does.
func TestExpressErrors(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	method, err := tryExpress(t.Context(), sysfs.Root{}, device(t, path), patient, func(error) {})
	if method != MetadataOnly || err != nil {
		t.Errorf("got %q and %v, want %q", method, err, MetadataOnly)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	locked := nvmeTree(t, "nvme0n1")
	put(t, locked.Sys("class/block/nvme0n1/ro"), "1\n")
	never := func(err error) { t.Errorf("got to the format, which failed with %v", err) }
	disk := block.Device{Name: "nvme0n1", Path: path, Type: "disk"}
	if method, err := tryExpress(t.Context(), locked, disk, Wait{}, never); !errors.Is(err, ErrReadOnly) ||
		!strings.HasPrefix(err.Error(), "erase "+path) {
		t.Errorf("read-only: got %q and %v, want %v of %s", method, err, ErrReadOnly, path)
	}
	if method, err := tryExpress(cancelled, locked, disk, Wait{}, never); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %q and %v, want %v", method, err, context.Canceled)
	}
	disk.Path = testenv.SparseFile(t, mib) // the kernel has no partitions of it to drop
	o := Options{NVMe: true}
	method, err = tryExpressWith(t.Context(), nvmeTree(t, "nvme0n1"), disk, o, never,
		func(string) (adminDevice, error) {
			return &fakeNVMe{oacs: 2, fakeSanitize: fakeSanitize{path: disk.Path}}, nil
		})
	if !errors.Is(err, unix.ENOTTY) {
		t.Errorf("partitions that cannot be dropped: got %q and %v, want %v", method, err, unix.ENOTTY)
	}
}

// A disk that cannot be read where superblocks of arrays would be is an error.
func TestMetadataUnreadable(t *testing.T) {
	image := testenv.SparseFile(t, 24*mib)
	path := testenv.Loop(t, image, 512)
	if err := os.Truncate(image, 12*mib); err != nil {
		t.Fatal(err)
	}
	if err := Metadata(t.Context(), sysfs.Root{}, path, patient); !errors.Is(err, unix.EIO) ||
		!strings.Contains(err.Error(), "md superblock") {
		t.Errorf("got %v, want %v of a superblock", err, unix.EIO)
	}
}

// Only files below /dev are examined: stat(2) of other files can hang.
func TestOpenersOutsideDev(t *testing.T) {
	loop := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	var stat unix.Stat_t
	if err := unix.Stat(loop, &stat); err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(t.TempDir(), "node")
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(stat.Rdev)); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]int{node: 0, loop: 1} {
		sys := sysfs.Root{Path: t.TempDir()}
		put(t, sys.Proc("100/comm"), "holder\n")
		if err := os.Mkdir(sys.Proc("100/fd"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, sys.Proc("100/fd/3")); err != nil {
			t.Fatal(err)
		}
		if got, err := openersOf(t.Context(), sys, map[uint64]string{stat.Rdev: loop}); len(got) != want || err != nil {
			t.Errorf("%s: got %q and %v, want %d processes", target, got, err, want)
		}
	}
}

// The sectors that name logical partitions are overwritten from the last one, and their extended partition after them.
func TestWipeOrder(t *testing.T) {
	testenv.Programs(t, "sfdisk")
	image := testenv.SparseFile(t, 64*mib)
	testenv.Run(t, "sh", "-c",
		`printf 'label: dos\nstart=2048, size=81920, type=5\nstart=4096, size=2048\nstart=8192, size=2048\n' |
		PATH=$PATH:/usr/sbin sfdisk -q "$0"`, image)
	l, err := readLayout(t.Context(), image, 64*mib, nil)
	if err != nil {
		t.Fatal(err)
	}
	extended := span{mib, 41 * mib}
	if !slices.Equal(l.extended, []span{extended}) || len(l.tables) != 2 {
		t.Fatalf("got extended partitions %v and tables %v, want %v and two tables", l.extended, l.tables, extended)
	}
	got := l.wipes()
	last, first := slices.Index(got, l.tables[1]), slices.Index(got, l.tables[0])
	inside, outside := slices.Index(got, span{2 * mib, 3 * mib}), slices.Index(got, span{mib, 9 * mib})
	if inside < 0 || inside > last || last > first || first > outside {
		t.Errorf("got %v, want partitions, tables from the last one, %v", got, extended)
	}
}

// Adjacent tables of logical partitions are overwritten by one write per MiB, in reverse order.
func TestWipeTogether(t *testing.T) {
	l := layout{device: span{0, 64 * mib}, ranges: []span{{0, 64 * mib}}}
	for at := int64(16 * mib); at < 18*mib; at += 512 {
		l.tables = append(l.tables, span{at, at + 512})
	}
	l.tables = append(l.tables, span{40 * mib, 40*mib + 512}, span{30 * mib, 30*mib + 512},
		span{30*mib + 512, 30*mib + 1024})
	want := append([]span{
		{30 * mib, 30*mib + 1024}, {40 * mib, 40*mib + 512}, {17 * mib, 18 * mib}, {16 * mib, 17 * mib},
	}, l.device.ends()...)
	if got := l.wipes(); !slices.Equal(got, want) {
		t.Errorf("got %d ranges, want %v", len(got), want)
	}
}

// A range that cannot be read counts neither as one without superblocks nor as zeros.
func TestCheckErrors(t *testing.T) {
	path := testenv.SparseFile(t, mib)
	if err := checkWiped(t.Context(), path, []span{{-mib, mib}}, nil); err == nil ||
		!strings.Contains(err.Error(), "negative offset") {
		t.Errorf("before the start: got %v, want an error", err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := (span{0, 2 * mib}).checkZero(t.Context(), f); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: got %v, want %v", err, io.EOF)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (span{0, mib}).checkZero(cancelled, f); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
	if _, err := kernelRanges(cancelled, sysfs.Root{}, testenv.Loop(t, path, 512)); !errors.Is(err, context.Canceled) {
		t.Errorf("partitions: got %v, want %v", err, context.Canceled)
	}
}

// cancelledAfter returns a context that is cancelled by the n-th call of Err.
func cancelledAfter(t *testing.T, n int) context.Context {
	t.Helper()
	asked := 0
	return hooked{t.Context(), func() error {
		if asked++; asked >= n {
			return context.Canceled
		}
		return nil
	}}
}

// A table can name thousands of partitions. The search for superblocks in them ends with the context.
func TestSuperblocksCancelled(t *testing.T) {
	image := testenv.SparseFile(t, 64*mib)
	var ranges []span
	for at := int64(mib); at < 63*mib; at += mib {
		ranges = append(ranges, span{at, at + mib})
	}
	for name, search := range map[string]func(context.Context) error{
		"layout": func(ctx context.Context) error { _, err := readLayout(ctx, image, 64*mib, ranges); return err },
		"checks": func(ctx context.Context) error { return checkWiped(ctx, image, ranges, nil) },
	} {
		if err := search(cancelledAfter(t, 10)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want %v", name, err, context.Canceled)
		}
		if err := search(cancelledAfter(t, 1000)); err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
	}
}

// A range that a table names several times is listed once.
func TestLayoutOfRepeatedRange(t *testing.T) {
	image := testenv.SparseFile(t, 64*mib)
	known := []span{
		{8 * mib, 16 * mib},
		{0, 64 * mib},
		{8 * mib, 16 * mib},
		{8 * mib, 17 * mib},
		{64 * mib, 65 * mib},
		{60 * mib, 70 * mib},
	}
	l, err := readLayout(t.Context(), image, 64*mib, known)
	want := []span{{0, 64 * mib}, {8 * mib, 16 * mib}, {8 * mib, 17 * mib}, {60 * mib, 64 * mib}}
	if err != nil || !slices.Equal(l.ranges, want) {
		t.Errorf("got %v and %v, want %v", l.ranges, err, want)
	}
}
