package raid

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ironroot/storage/block"
	"ironroot/storage/md"
)

// encoded returns the members of a new array as they are read. The first one knows the given roles, nil for all.
func encoded(t *testing.T, n md.New, roles ...uint16) Array {
	t.Helper()
	n.Name = "any:data"
	blocks, err := n.Encode(time.Unix(1700000000, 0))
	if err != nil {
		t.Fatal(err)
	}
	var members Array
	for i, b := range blocks {
		if i == 0 {
			setRoles(b[0].Data, roles)
		}
		data := make([]byte, n.Sizes[i])
		copy(data[b[0].Offset:], b[0].Data)
		found, err := md.Find(bytes.NewReader(data), n.Sizes[i])
		if err != nil || len(found) != 1 || found[0].Problem != nil {
			t.Fatalf("got %+v and %v, want a valid superblock", found, err)
		}
		d := block.Device{Path: fmt.Sprintf("/dev/sd%c1", 'a'+i), Size: n.Sizes[i]}
		members = append(members, Member{Device: d, Superblock: found[0]})
	}
	return members
}

// setRoles changes the first roles in a superblock, and its checksum.
func setRoles(superblock []byte, roles []uint16) {
	le := binary.LittleEndian
	for i, role := range roles {
		le.PutUint16(superblock[256+2*i:], role)
	}
	var sum uint64
	for i := 0; i < len(superblock); i += 4 {
		if i != 216 {
			sum += uint64(le.Uint32(superblock[i:]))
		}
	}
	le.PutUint32(superblock[216:], uint32(sum)+uint32(sum>>32))
}

// Members that are not all members of one array, or that the kernel might not use together, are an error.
func TestCheckComplete(t *testing.T) {
	const want = "array is not complete: "
	three := md.New{Version: "1.2", Level: "raid5", Sizes: []int64{24 << 20, 24 << 20, 24 << 20}}
	for name, tt := range map[string]struct {
		change func(m Array) Array
		want   string // "" means complete
	}{
		"complete":    {func(m Array) Array { return m }, ""},
		"other order": {func(m Array) Array { slices.Reverse(m); return m }, ""},
		"none":        {func(Array) Array { return nil }, "no members"},
		"missing":     {func(m Array) Array { return m[:2] }, "got 2 members, want 3"},
		"more":        {func(m Array) Array { m = append(m, m[0]); return m }, "/dev/sda1: device occurs twice"},
		"same device": {
			func(m Array) Array { m[1].Device = m[0].Device; return m }, "/dev/sda1: device occurs twice",
		},
		"same role":   {func(m Array) Array { m[1].Role = 0; return m }, "/dev/sdb1: role 0 occurs twice"},
		"same number": {func(m Array) Array { m[1].Number = 0; return m }, "/dev/sdb1: number 0 occurs twice"},
		"problem":     {func(m Array) Array { m[2].Problem = md.ErrInvalid; return m }, md.ErrInvalid.Error()},
		"version": {
			func(m Array) Array { m[1].Version = "1.0"; return m }, "got superblock 1.0, want 1.2",
		},
		"old version": {
			func(m Array) Array { m[0].Version = "0.90"; return m }, "superblock 0.90 is not supported",
		},
		"UUID":       {func(m Array) Array { m[1].UUID = "u"; return m }, "with UUID u, want"},
		"name":       {func(m Array) Array { m[1].Name = "n"; return m }, `got array "n"`},
		"level":      {func(m Array) Array { m[1].Level = "raid6"; return m }, "got raid6 of 3"},
		"layout":     {func(m Array) Array { m[1].Layout = 7; return m }, "layout 0x7"},
		"chunk":      {func(m Array) Array { m[1].Chunk = 4096; return m }, "chunks of 4096 bytes"},
		"devices":    {func(m Array) Array { m[1].Devices = 4; return m }, "of 4 members"},
		"size":       {func(m Array) Array { m[1].DataSize--; return m }, "bytes of data"},
		"feature":    {func(m Array) Array { m[1].Features = 0; return m }, "got features 0x0, want 0x1"},
		"recovering": {func(m Array) Array { m[0].Features = 2; return m }, "got features 0x2"},
		"all reshaped": {func(m Array) Array {
			for i := range m {
				m[i].Features = 4
			}
			return m
		}, "got features 0x4"},
		"power loss, one new": {func(m Array) Array { m[1].Events++; return m }, ""},
		"power loss, one old": {func(m Array) Array {
			m[0].Events, m[2].Events = 1<<64-1, 1<<64-1
			m[1].Events = 1<<64 - 2
			return m
		}, ""},
		"newer": {
			func(m Array) Array { m[1].Events += 2; return m },
			"/dev/sda1: got 0 events, want 2 as on /dev/sdb1, or 1 less",
		},
		"older": {func(m Array) Array {
			m[0].Events, m[1].Events, m[2].Events = 9, 7, 8
			return m
		}, "/dev/sdb1: got 7 events, want 9 as on /dev/sda1, or 1 less"},
		"dropped": {func(m Array) Array {
			const faulty = 0xfffe // MD_DISK_ROLE_FAULTY
			m[0].Superblock = encoded(t, three, 0, faulty)[0].Superblock
			m[0].UUID = m[1].UUID
			m[0].Events, m[2].Events = 1, 1
			return m
		}, "/dev/sdb1: got role 1, want -1 as on /dev/sda1, which is newer: the array has dropped the member"},
		"number out of range": {func(m Array) Array {
			m[0].Events, m[2].Events, m[1].Number = 1, 1, 1<<31
			return m
		}, "got role 1, want -1"},
		"spare":     {func(m Array) Array { m[1].Role = -1; return m }, "got role -1 of 3"},
		"high role": {func(m Array) Array { m[1].Role = 3; return m }, "got role 3 of 3"},
	} {
		members := tt.change(encoded(t, three))
		err := members.CheckComplete()
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrIncomplete) ||
			!strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		if _, _, err := members.UsedSizes(); (err == nil) != (tt.want == "") {
			t.Errorf("%s: UsedSizes: got %v, want %q", name, err, tt.want)
		}
	}
	// Members of a level 0 can have different sizes.
	members := encoded(t, md.New{Version: "1.2", Level: "raid0", Sizes: []int64{24 << 20, 30 << 20}})
	if err := members.CheckComplete(); err != nil || members[0].DataSize == members[1].DataSize {
		t.Errorf("got %v, want no error for members of different sizes", err)
	}
}

// The size of an array, and of the part that it uses of each member, equal Linux's for the same members:
// checkAssembled compares them.
func TestUsedSizes(t *testing.T) {
	const chunk = 512 << 10
	three := func(size int64) []int64 { return []int64{size, size, size} }
	for _, tt := range []struct {
		level  string
		layout uint32
		data   []int64
		array  int64
		each   []int64
		want   string // error
	}{
		{"raid1", 0, []int64{1000 << 10, 1000 << 10}, 1000 << 10, []int64{1000 << 10, 1000 << 10}, ""},
		{"raid0", 1, []int64{3*chunk + 512, chunk}, 4 * chunk, []int64{3 * chunk, chunk}, ""},
		{"raid5", 2, three(3*chunk + 512), 6 * chunk, three(3 * chunk), ""},
		{"raid6", 2, []int64{chunk, chunk, chunk, chunk}, 2 * chunk, []int64{chunk, chunk, chunk, chunk}, ""},
		{"raid10", md.NearLayout, three(2 * chunk), 3 * chunk, three(2 * chunk), ""},
		{"raid10", md.NearLayout, three(3 * chunk), 4 * chunk, []int64{3 * chunk, 3 * chunk, 2 * chunk}, ""},
		{"raid10", 0x201, []int64{chunk, chunk}, 0, nil, "layout 0x201 is not supported"},
		{"raid4", 0, []int64{chunk, chunk}, 0, nil, "level raid4 is not supported"},
	} {
		var members Array
		for i, size := range tt.data {
			s := md.Superblock{
				Version: "1.2", Level: tt.level, Layout: tt.layout, Devices: len(tt.data), DataSize: size, Number: i,
				Role: i, Chunk: chunk,
			}
			members = append(members, Member{Device: block.Device{Path: fmt.Sprint("/dev/", i)}, Superblock: s})
		}
		array, each, err := members.UsedSizes()
		if array != tt.array || !slices.Equal(each, tt.each) || (err == nil) != (tt.want == "") ||
			err != nil && (!errors.Is(err, md.ErrInvalid) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %d, %d and %v, want %d, %d and %q", tt.level, array, each, err, tt.array, tt.each,
				tt.want)
		}
		for _, bad := range []int64{0, -512, 3 << 10, 2 << 30} {
			for i := range members {
				members[i].Chunk = bad
			}
			if _, _, err := members.UsedSizes(); tt.level != "raid1" && !errors.Is(err, md.ErrInvalid) {
				t.Errorf("%s: chunks of %d bytes: got %v, want %v", tt.level, bad, err, md.ErrInvalid)
			}
		}
	}
}
