package raidtest_test

import (
	"os"
	"testing"

	"ironroot/agent/softraid"
	"ironroot/internal/test/raidtest"
	"ironroot/storage/sysfs"
)

// The kernel of this package does what tests rely on. TestGuest of storage/raid checks the same with Debian's kernel.
func TestKernel(t *testing.T) { check(t, raidtest.NewKernel(t)) }

// So does the kernel of this machine, if it has software RAID and no arrays.
func TestThisKernel(t *testing.T) {
	k := softraid.NewKernel(sysfs.Root{})
	if _, err := os.Stat("/sys/module/md_mod"); err != nil {
		t.Skip("the kernel has no software RAID: TestGuest of storage/raid checks Debian's kernel")
	}
	if list, err := k.List(t.Context()); err != nil || len(list) > 0 {
		t.Skipf("got arrays %+v and %v, want none", list, err)
	}
	check(t, k)
}

func check(t *testing.T, k raidtest.Arrays) {
	t.Helper()
	var disks []string
	for range raidtest.CaseDisks {
		disks = append(disks, raidtest.BlankDisk(t, raidtest.DiskSize).Path)
	}
	for _, r := range raidtest.Cases(t.Context(), k, disks) {
		if r.Err != nil {
			t.Errorf("%s: %v", r.Name, r.Err)
		}
	}
}
