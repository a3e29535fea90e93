package partition

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// scarce is a disk image on a file system that has no free space after take was called.
type scarce struct {
	t     *testing.T
	image string
}

// newScarce copies an image to such a file system.
func newScarce(t *testing.T, image string) *scarce {
	t.Helper()
	testenv.Root(t)
	dir := t.TempDir()
	testenv.Mount(t, "tmpfs", dir, "tmpfs", "size=64m")
	t.Cleanup(func() { testenv.Detach(t, dir) })
	s := &scarce{t, filepath.Join(dir, "image")}
	copyFile(t, image, s.image)
	info, err := os.Stat(image)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(s.image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, info.Size()), f.Close()); err != nil {
		t.Fatal(err)
	}
	return s
}

// loop attaches the image. The device stays open, so that the pages that take locks remain in the page cache.
func (s *scarce) loop() (device string, cached *os.File) {
	s.t.Helper()
	device = testenv.Loop(s.t, s.image, 512)
	cached, err := os.Open(device)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = cached.Close() }) // only read
	return device, cached
}

// take deallocates a range of the image, which must be allocated again before it can be written.
func (s *scarce) take(offset, length int64, cached *os.File) {
	s.t.Helper()
	if cached != nil {
		end, err := cached.Seek(0, io.SeekEnd)
		if err != nil {
			s.t.Fatal(err)
		}
		pages, err := unix.Mmap(int(cached.Fd()), offset, int(min(length, end-offset)), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = unix.Munmap(pages) })
		if err := unix.Mlock(pages); err != nil { // which reads them
			s.t.Fatal(err)
		}
	}
	f, err := os.OpenFile(s.image, os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, length)
	if err := errors.Join(err, f.Close()); err != nil {
		s.t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(filepath.Dir(s.image), "filler"))
	if err != nil {
		s.t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	if err := filler.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// Nothing is reported as written before it has reached the device.
func TestSyncErrors(t *testing.T) {
	grown := gptImage(t, 16*mib)
	grow(t, grown, 20*mib)
	for name, c := range map[string]struct {
		image string
		do    func(device string) error
	}{
		"RepairBackup": {grown, func(device string) error {
			moved, err := RepairBackup(t.Context(), device)
			if moved {
				t.Error("RepairBackup: got a moved backup")
			}
			return err
		}},
		"Add to a GPT": {gptImage(t, 16*mib), func(device string) error {
			_, err := Add(t.Context(), sysfs.Root{}, device, Partition{Size: mib})
			return err
		}},
		"Add to an MBR": {mbrImage(t, 16*mib, "label: dos\nstart=2048, size=2048\n"), func(device string) error {
			_, err := Add(t.Context(), sysfs.Root{}, device, Partition{Size: mib})
			return err
		}},
		"Create": {testenv.SparseFile(t, 16*mib), func(device string) error {
			_, err := Create(t.Context(), device, plan(t, Needs{Scheme: GPT, BIOSBoot: mib, Root: 2 * mib}))
			return err
		}},
		"protective MBR": {grown, func(device string) error {
			d, err := open(t.Context(), device, os.O_RDWR)
			if err != nil {
				t.Fatal(err)
			}
			defer d.file.Close() //nolint:errcheck // Sync is what counts
			return d.growProtective()
		}},
	} {
		s := newScarce(t, c.image)
		device, cached := s.loop()
		s.take(0, 20*mib, cached)
		if err := c.do(device); !errors.Is(err, unix.EIO) {
			t.Errorf("%s: got %v, want %v", name, err, unix.EIO)
		}
	}
}

// Each of the writes of Create can be the first that fails.
func TestCreateWriteErrors(t *testing.T) {
	for name, c := range map[string]struct {
		scheme       string
		loop         bool
		offset, size int64 // that cannot be written after the disk was cleared
		want         error
	}{
		"GPT, medium":        {GPT, true, 0, mib, unix.EIO},
		"GPT, backup header": {GPT, false, 8 * mib, 4096, unix.ENOSPC},
		"MBR":                {MBR, false, 0, mib, unix.ENOSPC},
		"MBR, medium":        {MBR, true, 0, mib, unix.EIO},
		"partition, medium":  {MBR, true, 2 * mib, mib, unix.EIO},
	} {
		layout := plan(t, Needs{Scheme: c.scheme, BIOSBoot: mib, Root: 2 * mib})
		create := func(device string) func(context.Context) error {
			return func(ctx context.Context) error { _, err := Create(ctx, device, layout); return err }
		}
		s := newScarce(t, testenv.SparseFile(t, 8*mib+512)) // the last sector has a page of its own
		device, n := s.image, asked(t, create(testenv.SparseFile(t, 8*mib+512)))
		if c.loop {
			device, _ = s.loop()
		}
		err := create(device)(atLast(t, n, func() { s.take(c.offset, c.size, nil) }))
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// The header of the backup can be the first write of Add that fails.
func TestAddWriteErrors(t *testing.T) {
	s := newScarce(t, gptImage(t, 16*mib+512)) // the last sector has a page of its own
	s.take(16*mib, 4096, nil)
	if _, err := Add(t.Context(), sysfs.Root{}, s.image, Partition{Size: mib}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want %v", err, unix.ENOSPC)
	}
}

// Space beside the partitions that cannot be zeroed is an error.
func TestWipeGapsWriteErrors(t *testing.T) {
	s := newScarce(t, gptImage(t, 32*mib))
	s.take(16*mib, mib, nil)
	if err := WipeGaps(t.Context(), s.image); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want %v", err, unix.ENOSPC)
	}
}
