package md

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
)

const gib = 1 << 30

// created lists the arrays whose second member mdadm 4.2 wrote to testdata/created, 512 bytes each, with
//
//	mdadm --create /dev/md7 --force --run --homehost=any --metadata=VERSION --level LEVEL --name data …
//
// on members of these sizes, and with --bitmap=internal for version 1.2 with redundancy. Linux 6.12 had run the arrays
// since, so that counts of events and what is in sync differ. storage/raid.TestGuest compares the same arrays, and
// their bitmaps, with arrays that the mdadm of this machine creates.
var created = []New{
	{Version: "1.2", Level: "raid1", Sizes: []int64{24 * mib, 24 * mib}},
	{Version: "1.2", Level: "raid1", Sizes: []int64{5*gib + 7*512, 5 * gib}},
	{Version: "1.2", Level: "raid1", Sizes: []int64{20 * gib, 30 * gib, 19 * gib}},
	{Version: "1.2", Level: "raid1", Sizes: []int64{240 * gib, 240 * gib}},
	{Version: "1.2", Level: "raid1", Sizes: []int64{3<<40 + 512, 3 << 40}},
	{Version: "1.2", Level: "raid0", Sizes: []int64{24 * mib, 24 * mib}},
	{Version: "1.2", Level: "raid0", Sizes: []int64{24 * mib, 30 * mib}},
	{Version: "1.2", Level: "raid5", Sizes: []int64{24 * mib, 25 * mib, 26 * mib}},
	{Version: "1.2", Level: "raid5", Sizes: []int64{101 * gib, 101 * gib, 102 * gib}},
	{Version: "1.2", Level: "raid6", Sizes: []int64{30 * mib, 30 * mib, 30 * mib, 30*mib + 512}},
	{Version: "1.2", Level: "raid10", Sizes: []int64{150 * gib, 150 * gib, 150 * gib, 150 * gib}},
	{Version: "1.2", Level: "raid10", Sizes: []int64{24 * mib, 24 * mib, 24 * mib}},
	{Version: "1.0", Level: "raid1", Sizes: []int64{24 * mib, 24 * mib}},
	{Version: "1.0", Level: "raid1", Sizes: []int64{550 * mib, 550*mib + 3*512}},
	{Version: "1.0", Level: "raid1", Sizes: []int64{240 * gib, 240 * gib}},
}

var creation = time.Unix(1700000000, 0)

// Superblocks of new arrays equal mdadm's, except for UUIDs, times and fields that the kernel has changed.
func TestEncodeGoldens(t *testing.T) {
	goldens, err := os.ReadFile("testdata/created")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range slices.Collect(slices.Chunk(goldens, 512)) {
		n := created[i]
		n.Name = "any:data"
		members, err := n.Encode(creation)
		if err != nil {
			t.Errorf("%+v: %v", n, err)
			continue
		}
		got := members[1][0].Data
		for _, b := range [][]byte{want, got} {
			for _, r := range [][2]int{{16, 32}, {64, 72}, {168, 184}, {192, 220}} {
				clear(b[r[0]:r[1]])
			}
		}
		for at := 0; at < 512; at += 4 {
			if !bytes.Equal(got[at:at+4], want[at:at+4]) {
				t.Errorf("%+v: byte %d: got %x, want %x", n, at, got[at:at+4], want[at:at+4])
			}
		}
	}
}

// bitmaps lists arrays around the size from which mdadm raises the number of bytes that each bit of a bitmap describes:
// 128 KiB, less 256 bytes of header, have bits for 63.875 TiB at 64 MiB each.
var bitmaps = []struct {
	level   string
	members int
	data    int64 // of each member
	chunk   int64 // that each bit describes, 0 for an array that is too large
	bits    int64
	sectors int64 // of the bitmap
}{
	{"raid1", 2, 1 << 40, 64 * mib, 16384, 8},
	{"raid1", 2, 1046528*64*mib - 64<<10, 64 * mib, 1046528, 256},
	{"raid1", 2, 1046528 * 64 * mib, 128 * mib, 523264, 136},
	{"raid1", 2, 1046528*128*mib - 64<<10, 128 * mib, 1046528, 256},
	{"raid1", 2, 1046528 * 128 * mib, 256 * mib, 523264, 136},
	{"raid5", 3, 20 << 40, 64 * mib, 327680, 88}, // the bits describe the members
	{"raid5", 3, 70 << 40, 128 * mib, 573440, 144},
	{"raid6", 8, 70 << 40, 128 * mib, 573440, 144},
	{"raid10", 4, 1046528*32*mib - 512<<10, 64 * mib, 1046528, 256},
	{"raid10", 4, 1046528 * 32 * mib, 128 * mib, 523264, 136},
	{"raid10", 10, 15 << 40, 128 * mib, 614400, 152},
	{"raid10", 128, 20 << 40, 2048 * mib, 655360, 168},
	{"raid10", 128, 40 << 40, 0, 0, 0},
}

// The bitmap of a large array is as large as a smaller array's, and each of its bits describes more.
func TestEncodeLarge(t *testing.T) {
	for _, tt := range bitmaps {
		const before = 129 * mib // superblock, bitmap, and space for a later change of the layout
		n := New{Version: "1.2", Level: tt.level, Name: "any:data"}
		for range tt.members {
			n.Sizes = append(n.Sizes, before+tt.data)
		}
		members, err := n.Encode(creation)
		if tt.chunk == 0 {
			if err == nil || !strings.Contains(err.Error(), "too large for a bitmap of 131072 bytes") {
				t.Errorf("%+v: got %v, want an error of the bitmap's size", tt, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		synced := tt.data
		if tt.level == "raid10" {
			synced *= int64(tt.members) / 2
		}
		le, last := binary.LittleEndian, len(members)-1
		superblock, bitmap := members[last][0].Data, members[last][1]
		for name, values := range map[string][2]int64{
			"sector of the data":                   {int64(le.Uint64(superblock[128:])), before / 512},
			"sector of the bitmap":                 {bitmap.Offset / 512, 16},
			"sector of the bitmap, as written":     {8 + int64(le.Uint32(superblock[96:])), 16},
			"sectors of the bitmap":                {int64(len(bitmap.Data)) / 512, tt.sectors},
			"sector of the log of bad blocks":      {8 + int64(le.Uint32(superblock[188:])), 16 + tt.sectors},
			"bytes that each bit describes":        {int64(le.Uint32(bitmap.Data[52:])), tt.chunk},
			"sectors that the bitmap describes":    {int64(le.Uint64(bitmap.Data[40:])), synced / 512},
			"bits that these sectors need":         {(synced + tt.chunk - 1) / tt.chunk, tt.bits},
			"bits without a place in the bitmap":   {max(0, tt.bits-int64(len(bitmap.Data)-256)*8), 0},
			"bytes of the bitmap that are not set": {int64(bytes.Count(bitmap.Data[256:], []byte{0})), 0},
		} {
			if values[0] != values[1] {
				t.Errorf("%+v: %s: got %d, want %d", tt, name, values[0], values[1])
			}
		}
		data := make([]byte, superblockSize)
		copy(data, superblock)
		s, ok := parse("1.2", data, members[last][0].Offset, n.Sizes[last])
		if !ok || s.Problem != nil {
			t.Errorf("%+v: got %+v, want a valid superblock", tt, s)
		}
		size, err := s.Bitmap(bytes.NewReader(slices.Concat(make([]byte, bitmap.Offset), bitmap.Data)))
		if err != nil || size != tt.sectors*512 {
			t.Errorf("%+v: got a bitmap of %d bytes and %v, want %d", tt, size, err, tt.sectors*512)
		}
	}
}

// mdadm reads the bitmaps of large arrays as they are meant.
func TestExamineBitmap(t *testing.T) {
	testenv.Programs(t, "mdadm")
	for _, tt := range bitmaps {
		if tt.chunk == 0 {
			continue
		}
		n := New{
			Version: "1.2", Level: tt.level, Name: "any:data",
			Sizes: slices.Repeat([]int64{129*mib + tt.data}, tt.members),
		}
		members, err := n.Encode(creation)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "bitmap")
		if err := os.WriteFile(path, members[1][1].Data, 0o600); err != nil {
			t.Fatal(err)
		}
		out := testenv.Run(t, "mdadm", "--examine-bitmap", path)
		chunk := fmt.Sprintf("%d MB", tt.chunk/mib)
		if tt.chunk > gib {
			chunk = fmt.Sprintf("%d GB", tt.chunk/gib)
		}
		for _, want := range []string{
			"Chunksize : " + chunk,
			fmt.Sprintf("Bitmap : %d bits (chunks), %[1]d dirty (100.0%%)", tt.bits),
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%+v: mdadm --examine-bitmap lacks %q:\n%s", tt, want, out)
			}
		}
	}
}

// Encode returns valid superblocks of members of one array. With redundancy, the whole array is to be resynced.
func TestEncodeParsed(t *testing.T) {
	for _, n := range created {
		n.Name = "any:data"
		members, err := n.Encode(creation)
		if err != nil {
			t.Fatal(err)
		}
		uuid := ""
		for i, blocks := range members {
			data := make([]byte, superblockSize)
			copy(data, blocks[0].Data)
			s, ok := parse(n.Version, data, blocks[0].Offset, n.Sizes[i])
			if !ok || s.Problem != nil || s.Level != n.Level || s.Name != n.Name || s.Number != i || s.Role != i ||
				s.Devices != len(members) || uuid != "" && s.UUID != uuid {
				t.Errorf("%+v: member %d: got %+v, want a valid superblock", n, i, s)
			}
			uuid = s.UUID
			want := uint64(0)
			if n.Level == "raid0" {
				want = 1<<64 - 1
			}
			if got := binary.LittleEndian.Uint64(data[208:]); got != want {
				t.Errorf("%+v: member %d is in sync up to sector %d, want %d", n, i, got, want)
			}
			for _, block := range blocks {
				end := block.Offset + int64(len(block.Data))
				overlaps := block.Offset < s.DataOffset+s.DataSize && end > s.DataOffset
				if block.Offset < 0 || end > n.Sizes[i] || overlaps {
					t.Errorf("%+v: member %d: metadata at bytes %d to %d, data at %d to %d", n, i, block.Offset, end,
						s.DataOffset, s.DataOffset+s.DataSize)
				}
			}
		}
		other, err := n.Encode(creation)
		if err != nil || bytes.Equal(other[0][0].Data[16:32], members[0][0].Data[16:32]) {
			t.Errorf("%+v: two arrays have the same UUID (%v)", n, err)
		}
	}
}

func TestEncodeErrors(t *testing.T) {
	two := []int64{24 * mib, 24 * mib}
	for want, n := range map[string]New{
		`level "raid4"`:       {Version: "1.2", Level: "raid4", Name: "n", Sizes: two},
		`superblock "1.1"`:    {Version: "1.1", Level: "raid1", Name: "n", Sizes: two},
		"got 1 members":       {Version: "1.2", Level: "raid1", Name: "n", Sizes: two[:1]},
		"want 3 to 128":       {Version: "1.2", Level: "raid5", Name: "n", Sizes: two},
		"want 4 to 128":       {Version: "1.2", Level: "raid6", Name: "n", Sizes: make([]int64, 3)},
		"got 129 members":     {Version: "1.2", Level: "raid1", Name: "n", Sizes: make([]int64, 129)},
		"name of 0 bytes":     {Version: "1.2", Level: "raid1", Sizes: two},
		"name of 32 bytes":    {Version: "1.2", Level: "raid1", Name: strings.Repeat("n", 32), Sizes: two},
		"member 2 of 1048576": {Version: "1.2", Level: "raid1", Name: "n", Sizes: []int64{mib * 2, mib}},
		"member 1 of 12288":   {Version: "1.0", Level: "raid1", Name: "n", Sizes: []int64{12288, mib}},
	} {
		_, err := n.Encode(creation)
		for _, err := range []error{err, n.Check()} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: got %v, want an error with %q", n, err, want)
			}
		}
	}
}

// No sizes cause a panic, a large allocation, or metadata outside of a member or in its data.
func FuzzEncode(f *testing.F) {
	for _, n := range created {
		f.Add(n.Version, n.Level, n.Sizes[0], n.Sizes[1], len(n.Sizes))
	}
	f.Fuzz(func(t *testing.T, version, level string, first, second int64, count int) {
		if first < 0 || second < 0 {
			return // no device has such a size
		}
		n := New{Version: version, Level: level, Name: "n", Sizes: []int64{first}}
		for range min(max(count, 0), 8) {
			n.Sizes = append(n.Sizes, second)
		}
		members, err := n.Encode(creation)
		if err != nil {
			return
		}
		for i, blocks := range members {
			data := make([]byte, superblockSize)
			copy(data, blocks[0].Data)
			if s, ok := parse(version, data, blocks[0].Offset, n.Sizes[i]); !ok || s.Problem != nil {
				t.Errorf("%+v: member %d: got %+v", n, i, s)
			}
			for _, block := range blocks {
				if len(block.Data) > mib || block.Offset < 0 || block.Offset+int64(len(block.Data)) > n.Sizes[i] {
					t.Errorf("%+v: member %d: %d bytes at %d", n, i, len(block.Data), block.Offset)
				}
			}
		}
	})
}
