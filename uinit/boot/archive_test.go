//go:build linux

package boot

import (
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

// The limit of the root file system is raised to half of the memory, and never lowered.
func TestGrowRoot(t *testing.T) {
	testenv.Root(t)
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	memory := totalMemory(&info)
	capacity := func(dir string) int64 {
		var s unix.Statfs_t
		if err := unix.Statfs(dir, &s); err != nil {
			t.Fatal(err)
		}
		return int64(s.Blocks) * s.Bsize
	}
	for size, want := range map[string]int64{"10%": 50, "50%": 50, "75%": 75} {
		dir := t.TempDir()
		testenv.Mount(t, "tmpfs", dir, "tmpfs", "size="+size)
		t.Cleanup(func() { testenv.Detach(t, dir) })
		b := &boot{log: slog.New(slog.DiscardHandler)}
		b.growRoot(dir, capacity(dir), memory)
		if got := (capacity(dir)*100 + memory/2) / memory; got != want {
			t.Errorf("limit of %s: got %d %% of the memory, want %d %%", size, got, want)
		}
	}
}
