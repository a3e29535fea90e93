package mkfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
)

// e2fsck fails the test if there is anything to repair.
func e2fsck(t *testing.T, path string) {
	t.Helper()
	if out := testenv.Run(t, "e2fsck", "-fn", path); strings.Contains(out, "WARNING") {
		t.Errorf("e2fsck says %s", out)
	}
}

func TestExt(t *testing.T) {
	testenv.Programs(t, "e2fsck", "blkid")
	dir := tmpfs(t) // which has larger files than the file systems of most machines
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
		{"ext4", 17 * tib, 300 * mib},
		{"ext3", mib, mib},
		{"ext3", 200 * mib, 2 * mib},
		{"ext3", 100 * gib, 20 * mib},
		{"ext2", mib, mib},
		{"ext2", 10 * gib, 8 * mib},
	} {
		t.Run(fmt.Sprintf("%s of %d MiB", c.kind, c.size/mib), func(t *testing.T) {
			path := filepath.Join(dir, "disk")
			sparse(t, path, c.size)
			if err := Make(t.Context(), path, c.kind, Options{Label: "ephemeral0", UUID: someUUID}); err != nil {
				t.Fatal(err)
			}
			if got := used(t, path); got > c.bytes {
				t.Errorf("got %d bytes written, want %d at most", got, c.bytes)
			}
			if c.size <= tib { // beyond, e2fsck takes too long for every run
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

// The kernel mounts the file system and keeps files in it, and e2fsck finds no problem afterwards.
func TestExtMounted(t *testing.T) {
	testenv.Programs(t, "e2fsck")
	for _, c := range []struct {
		kind   string
		size   int64
		sector int
	}{
		{"ext4", mib, 512},
		{"ext4", 64 * mib, 512},
		{"ext4", 64 * mib, 4096},
		{"ext4", 511 * mib, 4096},
		{"ext4", 3 * gib, 512},
		{"ext4", 200 * gib, 4096},
		{"ext3", 64 * mib, 512},
		{"ext3", 9 * gib, 512},
		{"ext2", 64 * mib, 4096},
	} {
		t.Run(fmt.Sprintf("%s of %d MiB in sectors of %d", c.kind, c.size/mib, c.sector), func(t *testing.T) {
			loop := testenv.Loop(t, testenv.SparseFile(t, c.size), c.sector)
			if err := Make(t.Context(), loop, c.kind, Options{Label: "ephemeral0"}); err != nil {
				t.Fatal(err)
			}
			keepFiles(t, loop, c.kind, c.size/4)
			e2fsck(t, loop)
		})
	}
}

// The parameters of a file system equal mke2fs's, except for the blocks reserved for growth, times and random numbers.
func TestExtAsMke2fs(t *testing.T) {
	testenv.Programs(t, "mke2fs", "dumpe2fs")
	other := []string{
		"Reserved GDT blocks", "Overhead clusters", "Free blocks", "Filesystem created", "Last write time",
		"Last checked", "Lifetime writes", "Directory Hash Seed", "Checksum", "Journal checksum", "Journal sequence",
	}
	facts := func(t *testing.T, path string) map[string]string {
		found := map[string]string{}
		for line := range strings.Lines(testenv.Run(t, "dumpe2fs", "-h", path)) {
			if key, value, ok := strings.Cut(line, ":"); ok && !slices.Contains(other, key) {
				found[key] = strings.TrimSpace(strings.ReplaceAll(value, " resize_inode", ""))
			}
		}
		if len(found) < 30 {
			t.Errorf("dumpe2fs tells %d facts only: %v", len(found), found)
		}
		return found
	}
	for _, kind := range []string{"ext4", "ext3", "ext2"} {
		for _, size := range []int64{
			mib, 2 * mib, 5 * mib, 100 * mib, 128*mib + 4096, 600 * mib, 1000 * mib, 9 * gib, 20*gib - 4096,
		} {
			if kind != "ext4" && size > 2*gib {
				continue // mke2fs takes its time
			}
			path, reference := testenv.SparseFile(t, size), testenv.SparseFile(t, size)
			if err := Make(t.Context(), path, kind, Options{UUID: someUUID}); err != nil {
				t.Fatal(err)
			}
			testenv.Run(t, "mke2fs", "-q", "-t", kind, "-U", someUUID,
				"-E", "lazy_itable_init,lazy_journal_init,nodiscard", reference)
			got, want := facts(t, path), facts(t, reference)
			if size < 512*mib { // fewer groups lie together there, and what is reserved for root may differ by a block
				for _, key := range []string{"Flex block group size", "Reserved block count"} {
					delete(got, key)
					delete(want, key)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s of %d bytes is not as mke2fs makes it (-want +got):\n%s", kind, size, diff)
			}
		}
	}
}

// The file system can be grown, although no blocks are reserved for that.
func TestExtGrows(t *testing.T) {
	testenv.Programs(t, "e2fsck", "resize2fs")
	path := testenv.SparseFile(t, gib)
	if err := Make(t.Context(), path, "ext4", Options{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 50*gib); err != nil {
		t.Fatal(err)
	}
	mustContain(t, testenv.Run(t, "resize2fs", "-f", path), fmt.Sprintf("now %d (4k) blocks", 50*gib/4096))
	e2fsck(t, path)
}

// Transactions of an old journal do not continue the new one: each starts from a random number.
func TestExtJournalNumber(t *testing.T) {
	testenv.Programs(t, "dumpe2fs")
	path, last := testenv.SparseFile(t, gib), ""
	for range 2 {
		if err := Make(t.Context(), path, "ext4", Options{}); err != nil {
			t.Fatal(err)
		}
		_, number, _ := strings.Cut(testenv.Run(t, "dumpe2fs", "-h", path), "Journal sequence:")
		if number, _, _ = strings.Cut(strings.TrimSpace(number), "\n"); number == last || number == "" {
			t.Errorf("two journals count from %q", number)
		}
		last = number
	}
}
