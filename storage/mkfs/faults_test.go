package mkfs

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

// mustBeNothing fails the test if blkid recognises a signature.
func mustBeNothing(t *testing.T, path string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "/usr/sbin/blkid", "-p", path).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || len(out) > 0 {
		t.Errorf("got %v, blkid sees %q, want nothing", err, out)
	}
}

// ending is a context that ends at the n-th call of Err.
type ending struct {
	context.Context
	left int
}

func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

// After a cancellation at any point, blkid recognises neither the old content nor the new file system.
func TestCancelled(t *testing.T) {
	testenv.Programs(t, "blkid")
	for _, k := range kinds() {
		path := testenv.SparseFile(t, gib)
		times := 0
		for ; times < 1000; times++ {
			if err := Make(t.Context(), path, "swap", Options{}); err != nil {
				t.Fatal(err)
			}
			err := Make(&ending{context.Background(), times}, path, k.name, Options{})
			if err == nil {
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s, cancelled at %d: got %v", k.name, times, err)
			}
			if times > 0 { // before, nothing was touched
				mustBeNothing(t, path)
			}
		}
		if times < 2 || times == 1000 {
			t.Errorf("%s asks its context %d times", k.name, times)
		}
	}
}

// A device that fails in the middle: a loop device whose file is in a tmpfs that is too small.
func TestFailingDevice(t *testing.T) {
	testenv.Programs(t, "blkid")
	dir := t.TempDir()
	for _, k := range kinds() {
		if k.name == "swap" { // is written at once
			continue
		}
		func() {
			testenv.Root(t)
			testenv.Mount(t, "tmpfs", dir, "tmpfs", "size=48k")
			t.Cleanup(func() { testenv.Detach(t, dir) })
			path := filepath.Join(dir, "disk")
			sparse(t, path, 8*gib)
			loop := testenv.Loop(t, path, 512)
			if err := Make(t.Context(), loop, k.name, Options{}); !errors.Is(err, unix.EIO) &&
				!errors.Is(err, unix.ENOSPC) {
				t.Errorf("%s: got %v, want an input/output error", k.name, err)
			}
			mustBeNothing(t, loop)
		}()
	}
}

// Old content where a file system does not write does no harm. The file is in a ramfs, which cannot zero ranges; its
// old content looks like transactions of a journal, records of a log, inodes and directory entries.
func TestOverRemains(t *testing.T) {
	testenv.Programs(t, "e2fsck", "xfs_repair", "fsck.vfat")
	testenv.Root(t)
	dir := t.TempDir()
	mount(t, "ramfs", dir, "ramfs")
	old := append([]byte("\xc0\x3b\x39\x98\x00\x00\x00\x02\x00\x00\x00\x02\xfe\xed\xba\xbe\x00\x00\x00\x01"+
		"IN\x81\xa4\x03\x02"),
		bytes.Repeat([]byte("\x0c\x00\x00\x00\x0c\x00\x01\x02.\xff\xff\xff"), 1000)...)
	for _, k := range kinds() {
		size := max(k.min, 600*mib)
		path := filepath.Join(dir, "disk")
		testenv.Fill(t, path, 0, size, string(old[:4096]))
		if err := Make(t.Context(), path, k.name, Options{}); err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasPrefix(k.name, "ext"):
			e2fsck(t, path)
			keepFiles(t, testenv.Loop(t, path, 512), k.name, mib)
			e2fsck(t, path)
		case k.name == "xfs":
			xfsRepair(t, path)
			keepFiles(t, testenv.Loop(t, path, 512), k.name, mib)
			xfsRepair(t, path)
		case k.name == "vfat", k.name == "msdos":
			testenv.Run(t, "fsck.vfat", "-n", path)
		}
	}
}
