package partition

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/devmapper"
	"ironroot/storage/sysfs"
)

// wantError checks an error and that its text contains a phrase.
func wantError(t *testing.T, what string, err error, phrase string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), phrase) {
		t.Errorf("%s: got %v, want an error with %q", what, err, phrase)
	}
}

// hooked is a context whose Err calls a function.
type hooked struct {
	context.Context
	err func() error
}

func (h hooked) Err() error { return h.err() }

// atLast returns a context that calls the function at the n-th call of Err, which is the last one.
func atLast(t *testing.T, n int, do func()) context.Context {
	t.Helper()
	return hooked{t.Context(), func() error {
		if n--; n == 0 {
			do()
		}
		return nil
	}}
}

// asked returns how often a function calls Err of its context.
func asked(t *testing.T, do func(context.Context) error) int {
	t.Helper()
	n := 0
	if err := do(hooked{t.Context(), func() error { n++; return nil }}); err != nil {
		t.Fatal(err)
	}
	return n
}

// shrunk opens an image and then truncates it, so that its end cannot be read.
func shrunk(t *testing.T, image string, size int64) *disk {
	t.Helper()
	d, err := open(t.Context(), image, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.file.Close() }) // a test's file
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	return d
}

// A table that cannot be read is an error and does not count as a disk without a table.
func TestReadErrors(t *testing.T) {
	_, header := shrunk(t, gptImage(t, 16*mib), 0).readGPT(1)
	_, entries := shrunk(t, gptImage(t, 16*mib), 1024).readGPT(1)
	_, table := shrunk(t, gptImage(t, 16*mib), 0).add(t.Context(), Partition{Size: mib})
	_, mbr := shrunk(t, gptImage(t, 16*mib), 0).addMBR(&Table{}, Partition{Size: mib})
	extended := mbrImage(t, 16*mib, "label: dos\nstart=4096, size=8192, type=5\nstart=6144, size=2048\n")
	_, logical := shrunk(t, extended, mib).read(t.Context())
	for name, err := range map[string]error{
		"header": header, "entries": entries, "table": table, "MBR": mbr, "logical partitions": logical,
		"protective MBR": shrunk(t, gptImage(t, 16*mib), 0).growProtective(),
	} {
		if !errors.Is(err, io.EOF) || errors.Is(err, ErrNoTable) {
			t.Errorf("%s: got %v, want %v", name, err, io.EOF)
		}
	}
	image := testenv.SparseFile(t, 16*mib)
	device := testenv.Loop(t, image, 512)
	if err := os.Truncate(image, 0); err != nil {
		t.Fatal(err)
	}
	if moved, err := RepairBackup(t.Context(), device); moved || !errors.Is(err, unix.EIO) {
		t.Errorf("RepairBackup: got %v and %v, want %v", moved, err, unix.EIO)
	}
	_, missing := Read(t.Context(), "/dev/missing")
	_, repair := RepairBackup(t.Context(), "/dev/missing")
	_, add := Add(t.Context(), sysfs.Root{}, "/dev/missing", Partition{Size: mib})
	for name, err := range map[string]error{
		"Read": missing, "RepairBackup": repair, "Add": add,
		"sync":   syncTable(t.Context(), "/dev/missing", nil),
		"remove": (&plainDisk{device: "/dev/missing"}).remove(t.Context(), 1),
		"add":    (&plainDisk{device: "/dev/missing"}).add(1, extent{mib, mib}),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of a missing device: got %v, want %v", name, err, fs.ErrNotExist)
		}
	}
	_, character := open(t.Context(), os.DevNull, os.O_RDONLY)
	wantError(t, "character device", character, "size of /dev/null")
	_, tiny := open(t.Context(), testenv.SparseFile(t, 1024), os.O_RDONLY)
	wantError(t, "tiny file", tiny, "1024 bytes hold none")
}

// The error of an invalid table names the problem.
func TestUnsoundTables(t *testing.T) {
	for want, change := range map[string]func(g *gptCopy){
		"GPT header at sector 1 says it lies at 5":   func(g *gptCopy) { g.MyLBA = 5 },
		"GPT entries at sector 1 lie outside":        func(g *gptCopy) { g.PartitionEntryLBA = 1 },
		"GPT entries at sector 99999999 lie outside": func(g *gptCopy) { g.PartitionEntryLBA = 99999999 },
		"GPT entries have CRC":                       func(g *gptCopy) { g.array[0]++ },
		"GPT has usable sectors 34 to 33":            func(g *gptCopy) { g.FirstUsableLBA, g.LastUsableLBA = 34, 33 },
		"GPT has 128 entries of 64 bytes":            func(g *gptCopy) { g.SizeOfPartitionEntry = 64 },
	} {
		image := gptImage(t, 16*mib)
		rewritePrimary(t, image, change)
		d, err := open(t.Context(), image, os.O_RDWR)
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.primary()
		wantError(t, "read", err, want)
		_, err = d.add(t.Context(), Partition{Size: mib})
		wantError(t, "add", err, "the primary GPT is broken: "+want)
		if err := d.file.Close(); err != nil {
			t.Error(err)
		}
	}
	image := gptImage(t, 16*mib)
	writeAt(t, image, 16*mib-512+60, []byte{0xff})
	if table := read(t, image); !table.Damaged {
		t.Error("a broken backup is not reported")
	}
	image = mbrImage(t, 16*mib, "label: dos\nstart=4096, size=2048\n")
	grow(t, image, mib)
	_, err := Read(t.Context(), image)
	if wantError(t, "beyond the end", err,
		"partition 1 starts at sector 4096, beyond the end"); !errors.Is(err, ErrNoTable) {
		t.Errorf("beyond the end: got %v, want %v", err, ErrNoTable)
	}
	writeAt(t, image, mbrTable, []byte{1})
	_, err = Read(t.Context(), image)
	if wantError(t, "status", err, "entry 1 of the MBR has the status 0x01"); !errors.Is(err, ErrNoTable) {
		t.Errorf("status: got %v, want %v", err, ErrNoTable)
	}
}

// A layout that cannot be written leaves the disk unchanged.
func TestCreateImpossible(t *testing.T) {
	image := mbrImage(t, 128*mib, "label: dos\nlabel-id: 0x12345678\nstart=2048, size=2048\n")
	for want, l := range map[string]Layout{
		`partition 1: "none" is no GUID`: {
			GPT, []Planned{{Partition: Partition{Number: 1, Type: "none", Start: mib, Size: mib}}},
		},
		`"0x00" is no MBR partition type`: {
			MBR, []Planned{{Partition: Partition{Number: 1, Type: "0x00", Start: mib, Size: mib}}},
		},
		`partition scheme "bsd" is neither gpt`: {Scheme: "bsd"},
		"an MBR has 4 primary partitions, 5 are needed": {MBR, slices.Repeat([]Planned{
			{Partition: Partition{Type: TypeMBRLinux, Start: mib, Size: mib}},
		}, 5)},
		"partition 0 has invalid index 129": {GPT, []Planned{
			{Partition: Partition{Number: 129, Type: TypeLinux, Start: mib, Size: mib}},
		}},
	} {
		_, err := Create(t.Context(), image, l)
		wantError(t, "Create", err, want)
	}
	wantError(t, "large sectors", Layout{Scheme: GPT}.Fits(1<<30, 1<<19), "sectors of 524288 bytes leave no")
	opened := false
	_, err := Create(hooked{t.Context(), func() error {
		if opened {
			return context.Canceled
		}
		opened = true
		return nil
	}}, image, plan(t, small(MBR, false, false)))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
	if table := read(t, image); table.DiskID != 0x12345678 {
		t.Errorf("got table %+v, want the former one", table)
	}
}

// The constant fields of a new GPT follow UEFI 2.10, tables 5.4 and 5.5, and its GUID is random.
func TestCreateConstants(t *testing.T) {
	guids := map[string]bool{}
	for range 2 {
		image := testenv.SparseFile(t, 128*mib)
		table, err := Create(t.Context(), image, plan(t, small(GPT, true, false)))
		if err != nil {
			t.Fatal(err)
		}
		guids[table.GUID] = true
		data := head(t, image)
		if got := string(data[mbrTable : mbrTable+5]); got != "\x00\x00\x02\x00\xee" {
			t.Errorf("got protective entry %x, want 000002 00ee", got)
		}
		if got := string(data[512+8 : 512+12]); got != "\x00\x00\x01\x00" {
			t.Errorf("got revision %x, want 1.0", got)
		}
	}
	if len(guids) != 2 || guids["00000000-0000-0000-0000-000000000000"] {
		t.Errorf("got GUIDs %v, want two different ones", guids)
	}
}

// A partition can be added at a given position, with every field.
func TestAddFields(t *testing.T) {
	image := gptImage(t, 32*mib)
	const id = "01234567-89ab-cdef-0123-456789abcdef"
	added, err := Add(t.Context(), sysfs.Root{}, image,
		Partition{Start: 20*mib + 512, Size: mib + 1, UUID: id, Boot: true})
	if err != nil {
		t.Fatal(err)
	}
	if added.Start != 20*mib || added.Start+added.Size != 21*mib+2*512 || added.UUID != id || !added.Boot {
		t.Errorf("got %+v, want it bootable with UUID %s from byte %d to %d", added, id, 20*mib, 21*mib+2*512)
	}
	if added, err := Add(t.Context(), sysfs.Root{}, image, Partition{Start: 24*mib - 1, Size: mib + 1}); err != nil ||
		added.Start != 23*mib {
		t.Errorf("got %+v and %v, want it to start at byte %d", added, err, 23*mib)
	}
	for want, p := range map[string]Partition{
		"size 0":             {},
		`"none" is no GUID`:  {Size: mib, Type: "none"},
		`"short" is no GUID`: {Size: mib, UUID: "short"},
		"36 fit":             {Size: mib, Name: strings.Repeat("n", 37)},
		"an unused entry":    {Size: mib, Type: "00000000-0000-0000-0000-000000000000"},
	} {
		_, err := Add(t.Context(), sysfs.Root{}, image, p)
		wantError(t, "GPT", err, want)
	}
	image = mbrImage(t, 32*mib, "label: dos\nstart=2048, size=2048\n")
	if added, err := Add(t.Context(), sysfs.Root{}, image,
		Partition{Size: mib, Boot: true}); err != nil || !added.Boot {
		t.Errorf("MBR: got %+v and %v, want it active", added, err)
	}
	_, err = Add(t.Context(), sysfs.Root{}, image, Partition{Size: mib, Type: "0x100"})
	wantError(t, "MBR", err, `"0x100" is no MBR partition type`)
	if !(Partition{Type: "0x0f"}).Extended() || (Partition{Type: "0x83"}).Extended() {
		t.Error("want 0x0f alone to be an extended partition")
	}
}

// A partition in the kernel that the table lacks prevents the addition: the table is reread, unless the disk is in
// use.
func TestAddAgainstKernel(t *testing.T) {
	device := testenv.Loop(t, mbrImage(t, 32*mib, "label: dos\nstart=2048, size=2048\n"), 512)
	if err := block.AddPartition(device, 2, 8*mib, mib); err != nil {
		t.Fatal(err)
	}
	if _, err := Add(t.Context(), sysfs.Root{}, device, Partition{Size: mib}); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	if err := Forget(t.Context(), sysfs.Root{}, device); err != nil {
		t.Fatal(err)
	}
	if err := block.AddPartition(device, 3, 8*mib, mib); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(device + "p3")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Add(t.Context(), sysfs.Root{}, device,
		Partition{Start: 16 * mib, Size: mib}); !errors.Is(err, unix.EBUSY) {
		t.Errorf("in use: got %v, want %v", err, unix.EBUSY)
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
}

// brokenView is a kernel that returns errors.
type brokenView struct {
	known          map[int]extent
	list, addError error
	added          []extent
	removed        []int
}

func (v *brokenView) partitions(context.Context) (map[int]extent, error) { return v.known, v.list }

func (v *brokenView) add(_ int, e extent) error {
	v.added = append(v.added, e)
	return v.addError
}

func (v *brokenView) remove(_ context.Context, n int) error {
	v.removed = append(v.removed, n)
	return nil
}

func TestSyncRefused(t *testing.T) {
	broken := errors.New("broken kernel")
	table := &Table{
		Scheme: MBR, SectorSize: 512, DiskSize: 32 * mib,
		Partitions: []Partition{{Number: 1, Type: "0x05", Start: mib, Size: 8 * mib}},
	}
	for name, v := range map[string]*brokenView{"list": {list: broken}, "add": {addError: broken}} {
		if err := apply(t.Context(), "disk", table, v); !errors.Is(err, broken) {
			t.Errorf("%s: got %v, want %v", name, err, broken)
		}
	}
	// The kernel's size of an extended partition covers only its start.
	for size, changed := range map[extent]int{{mib, 1024}: 0, {mib, 512}: 0, {2 * mib, 1024}: 1} {
		v := &brokenView{known: map[int]extent{1: size}}
		err := apply(t.Context(), "disk", table, v)
		if err != nil || len(v.added) != changed || len(v.removed) != changed {
			t.Errorf("%+v: got %d added, %d removed and %v, want %d", size, len(v.added), len(v.removed), err, changed)
		} else if changed > 0 && v.added[0] != (extent{mib, 1024}) {
			t.Errorf("%+v: got %+v added, want two sectors", size, v.added)
		}
	}
	if err := Sync(t.Context(), sysfs.Root{}, testenv.SparseFile(t, mib)); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("regular file: got %v, want %v", err, unix.ENOTTY)
	}
	device := testenv.Loop(t, mbrImage(t, 32*mib, "label: dos\nstart=2048, size=2048\n"), 512)
	name := filepath.Base(device)
	root := sysfs.Root{Path: t.TempDir()}
	if err := Sync(t.Context(), root, device); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not listed: got %v, want %v", err, fs.ErrNotExist)
	}
	f := &fakeMapper{t: t, root: root.Path}
	f.write(root.Sys("class/block", name, "size"), "65536")
	f.write(root.Sys("class/block", name, name+"p1/partition"), "1")
	f.write(root.Sys("class/block", name+"p1/size"), "2048")
	if _, err := (&plainDisk{root, device}).partitions(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("partition without a start: got %v, want %v", err, fs.ErrNotExist)
	}
	f.write(root.Sys("class/block", name, "dm/uuid"), mapID) // without its name
	_, add := Add(t.Context(), root, device, Partition{Size: mib})
	for what, err := range map[string]error{
		"Add": add, "Sync": Sync(t.Context(), root, device), "Forget": Forget(t.Context(), root, device),
		"Release": Release(t.Context(), root, device),
	} {
		if err == nil {
			t.Errorf("%s of a broken map: got no error", what)
		}
	}
	if _, err := newMappedDisk(root, device, f); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("map without a name: got %v, want %v", err, fs.ErrNotExist)
	}
}

// brokenMapper returns an error from all methods.
type brokenMapper struct{ err error }

func (b brokenMapper) Create(devmapper.Map) (string, error)       { return "", b.err }
func (b brokenMapper) Remove(string) error                        { return b.err }
func (b brokenMapper) Targets(string) ([]devmapper.Target, error) { return nil, b.err }
