package mkfs

import (
	"fmt"
	"strings"
	"testing"


	"ironroot/internal/testenv"
)

// makeFile makes a file system in a sparse file.
func makeFile(t *testing.T, kind string, size int64, o Options) string {
	t.Helper()
	path := testenv.SparseFile(t, size)
	if err := Make(t.Context(), path, kind, o); err != nil {
		t.Fatalf("%s of %d bytes: %v", kind, size, err)
	}
	return path
}

// e2fsck fails the test unless there is nothing to repair.
func e2fsck(t *testing.T, path string) {
	t.Helper()
	if out := testenv.Run(t, "e2fsck", "-fn", path); strings.Contains(out, "WARNING") {
		t.Errorf("e2fsck says %s", out)
	}
}

func TestExt(t *testing.T) {
	testenv.Programs(t, "e2fsck", "blkid")
	for _, c := range []struct {
		kind  string
		size  int64
		bytes int64 // that may be written at most
	}{
		{"ext4", mib, mib},
		{"ext4", 2*mib - 512, mib},
		{"ext4", 3 * mib, mib},
		{"ext4", 8*mib + 1024, mib}, // a last group too small for itself
		{"ext4", 100 * mib, mib},
		{"ext4", 512*mib - 512, mib},
		{"ext4", 512 * mib, mib},
		{"ext4", 4*gib + 12345*512, mib},
		{"ext4", 100 * gib, 4 * mib},
		{"ext4", tib, 32 * mib},
		{"ext4", 16 * tib, 300 * mib},
		{"ext3", mib, mib},
		{"ext3", 200 * mib, 2 * mib},
		{"ext3", 100 * gib, 20 * mib},
		{"ext3", tib, 120 * mib},
		{"ext2", mib, mib},
		{"ext2", 10 * gib, 8 * mib},
	} {
		t.Run(fmt.Sprintf("%s of %d MiB", c.kind, c.size/mib), func(t *testing.T) {
			path := makeFile(t, c.kind, c.size, Options{Label: "ephemeral0", UUID: someUUID})
			if got := used(t, path); got > c.bytes {
				t.Errorf("got %d bytes written, want %d at most", got, c.bytes)
			}
			if c.size < 2*tib { // beyond, e2fsck needs minutes
				e2fsck(t, path)
			}
			out := testenv.Run(t, "blkid", "-p", path)
			mustContain(t, out, `LABEL="ephemeral0"`, ` UUID="`+someUUID+`"`)
			if kind := c.kind; c.size > 3*mib && !strings.Contains(out, fmt.Sprintf(` TYPE="%s"`, kind)) {
				t.Errorf("got %s, want %s", out, kind)
			}
		})
	}
}
