package raid

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/md"
	"ironroot/storage/sysfs"
)

// loops makes loop devices with the members of an array.
func loops(t *testing.T, n md.New) (paths []string, uuid string) {
	t.Helper()
	blocks, err := n.Encode(time.Unix(1700000000, 0))
	if err != nil {
		t.Fatal(err)
	}
	for i, size := range n.Sizes {
		path := testenv.Loop(t, testenv.SparseFile(t, size), 512)
		for _, b := range blocks[i] {
			put(t, path, b.Offset, b.Data)
		}
		paths = append(paths, path)
	}
	found, err := Read(t.Context(), paths[0])
	if err != nil || len(found) != 1 {
		t.Fatalf("got %+v and %v, want a superblock", found, err)
	}
	return paths, found[0].UUID
}

// Superblocks of complete arrays are accepted in any order. All others are rejected. Nothing is written.
func TestReadMembers(t *testing.T) {
	const size = 24 << 20
	n := md.New{Version: "1.2", Level: "raid1", Name: "any:data", Sizes: []int64{size, size}}
	same := func(_ *testing.T, paths []string, uuid string) ([]string, string) { return paths, uuid }
	for name, tt := range map[string]struct {
		change func(t *testing.T, paths []string, uuid string) ([]string, string)
		want   string
	}{
		"complete": {same, ""},
		"reverse": {func(_ *testing.T, p []string, u string) ([]string, string) {
			return []string{p[1], p[0]}, u
		}, ""},
		"one": {func(_ *testing.T, p []string, u string) ([]string, string) {
			return p[:1], u
		}, "got 1 members, want 2"},
		"uuid": {func(_ *testing.T, p []string, _ string) ([]string, string) { return p, "u" }, "want u"},
		"empty": {func(t *testing.T, p []string, u string) ([]string, string) {
			put(t, p[1], 4096, make([]byte, 4096))
			return p, u
		}, "has 0 superblocks, want 1"},
		"checksum": {func(t *testing.T, p []string, u string) ([]string, string) {
			put(t, p[1], 4096+40, []byte{1})
			return p, u
		}, "checksum"},
		"several": {func(t *testing.T, p []string, u string) ([]string, string) {
			put(t, p[1], 0, imagetest.ReadAt(t, p[1], 4096, 512)) // as of version 1.1, but not valid there
			return p, u
		}, "has 2 superblocks, want 1"},
		"unknown": {func(_ *testing.T, p []string, u string) ([]string, string) {
			return []string{p[0], "/dev/missing"}, u
		}, "missing"},
	} {
		paths, uuid := loops(t, n)
		list, uuid := tt.change(t, paths, uuid)
		before := imagetest.ReadAt(t, paths[0], 0, size)
		_, err := ReadMembers(t.Context(), sysfs.Root{}, uuid, list)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		if tt.want != "" && tt.want != "missing" && !errors.Is(err, ErrIncomplete) {
			t.Errorf("%s: got %v, want %v", name, err, ErrIncomplete)
		}
		if !bytes.Equal(imagetest.ReadAt(t, paths[0], 0, size), before) {
			t.Errorf("%s: the member was written to", name)
		}
	}
}

// The members of an array are in the order of their roles.
func TestReadMembersOrder(t *testing.T) {
	const size = 24 << 20
	paths, uuid := loops(t, md.New{Version: "1.2", Level: "raid1", Name: "n", Sizes: []int64{size, size}})
	found, err := ReadMembers(t.Context(), sysfs.Root{}, uuid, []string{paths[1], paths[0]})
	if err != nil || len(found) != 2 || found[0].Device.Path != paths[0] || found[0].Device.Size != size {
		t.Errorf("got %+v and %v, want %q", found, err, paths)
	}
}
