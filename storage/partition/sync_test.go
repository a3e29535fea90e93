package partition

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

func TestSync(t *testing.T) {
	device := testenv.Loop(t, gptImage(t, 32*mib), 512)
	ctx, sys := context.Background(), sysfs.Root{}
	check := func(want map[int]extent) {
		t.Helper()
		if err := Sync(ctx, sys, device); err != nil {
			t.Fatal(err)
		}
		got, err := (&plainDisk{sys, device}).partitions(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(extent{})); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	check(map[int]extent{1: {mib, 8 * mib}, 3: {9 * mib, 4 * mib}})
	path, err := block.WaitPartition(ctx, sys, device, 3)
	if err != nil || path != block.PartitionPath(sysfs.Root{}, device, 3) {
		t.Errorf("got %q, %v", path, err)
	}
	testenv.Run(t, "sgdisk", "-d", "1", "-n", "2:26624:+2M", device)
	check(map[int]extent{2: {13 * mib, 2 * mib}, 3: {9 * mib, 4 * mib}})
	known := func() int {
		parts, err := block.Partitions(ctx, sys, device)
		if err != nil {
			t.Fatal(err)
		}
		return len(parts)
	}
	// Only the partitions of a map prevent an exclusive open of the disk.
	if err := Release(ctx, sys, device); err != nil || known() != 2 {
		t.Errorf("release: got %v and %d partitions, want the two that there were", err, known())
	}
	if err := Forget(ctx, sys, device); err != nil || known() != 0 {
		t.Errorf("forget: got %v and %d partitions, want none", err, known())
	}
	testenv.Run(t, "sgdisk", "-Z", device)
	check(map[int]extent{})
}

// While a partition is in use, the kernel does not reread the table, but the other partitions are updated.
func TestSyncInUse(t *testing.T) {
	testenv.Programs(t, "mkfs.ext4")
	device := testenv.Loop(t, gptImage(t, 32*mib), 512)
	ctx, sys := context.Background(), sysfs.Root{}
	if err := Sync(ctx, sys, device); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "mkfs.ext4", "-q", block.PartitionPath(sysfs.Root{}, device, 1))
	dir := t.TempDir()
	testenv.Mount(t, block.PartitionPath(sysfs.Root{}, device, 1), dir, "ext4", "")
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if _, err := Add(ctx, sys, device, Partition{Size: 4 * mib}); err != nil {
		t.Fatal(err)
	}
	if err := Sync(ctx, sys, device); err != nil {
		t.Fatal(err)
	}
	got, err := (&plainDisk{sys, device}).partitions(ctx)
	if err != nil || len(got) != 3 {
		t.Errorf("got %v, %v, want three partitions", got, err)
	}
}

// The kernel creates no partitions of some devices, such as a loop device without the flag.
func TestSyncWithoutPartitions(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "losetup")
	path := strings.TrimSpace(testenv.Run(t, "losetup", "--find", "--show", testenv.SparseFile(t, 32*mib)))
	defer func() { testenv.Run(t, "losetup", "--detach", path) }()
	if err := block.Rescan(context.Background(), path); !errors.Is(err, unix.EINVAL) {
		t.Fatalf("rescan: got %v, this device was to refuse it with %v", err, unix.EINVAL)
	}
	if err := Sync(context.Background(), sysfs.Root{}, path); err != nil {
		t.Errorf("got %v, want no error where there is nothing to do", err)
	}
}
