package raid

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/md"
)

// member makes the second member of an array with a bitmap, as a sparse file.
func member(t *testing.T) Member { return memberOf(t, 150<<30) }

// memberOf is member for members of a size.
func memberOf(t *testing.T, size int64) Member {
	t.Helper()
	n := md.New{Version: "1.2", Level: "raid10", Name: "any:data", Sizes: []int64{size, size, size}}
	members, err := n.Encode(time.Unix(1700000000, 0))
	if err != nil {
		t.Fatal(err)
	}
	path := testenv.SparseFile(t, size)
	for _, b := range members[1] {
		put(t, path, b.Offset, b.Data)
	}
	found, err := Read(t.Context(), path)
	if err != nil || len(found) != 1 || found[0].Problem != nil {
		t.Fatalf("got %+v and %v, want a superblock", found, err)
	}
	return Member{Device: block.Device{Path: path, Size: size}, Superblock: found[0]}
}

func put(t *testing.T, path string, at int64, data []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // the test reads it again
	if _, err := f.WriteAt(data, at); err != nil {
		t.Fatal(err)
	}
}

// The superblock and the bitmap stay, and what is before, behind and at both ends of the data does not.
func TestWipe(t *testing.T) {
	m := member(t)
	end := m.DataOffset + m.DataSize
	positions := []int64{
		0, 3 << 10, 16 << 10, 64 << 10, minData - 512, minData, m.DataOffset - 512, m.DataOffset, m.DataOffset + 64<<10,
		end - 512, m.Device.Size - 512,
	}
	for _, at := range positions {
		put(t, m.Device.Path, at, []byte("tenant!"))
	}
	before := imagetest.ReadAt(t, m.Device.Path, 4096, 8<<10)
	if err := CheckWipe(m); err != nil {
		t.Fatal(err)
	}
	if err := Wipe(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for _, at := range positions {
		if !bytes.Equal(imagetest.ReadAt(t, m.Device.Path, at, 8), make([]byte, 8)) && at < m.Device.Size-8 {
			t.Errorf("data are left at byte %d", at)
		}
	}
	if !bytes.Equal(imagetest.ReadAt(t, m.Device.Path, 4096, 8<<10), before) {
		t.Error("the superblock or the bitmap has changed")
	}
}

// The bitmap of a large member stays as a whole, unless it contains a header of an encrypted volume.
func TestWipeLarge(t *testing.T) {
	const bitmapEnd = 48 << 10 // a bit for each 64 MiB of 18 TiB
	m := memberOf(t, 12<<40)
	before := imagetest.ReadAt(t, m.Device.Path, 4096, bitmapEnd-4096)
	put(t, m.Device.Path, bitmapEnd, []byte("tenant!"))
	if err := Wipe(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(imagetest.ReadAt(t, m.Device.Path, 4096, bitmapEnd-4096), before) {
		t.Error("the superblock or the bitmap has changed")
	}
	if !bytes.Equal(imagetest.ReadAt(t, m.Device.Path, bitmapEnd, 8), make([]byte, 8)) {
		t.Error("data are left behind the bitmap")
	}
	for _, at := range []int64{16 << 10, 32 << 10, 64 << 10} {
		m := memberOf(t, 12<<40)
		put(t, m.Device.Path, at, []byte("SKUL\xba\xbe"))
		err := CheckWipe(m)
		if want := fmt.Sprintf("second header of LUKS 2 at byte %d", at); at < bitmapEnd &&
			(err == nil || !strings.Contains(err.Error(), want)) || at >= bitmapEnd && err != nil {
			t.Errorf("header at byte %d: got %v, want an error below %d only", at, err, bitmapEnd)
		}
	}
}

// A member with state that would be lost is not written to.
func TestWipeRefused(t *testing.T) {
	for want, change := range map[string]func(t *testing.T, m *Member){
		"features 0x8":  func(_ *testing.T, m *Member) { m.Features |= 8 },
		"layout 0x201":  func(_ *testing.T, m *Member) { m.Level, m.Layout = "raid10", 0x201 },
		"data at byte":  func(_ *testing.T, m *Member) { m.DataOffset = 512 << 10 },
		"bitmap is not": func(t *testing.T, m *Member) { put(t, m.Device.Path, 8192+52, []byte{0, 0, 1, 0}) },
		// The kernel writes to this place, which does not stay. A bitmap that it does not read is where it should be.
		"bitmap is 16384 bytes": func(_ *testing.T, m *Member) { m.BitmapOffset = 16 << 10 },
		// mdadm raises what each bit describes before a bitmap gets larger than 128 KiB.
		"the bitmap is not that": func(t *testing.T, m *Member) {
			m.ArraySize = 2 << 50
			put(t, m.Device.Path, 8192+40, []byte{0, 0, 0, 0, 0, 4, 0, 0})
		},
	} {
		m := member(t)
		put(t, m.Device.Path, m.DataOffset, []byte("tenant!"))
		change(t, &m)
		for _, err := range []error{CheckWipe(m), Wipe(t.Context(), m)} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		}
		found, _ := Read(t.Context(), m.Device.Path)
		if len(found) != 1 ||
			!bytes.Equal(imagetest.ReadAt(t, m.Device.Path, found[0].DataOffset, 7), []byte("tenant!")) {
			t.Errorf("%s: the member was written to", want)
		}
	}
	m := member(t)
	m.Version = "1.0"
	if err := CheckWipe(m); err == nil || !strings.Contains(err.Error(), "got superblock 1.0, want 1.2") {
		t.Errorf("got %v, want an error that names the version", err)
	}
}

// The unused ranges start and end where superblock, bitmap and used data do.
func TestUnusedRanges(t *testing.T) {
	m := member(t) // with a bitmap of 4 KiB
	const bitmapEnd = 12 << 10
	used := m.DataSize - 512<<10
	for sector, want := range map[int64][][2]int64{
		512: {
			{0, 4096},
			{4096 + 512, 8192},
			{bitmapEnd, m.DataOffset},
			{m.DataOffset + used, m.Device.Size},
		},
		4096: {{0, 4096}, {bitmapEnd, m.DataOffset}, {m.DataOffset + used, m.Device.Size}},
	} {
		got, err := UnusedRanges(m, used, sector)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("sectors of %d bytes: got %v, differs (-want +got):\n%s", sector, err, diff)
		}
	}
	m.Features |= 8 // bad blocks
	if _, err := UnusedRanges(m, used, 512); err == nil || !strings.Contains(err.Error(), "features") {
		t.Errorf("got %v, want an error of the features", err)
	}
	m.Device.Path = filepath.Join(t.TempDir(), "missing")
	if _, err := UnusedRanges(m, used, 512); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
}
