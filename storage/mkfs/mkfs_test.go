package mkfs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

const (
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40

	someUUID = "0f8a2f5c-6c1d-4c5e-9b1a-1234567890ab"
)

// used returns the number of allocated bytes of a sparse file.
func used(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// mustContain fails the test for every text that is not in a program's output.
func mustContain(t *testing.T, output string, want ...string) {
	t.Helper()
	for _, text := range want {
		if !strings.Contains(output, text) {
			t.Errorf("got %s\nwant %s in it", output, text)
		}
	}
}

func TestSwap(t *testing.T) {
	testenv.Programs(t, "blkid", "swaplabel", "mkswap")
	for _, c := range []struct {
		size  int64
		label string
	}{
		{40 << 10, ""}, {mib, "swap1"}, {gib + 512, "exactly15bytes."}, {tib, "größe"},
	} {
		t.Run(fmt.Sprint(c.size), func(t *testing.T) {
			path, reference := testenv.SparseFile(t, c.size), testenv.SparseFile(t, c.size)
			if err := Make(t.Context(), path, "swap", Options{Label: c.label, UUID: someUUID}); err != nil {
				t.Fatal(err)
			}
			testenv.Run(t, "mkswap", "-q", "-U", someUUID, "-L", c.label, reference)
			if got, want := at(t, path, 0, swapPage), at(t, reference, 0, swapPage); !bytes.Equal(got, want) {
				t.Error("the header is not mkswap's")
			}
			mustContain(t, testenv.Run(t, "blkid", "-p", path), `TYPE="swap"`, `UUID="`+someUUID+`"`)
			mustContain(t, testenv.Run(t, "swaplabel", path), someUUID, c.label)
			if got := used(t, path); got > 64<<10 {
				t.Errorf("got %d bytes written, want one page", got)
			}
		})
	}
}

// The kernel accepts the swap area, also on disks with large sectors.
func TestSwapOn(t *testing.T) {
	testenv.Programs(t, "swapon", "swapoff")
	for _, sector := range []int{512, 4096} {
		path := testenv.SparseFile(t, 64*mib)
		loop := testenv.Loop(t, path, sector)
		if err := Make(t.Context(), loop, "swap", Options{}); err != nil {
			t.Fatal(err)
		}
		testenv.Run(t, "swapon", loop)
		testenv.Run(t, "swapoff", loop)
	}
}

// at reads a range of bytes.
func at(t *testing.T, path string, off, n int64) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, off); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		kind, label, uuid string
		size              int64
		want              []string
	}{
		{"btrfs", "", "", mib, []string{"btrfs", "file system cannot be made", "swap"}},
		{"", "", "", mib, []string{"cannot be made"}},
		{"swap", "seventeen letters", "", mib, []string{"seventeen letters", "17", "15"}},
		{"swap", "a\x00b", "", mib, []string{"zero byte"}},
		{"swap", "", "no-uuid", mib, []string{"no-uuid"}},
		{"swap", "", strings.Repeat("0", 36), mib, []string{"want the form"}},
		{"swap", "", "", 36 << 10, []string{"36864", "40960"}},
	} {
		t.Run(c.kind+c.label, func(t *testing.T) {
			path := testenv.SparseFile(t, c.size)
			err := Make(t.Context(), path, c.kind, Options{Label: c.label, UUID: c.uuid})
			if err == nil {
				t.Fatal("got no error")
			}
			mustContain(t, err.Error(), append(c.want, path)...)
			if got := used(t, path); got != 0 {
				t.Errorf("the device was touched: %d bytes", got)
			}
		})
	}
	if err := Make(t.Context(), "/nonexistent", "btrfs", Options{}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
	if err := Make(t.Context(), "/nonexistent", "swap", Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that there is no such device", err)
	}
}

// A device in use is not written.
func TestBusy(t *testing.T) {
	loop := testenv.Loop(t, testenv.SparseFile(t, 8*mib), 512)
	holder, err := os.OpenFile(loop, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if err := Make(t.Context(), loop, "swap", Options{}); !errors.Is(err, unix.EBUSY) {
		t.Errorf("got %v, want EBUSY", err)
	}
}

// No old content of a device is recognised next to the new file system.
func TestRemains(t *testing.T) {
	testenv.Programs(t, "wipefs", "mke2fs", "mkfs.vfat", "mkfs.xfs", "sgdisk")
	for _, k := range kinds() {
		if slices.Contains([]string{"ext2", "ext3", "msdos"}, k.name) { // as ext4 and vfat
			continue
		}
		path := testenv.SparseFile(t, 301*mib)
		testenv.Run(t, "mkfs.xfs", "-q", "-f", path)
		testenv.Run(t, "mkfs.vfat", "-I", "-F", "16", path)
		testenv.Run(t, "mke2fs", "-q", "-F", "-E", "nodiscard", path)
		testenv.Run(t, "sgdisk", "-n", "1:0:0", path)
		if err := Make(t.Context(), path, k.name, Options{}); err != nil {
			t.Fatal(err)
		}
		out := testenv.Run(t, "wipefs", "--noheadings", "--output", "TYPE", path)
		if got := slices.Compact(strings.Fields(out)); !slices.Equal(got, []string{k.name}) {
			t.Errorf("wipefs sees %q, want %s", got, k.name)
		}
	}
}

// tmpfs mounts a tmpfs until the test ends.
func tmpfs(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	dir := t.TempDir()
	mount(t, "tmpfs", dir, "tmpfs")
	return dir
}

func mount(t *testing.T, device, dir, kind string) (unmount func()) {
	t.Helper()
	testenv.Mount(t, device, dir, kind, "")
	unmount = sync.OnceFunc(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	t.Cleanup(unmount)
	return unmount
}

// sparse makes a new sparse file.
func sparse(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// keepFiles mounts a new file system, writes a directory and a file of up to 8 MiB, and compares them after a second
// mount.
func keepFiles(t *testing.T, device, kind string, size int64) {
	t.Helper()
	dir := t.TempDir()
	content := make([]byte, min(size, 8*mib))
	rand.NewChaCha8([32]byte{1}).Read(content) //nolint:errcheck // never fails
	unmount := mount(t, device, dir, kind)
	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o755); err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for i := range 20 {
		names = append(names, fmt.Sprintf("directory/a rather long name %03d", i))
		if err := os.WriteFile(filepath.Join(dir, names[i]), []byte(names[i]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "large"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	unmount()
	unmount = mount(t, device, dir, kind)
	for _, name := range names {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != name {
			t.Errorf("got %q, %v, want %q", got, err, name)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "large")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the file of %d bytes is not as it was, %v", len(content), err)
	}
	unmount()
}

// File systems of any size and label are valid. The random numbers are the same in every run.
func TestAnySize(t *testing.T) {
	testenv.Programs(t, "e2fsck", "xfs_repair", "fsck.vfat")
	for _, c := range []struct {
		kinds     []string
		runs      int
		doublings int    // of the smallest size
		letters   string // of which a label is made
		check     func(*testing.T, string)
	}{
		{[]string{"ext4", "ext4", "ext3", "ext2"}, 40, 15, "é", e2fsck},
		{[]string{"vfat"}, 60, 18, "x", func(t *testing.T, path string) { testenv.Run(t, "fsck.vfat", "-n", path) }},
		{[]string{"xfs"}, 12, 14, "é", xfsRepair},
	} {
		random := rand.New(rand.NewPCG(1, 2))
		for range c.runs {
			name := c.kinds[random.IntN(len(c.kinds))]
			all := kinds()
			k := all[slices.IndexFunc(all, func(k kind) bool { return k.name == name })]
			size := k.min << random.IntN(c.doublings)
			size += random.Int64N(size/512) * 512
			label := strings.Repeat(c.letters, random.IntN(k.maxLabel/len(c.letters)+1))
			t.Run(fmt.Sprintf("%s of %d bytes, label %q", name, size, label), func(t *testing.T) {
				path := testenv.SparseFile(t, size)
				if err := Make(t.Context(), path, name, Options{Label: label}); err != nil {
					t.Fatal(err)
				}
				c.check(t, path)
			})
		}
	}
}
