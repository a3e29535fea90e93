package generic

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/raidtest"
)

// TestSyncStuck with the kernel: sync(2) does not return while a disk hangs.
func TestSyncStuckDisk(t *testing.T) {
	stuck, thaw := raidtest.StuckDisk(t)
	disk, err := os.OpenFile(stuck.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		thaw() // close waits for the kernel
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := disk.Write(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = newManager(t, stuck).Sync(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "sync: ") {
		t.Errorf("got %v, want sync(2) to be stuck", err)
	}
}
