package raidtest_test

import (
	"testing"

	"ironroot/internal/test/raidtest"
)

// The kernel of this package does what tests rely on. TestGuest of storage/raid checks the same with Debian's kernel.
func TestKernel(t *testing.T) {
	k := raidtest.NewKernel(t)
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
