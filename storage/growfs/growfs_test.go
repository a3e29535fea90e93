//go:build linux

package growfs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/mkfs"
	"ironroot/storage/mounted"
)

// A file system of each kind, made by its own tool or by this project's, has the size of the device afterwards, its
// files are unchanged, and the checker of the kind finds no error.
func TestGrow(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "mkfs.ext4", "e2fsck", "dumpe2fs", "mkfs.xfs", "xfs_repair", "xfs_db", "mkfs.btrfs", "btrfs",
		"blockdev")
	const before, after = 400 << 20, 1100<<20 + 4096
	ext4Check := []string{"e2fsck", "-fn"}
	for name, tt := range map[string]struct {
		kind        string
		make, check []string // nil make: by package mkfs
	}{
		"ext4":       {"ext4", []string{"mkfs.ext4", "-q"}, ext4Check},
		"small ext4": {"ext4", []string{"mkfs.ext4", "-q", "-b", "1024"}, ext4Check},
		"ext4 with verity": { // as bootc makes it
			"ext4", []string{"mkfs.ext4", "-q", "-O", "verity"}, ext4Check,
		},
		"ext4 without reserved space": {"ext4", []string{"mkfs.ext4", "-q", "-O", "^resize_inode"}, ext4Check},
		"ext4 of mkfs":                {"ext4", nil, ext4Check},
		"xfs":                         {"xfs", []string{"mkfs.xfs", "-q"}, []string{"xfs_repair", "-n"}},
		"btrfs": {
			"btrfs", []string{"mkfs.btrfs", "-q"}, []string{"btrfs", "check", "--readonly"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			image := testenv.SparseFile(t, before)
			device := testenv.Loop(t, image, 512)
			if tt.make == nil {
				if err := mkfs.Make(t.Context(), device, tt.kind, mkfs.Options{}); err != nil {
					t.Fatal(err)
				}
			} else {
				testenv.Run(t, tt.make[0], append(tt.make[1:], device)...)
			}
			content := bytes.Repeat([]byte("content\n"), 1<<18)
			writeFile(t, device, content)
			if err := os.Truncate(image, after); err != nil {
				t.Fatal(err)
			}
			loop, err := os.OpenFile(device, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer loop.Close()
			if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
				t.Fatal(err)
			}
			permitted := tt.kind != "ext4" || isCapable(t, unix.CAP_SYS_RESOURCE)
			for range 2 { // it is not an error that nothing is left to do
				err := Grow(t.Context(), device)
				if !permitted && errors.Is(err, unix.EPERM) { // the file system stays as it is
					err = nil
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			testenv.Run(t, tt.check[0], append(tt.check[1:], device)...)
			want := int64(after)
			if !permitted {
				want = before
			}
			if got := sizeOf(t, tt.kind, device); got > want || got < want-128<<20 {
				t.Errorf("got %d bytes, want %d", got, want)
			}
			fs, err := mounted.Open(t.Context(), device, false)
			if err != nil {
				t.Fatal(err)
			}
			defer fs.Close()
			f, err := fs.Open("file")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var got bytes.Buffer
			if _, err := got.ReadFrom(f); err != nil || !bytes.Equal(got.Bytes(), content) {
				t.Errorf("got other content (%v)", err)
			}
		})
	}
}

// isCapable reports whether this process has a capability. Many containers do not have the one to enlarge ext4;
// lab/e2e/images.TestContainers does it in a machine.
func isCapable(t *testing.T, capability uint) bool {
	t.Helper()
	var sets [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &sets[0]); err != nil {
		t.Fatal(err)
	}
	return sets[capability/32].Effective>>(capability%32)&1 == 1
}

// writeFile writes a file to the file system of a device.
func writeFile(t *testing.T, device string, content []byte) {
	t.Helper()
	fs, err := mounted.Open(t.Context(), device, true)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fs.OpenFile("file", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), fs.Close()); err != nil {
		t.Fatal(err)
	}
}

// sizeOf returns the size of a file system as the tools of its kind print it.
func sizeOf(t *testing.T, kind, device string) int64 {
	t.Helper()
	number := func(text, name string) int64 {
		for line := range strings.Lines(text) {
			key, value, ok := strings.Cut(strings.ReplaceAll(line, "\t", " "), name)
			if !ok || strings.TrimSpace(key) != "" {
				continue
			}
			n, err := strconv.ParseInt(strings.TrimSpace(strings.Trim(strings.TrimSpace(value), ":=")), 10, 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return n
		}
		t.Fatalf("no %s in %s", name, text)
		return 0
	}
	switch kind {
	case "ext4":
		text := testenv.Run(t, "dumpe2fs", "-h", device)
		return number(text, "Block count") * number(text, "Block size")
	case "xfs":
		text := testenv.Run(t, "xfs_db", "-r", "-c", "sb 0", "-c", "p dblocks blocksize", device)
		return number(text, "dblocks") * number(text, "blocksize")
	default:
		return number(testenv.Run(t, "btrfs", "inspect-internal", "dump-super", device), "total_bytes")
	}
}

// A file system that Grow cannot enlarge is an error that names the device, and is not changed.
func TestGrowFails(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "mkfs.vfat", "mkfs.ext4")
	for name, tt := range map[string]struct {
		make []string
		want error
	}{
		"nothing": {[]string{"true"}, ErrUnsupported},
		"vfat":    {[]string{"mkfs.vfat"}, ErrUnsupported},
	} {
		device := testenv.Loop(t, testenv.SparseFile(t, 64<<20), 512)
		testenv.Run(t, tt.make[0], append(tt.make[1:], device)...)
		if err := Grow(t.Context(), device); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), device) {
			t.Errorf("%s: got %v, want %v with the device", name, err, tt.want)
		}
	}
	// Its superblock is valid, but the kernel rejects it: it is longer than the device.
	image := testenv.SparseFile(t, 64<<20)
	testenv.Run(t, "mkfs.ext4", "-q", "-F", image)
	if err := os.Truncate(image, 32<<20); err != nil {
		t.Fatal(err)
	}
	device := testenv.Loop(t, image, 512)
	if err := Grow(t.Context(), device); err == nil || !strings.Contains(err.Error(), filepath.Base(device)) {
		t.Errorf("got %v, want an error", err)
	}
}
