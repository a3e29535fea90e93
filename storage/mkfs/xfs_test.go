package mkfs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

// xfsRepair fails the test if there is anything to repair.
func xfsRepair(t *testing.T, path string) {
	t.Helper()
	args := []string{"-n", path}
	if !strings.HasPrefix(path, "/dev/") {
		args = []string{"-n", "-f", path}
	}
	out := testenv.Run(t, "xfs_repair", args...)
	for _, text := range []string{"bad ", "would ", "inconsistent", "wrong", "mismatch "} {
		if strings.Contains(strings.ReplaceAll(out, "sector size mismatch", ""), text) {
			t.Fatalf("xfs_repair says %s", out)
		}
	}
}

func TestXFS(t *testing.T) {
	testenv.Programs(t, "xfs_repair", "blkid")
	dir := tmpfs(t)
	for _, size := range []int64{300 * mib, gib + 12345*512, 100 * gib, tib, 4*tib - 4096, 4 * tib, 17*tib + gib} {
		t.Run(fmt.Sprintf("%d MiB", size/mib), func(t *testing.T) {
			path := filepath.Join(dir, "disk")
			sparse(t, path, size)
			if err := Make(t.Context(), path, "xfs", Options{Label: "ephemeral0", UUID: someUUID}); err != nil {
				t.Fatal(err)
			}
			if got := used(t, path); got > mib {
				t.Errorf("got %d bytes written, want %d at most", got, mib)
			}
			xfsRepair(t, path)
			mustContain(t, testenv.Run(t, "blkid", "-p", path), ` LABEL="ephemeral0"`, ` UUID="`+someUUID+`"`,
				` TYPE="xfs"`)
		})
	}
}

// Every byte equals mkfs.xfs's, except for times.
func TestXFSAsMkfs(t *testing.T) {
	testenv.Programs(t, "mkfs.xfs")
	for _, c := range []struct {
		size   int64
		sector int
	}{{300 * mib, 512}, {gib + 4097*512, 512}, {gib, 4096}, {130 * gib, 512}, {tib, 4096}} {
		t.Run(fmt.Sprintf("%d MiB in sectors of %d", c.size/mib, c.sector), func(t *testing.T) {
			path := testenv.Loop(t, testenv.SparseFile(t, c.size), c.sector)
			judge := testenv.Loop(t, testenv.SparseFile(t, c.size), c.sector)
			if err := Make(t.Context(), path, "xfs", Options{Label: "ephemeral0", UUID: someUUID}); err != nil {
				t.Fatal(err)
			}
			testenv.Run(t, "mkfs.xfs", "-q", "-K", "-L", "ephemeral0", "-m", "uuid="+someUUID, judge)
			x := newXFS(&device{size: c.size, sector: int64(c.sector)}, volume{})
			for g := range x.groups {
				start, n := g*x.group*xfsBlock, (x.reserve(g)+2)*xfsBlock
				if g == x.logGroup() {
					n = (x.reserve(g) - x.log + 2) * xfsBlock
				}
				got, want := at(t, path, start, n), at(t, judge, start, n)
				if g > 0 { // mkfs.xfs leaves the copies of the superblock without what comes to be known later
					clear(got[:c.sector])
					clear(want[:c.sector])
				}
				differ(t, fmt.Sprintf("group %d", g), got, want)
			}
			n := int64(xfsChunk * xfsInode)
			got, want := at(t, path, x.chunk*xfsBlock, n), at(t, judge, x.chunk*xfsBlock, n)
			for _, b := range [][]byte{got, want} {
				for i := range xfsUsedInodes {
					inode := b[i*xfsInode:]
					clear(inode[32:56])   // accessed, modified, changed
					clear(inode[100:104]) // checksum
					clear(inode[144:152]) // created
				}
			}
			differ(t, "inodes", got, want)
		})
	}
}

// differ fails the test with the first offset at which two ranges differ.
func differ(t *testing.T, what string, got, want []byte) {
	t.Helper()
	for i := range got {
		if got[i] != want[i] {
			from := i &^ 15
			t.Errorf("%s at byte %#x: got %x, want %x", what, i, got[from:from+16], want[from:from+16])
			return
		}
	}
}

// The kernel mounts the file system and keeps files in it, and xfs_repair finds no problem afterwards. Old content of
// the device is not taken for a log.
func TestXFSMounted(t *testing.T) {
	testenv.Programs(t, "xfs_repair")
	for _, c := range []struct {
		size   int64
		sector int
	}{{300 * mib, 512}, {gib, 4096}, {2 * tib, 512}, {9 * tib, 4096}} {
		t.Run(fmt.Sprintf("%d MiB in sectors of %d", c.size/mib, c.sector), func(t *testing.T) {
			file := testenv.SparseFile(t, c.size)
			if c.size == 300*mib {
				err := os.WriteFile(file, bytes.Repeat([]byte{0xfe, 0xed, 0xba, 0xbe}, int(c.size/4)), 0o600)
				if err != nil {
					t.Fatal(err)
				}
			}
			loop := testenv.Loop(t, file, c.sector)
			if err := Make(t.Context(), loop, "xfs", Options{}); err != nil {
				t.Fatal(err)
			}
			keepFiles(t, loop, "xfs", c.size/4)
			xfsRepair(t, loop)
		})
	}
}
