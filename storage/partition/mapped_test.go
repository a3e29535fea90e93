package partition

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/storage/devmapper"
	"ironroot/storage/sysfs"
)

const mapID = "mpath-3600c0ff000d1a2b3"

// fakeMapper is a device mapper whose maps appear in the directory of a machine like the kernel's.
type fakeMapper struct {
	t    *testing.T
	root string
	maps map[string]devmapper.Map // by UUID
	busy map[string]int           // how often a map is in use yet
	done []string
}

func (f *fakeMapper) dir(uuid string) string {
	return filepath.Join(f.root, "sys/class/block", "dm-"+strings.NewReplacer("part", "", "-"+mapID, "").Replace(uuid))
}

func (f *fakeMapper) write(path, content string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fakeMapper) Create(m devmapper.Map) (string, error) {
	dir := f.dir(m.UUID)
	f.write(filepath.Join(dir, "dm/uuid"), m.UUID)
	f.write(filepath.Join(dir, "size"), fmt.Sprint(m.Targets[0].Size/512))
	f.write(filepath.Join(f.root, "sys/class/block/dm-0/holders", filepath.Base(dir), "holder"), "")
	f.maps[m.UUID] = m
	f.done = append(f.done, fmt.Sprintf("+%s %d %s", m.Name, m.Targets[0].Size, m.Targets[0].Parameters))
	return "/dev/" + filepath.Base(dir), nil
}

func (f *fakeMapper) Remove(uuid string) error {
	if f.busy[uuid]--; f.busy[uuid] >= 0 {
		return fmt.Errorf("map %s: %w", uuid, unix.EBUSY)
	}
	delete(f.maps, uuid)
	f.done = append(f.done, "-"+uuid)
	dir := f.dir(uuid)
	if err := os.RemoveAll(filepath.Join(f.root, "sys/class/block/dm-0/holders", filepath.Base(dir))); err != nil {
		f.t.Fatal(err)
	}
	return os.RemoveAll(dir)
}

func (f *fakeMapper) Targets(uuid string) ([]devmapper.Target, error) {
	return f.maps[uuid].Targets, nil
}

// disk returns a multipath map in the directory of a machine.
func (f *fakeMapper) disk() *mappedDisk {
	f.t.Helper()
	dir := filepath.Join(f.root, "sys/class/block/dm-0")
	for file, content := range map[string]string{
		"dm/uuid": mapID, "dm/name": "3600c0ff000d1a2b3", "dev": "253:0", "size": "131072", "holders/x": "",
	} {
		f.write(filepath.Join(dir, file), content)
	}
	d, err := newMappedDisk(sysfs.Root{Path: f.root}, "/dev/dm-0", f)
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

// The partitions of a map follow its table: equal ones are kept, others are created again. If a map is opened briefly,
// its removal is retried.
func TestPartitionsOfMap(t *testing.T) {
	f := &fakeMapper{t: t, root: t.TempDir(), maps: map[string]devmapper.Map{}, busy: map[string]int{}}
	d := f.disk()
	first, third := Partition{Number: 1, Start: mib, Size: 8 * mib}, Partition{Number: 3, Start: 9 * mib, Size: 4 * mib}
	moved := Partition{Number: 3, Start: 10 * mib, Size: 4 * mib}
	beyond := Partition{Number: 4, Start: 60 * mib, Size: 8 * mib}
	const name = "3600c0ff000d1a2b3-part"
	for _, tt := range []struct {
		parts []Partition
		want  []string
	}{
		{
			[]Partition{first, third},
			[]string{"+" + name + "1 8388608 253:0 2048", "+" + name + "3 4194304 253:0 18432"},
		},
		{[]Partition{first, third}, nil},
		{[]Partition{third}, []string{"-part1-" + mapID}},
		{[]Partition{moved, beyond}, []string{"-part3-" + mapID, "+" + name + "3 4194304 253:0 20480"}},
		{nil, []string{"-part3-" + mapID}},
	} {
		f.done = nil
		f.busy["part3-"+mapID] = 1
		table := &Table{Scheme: GPT, SectorSize: 4096, DiskSize: 64 * mib, Partitions: tt.parts}
		if err := apply(t.Context(), "/dev/dm-0", table, d); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, f.done); diff != "" {
			t.Errorf("%v: -want +got:\n%s", tt.parts, diff)
		}
	}
}

// A map with the UUID of a partition and another mapping is replaced; if it stays in use, it is an error.
func TestPartitionsOfMapForeign(t *testing.T) {
	f := &fakeMapper{t: t, root: t.TempDir(), maps: map[string]devmapper.Map{}, busy: map[string]int{}}
	d := f.disk()
	table := &Table{Scheme: GPT, DiskSize: 64 * mib, Partitions: []Partition{{Number: 1, Start: mib, Size: mib}}}
	for _, target := range []devmapper.Target{
		{Kind: "crypt", Size: mib, Parameters: "253:0 2048"},
		{Kind: "linear", Size: mib, Parameters: "8:0 2048"},
		{Kind: "linear", Size: mib, Parameters: "253:0"},
	} {
		if _, err := f.Create(devmapper.Map{
			Name: "x", UUID: "part1-" + mapID, Targets: []devmapper.Target{target},
		}); err != nil {
			t.Fatal(err)
		}
		if err := apply(t.Context(), "/dev/dm-0", table, d); err != nil {
			t.Fatal(err)
		}
		got := f.maps["part1-"+mapID].Targets[0].Parameters
		if got != "253:0 2048" || f.maps["part1-"+mapID].Targets[0].Kind != "linear" {
			t.Errorf("%+v: got %q in its place", target, got)
		}
	}
	f.busy["part1-"+mapID] = 1 << 20
	if err := apply(t.Context(), "/dev/dm-0", &Table{}, d); !errors.Is(err, unix.EBUSY) ||
		!strings.Contains(err.Error(), "/dev/dm-0: remove partition 1") {
		t.Errorf("got %v, want %v", err, unix.EBUSY)
	}
}

// closingMapper counts how often it is closed.
type closingMapper struct {
	*fakeMapper
	closed *int
}

func (c closingMapper) Close() error {
	*c.closed++
	return nil
}

// The device mapper is closed after use. Its errors and the errors of the map and of the function are returned.
func TestWithMaps(t *testing.T) {
	f := &fakeMapper{t: t, root: t.TempDir(), maps: map[string]devmapper.Map{}}
	f.disk()
	sys := sysfs.Root{Path: f.root}
	broken := errors.New("broken")
	for _, tt := range []struct {
		name, device string
		open, do     error
		used, closed int
		want         error
	}{
		{"success", "/dev/dm-0", nil, nil, 1, 1, nil},
		{"no device mapper", "/dev/dm-0", broken, nil, 0, 0, broken},
		{"no map", "/dev/dm-1", nil, nil, 0, 1, fs.ErrNotExist},
		{"failing use", "/dev/dm-0", nil, broken, 1, 1, broken},
	} {
		used, closed := 0, 0
		open := func() (mapperFile, error) { return closingMapper{f, &closed}, tt.open }
		err := withMaps(t.Context(), sys, tt.device, open,
			func(_ context.Context, device string, view kernelView) error {
				if device != tt.device || view == nil || closed > 0 {
					t.Errorf("%s: got %s, %v, closed %d times", tt.name, device, view, closed)
				}
				used++
				return tt.do
			})
		if !errors.Is(err, tt.want) || used != tt.used || closed != tt.closed {
			t.Errorf("%s: got %v, used %d times, closed %d times, want %v, %d and %d",
				tt.name, err, used, closed, tt.want, tt.used, tt.closed)
		}
	}
}
