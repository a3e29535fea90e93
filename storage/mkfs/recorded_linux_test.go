package mkfs

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write testdata/recorded.txt")

// The bytes of file systems are those that were recorded, with fixed time and random numbers.
func TestRecorded(t *testing.T) {
	const golden = "testdata/recorded.txt"
	const mib, gib = 1 << 20, 1 << 30
	var got bytes.Buffer
	for _, c := range []struct {
		kind  string
		sizes []int64
	}{
		{"ext2", []int64{2 * mib, 40 * mib, 600*mib + 4096, 20 * gib}},
		{"ext3", []int64{2 * mib, 40 * mib, 600*mib + 4096, 20 * gib}},
		{"ext4", []int64{2 * mib, 40 * mib, 600*mib + 4096, 20 * gib, 17 << 40}},
		{"xfs", []int64{300 * mib, 5*gib + 4096, 17 << 40}},
	} {
		for _, size := range c.sizes {
			for _, sector := range []int64{512, 4096} {
				fmt.Fprintf(&got, "%s %14d %4d %08x\n", c.kind, size, sector, recorded(t, c.kind, size, sector))
			}
		}
	}
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("kind, size, sector, checksum: got\n%s, want\n%s", got.Bytes(), want)
	}
}

// recorded makes a file system and returns a checksum of its bytes that are not zero and of their offsets.
func recorded(t *testing.T, kind string, size, sector int64) (sum uint32) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { // in the year 2000
		cryptotest.SetGlobalRandom(t, 1)
		k, v, err := check(kind, Options{Label: "label"})
		if err != nil {
			t.Fatal(err)
		}
		// A file in memory: ext4 as the file system of the test's files allows no files of 17 TiB.
		fd, err := unix.MemfdCreate("image", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "image")
		defer f.Close() //nolint:errcheck // only read after it was written
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		if err := k.make(t.Context(), &device{file: f, size: size, sector: sector}, v); err != nil {
			t.Fatal(err)
		}
		castagnoli, zeros := crc32.MakeTable(crc32.Castagnoli), make([]byte, 4096)
		page := make([]byte, 4096)
		for at, next := int64(0), int64(0); at < size; at = next + 4096 {
			if next, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA); err != nil {
				return // no more data
			}
			if n, err := f.ReadAt(page, next); n == 0 {
				t.Fatal(err)
			}
			if !bytes.Equal(page, zeros) {
				sum = crc32.Update(sum, castagnoli, binary.LittleEndian.AppendUint64(nil, uint64(next)))
				sum = crc32.Update(sum, castagnoli, page)
			}
		}
	})
	return sum
}
