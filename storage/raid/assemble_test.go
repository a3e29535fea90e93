package raid

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/imagetest"
	"ironroot/internal/sysfs"
	"ironroot/internal/testenv"
	"ironroot/storage/md"
)

// What is beside the array starts and ends where superblock, bitmap and data do.
func TestBeside(t *testing.T) {
	m := member(t) // with a bitmap of 4 KiB
	const bitmapEnd = 12 << 10
	covered := m.DataSize - 512<<10
	for sector, want := range map[int64][][2]int64{
		512: {
			{0, 4096},
			{4096 + 512, 8192},
			{bitmapEnd, m.DataOffset},
			{m.DataOffset + covered, m.Device.Size},
		},
		4096: {{0, 4096}, {bitmapEnd, m.DataOffset}, {m.DataOffset + covered, m.Device.Size}},
	} {
		got, err := Beside(m, covered, sector)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("sectors of %d bytes: got %v, differs (-want +got):\n%s", sector, err, diff)
		}
	}
	m.Features |= 8 // bad blocks
	if _, err := Beside(m, covered, 512); err == nil || !strings.Contains(err.Error(), "features") {
		t.Errorf("got %v, want an error of the features", err)
	}
	m.Device.Path = filepath.Join(t.TempDir(), "missing")
	if _, err := Beside(m, covered, 512); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
}

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
	found, err := md.Read(t.Context(), paths[0])
	if err != nil || len(found) != 1 {
		t.Fatalf("got %+v and %v, want a superblock", found, err)
	}
	return paths, found[0].UUID
}

// Superblocks of complete arrays are accepted in any order; any doubt is an error. Nothing is written.
func TestCheckCompleteDevices(t *testing.T) {
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
		err := CheckComplete(t.Context(), sysfs.Root{}, uuid, list)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		if tt.want != "" && tt.want != "missing" && !errors.Is(err, md.ErrIncomplete) {
			t.Errorf("%s: got %v, want %v", name, err, md.ErrIncomplete)
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
	found, err := readMembers(t.Context(), sysfs.Root{}, uuid, []string{paths[1], paths[0]})
	if err != nil || len(found) != 2 || found[0].Device.Path != paths[0] || found[0].Device.Size != size {
		t.Errorf("got %+v and %v, want %q", found, err, paths)
	}
}

// Everything that was written is on all members only if none of them is missing or has bad blocks.
func TestCheckWritten(t *testing.T) {
	for name, tt := range map[string]struct {
		file, text string // changed; no text means that the file is missing
		want       string
	}{
		"complete":     {"level", "raid1", ""},
		"degraded":     {"degraded", "1", "array is not complete"},
		"read-only":    {"array_state", "read-auto", "read-auto"},
		"bad block":    {"dev-sdb1/bad_blocks", "4096 8\n5000 1", "/dev/sdb1: member has bad blocks"},
		"not recorded": {"dev-sda1/unacknowledged_bad_blocks", "4096 8", "/dev/sda1: member has bad blocks"},
		"unknown":      {"dev-sda1/bad_blocks", "", "/dev/sda1"},
	} {
		sys := sysfs.Root{Path: t.TempDir()}
		files := map[string]string{
			"level": "raid1", "metadata_version": "1.2", "array_state": "clean", "raid_disks": "2", "degraded": "0",
			"dev-sda1/slot": "0", "dev-sda1/state": "in_sync", "dev-sda1/bad_blocks": "\n",
			"dev-sdb1/slot": "1", "dev-sdb1/state": "in_sync", "dev-sdb1/bad_blocks": "\n",
			"dev-sda1/unacknowledged_bad_blocks": "\n", "dev-sdb1/unacknowledged_bad_blocks": "\n",
		}
		if files[tt.file] = tt.text; tt.text == "" {
			delete(files, tt.file)
		}
		for file, text := range files {
			path := sys.Sys("class/block/md0/md", file)
			err := os.MkdirAll(filepath.Dir(path), 0o755)
			if err = errors.Join(err, os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		err := CheckWritten(sys, "/dev/md0", "raid1", []string{"/dev/sda1", "/dev/sdb1"})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		if strings.Contains(name, "bad block") && !errors.Is(err, errBadBlocks) {
			t.Errorf("%s: got %v, want %v", name, err, errBadBlocks)
		}
	}
}
