package raidtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// Kernel is a kernel that creates and runs arrays: a [FakeKernel], or the kernel of a machine as agent/softraid calls
// it.
type Kernel interface {
	List(ctx context.Context) ([]raid.Status, error)
	Create(ctx context.Context, o raid.Options) (path string, err error)
	Assemble(ctx context.Context, number int, uuid string, members []string) (path string, err error)
	Resync(path string) error
	Stop(ctx context.Context, path string) error
	Check(path, level string, members []string) error
	CheckWritten(path, level string, members []string) error
	Wipe(ctx context.Context, path string, wait erase.Wait) error
}

// CaseDisks is the number of disks that [Cases] needs, each of [DiskSize] bytes.
const CaseDisks = 4

// Result is the result of one of the cases. A nil error means that the kernel does what tests rely on.
type Result struct {
	Name string
	Err  error
}

// Cases checks the behaviours of a kernel that tests of arrays rely on. The kernel must have no arrays, and the disks
// must be free. Each case leaves them free again.
func Cases(ctx context.Context, k Kernel, disks []string) []Result {
	var results []Result
	add := func(name string, err error) { results = append(results, Result{name, err}) }
	for _, o := range []raid.Options{
		{Version: "1.2", Level: "raid0", Members: disks[:2]},
		{Version: "1.2", Level: "raid1", Members: disks[:2]},
		{Version: "1.0", Level: "raid1", Members: disks[:2]},
		{Version: "1.2", Level: "raid1", Members: []string{disks[2], disks[0], disks[1]}},
		{Version: "1.2", Level: "raid5", Members: disks[:3]},
		{Version: "1.2", Level: "raid6", Members: disks[:4]},
		{Version: "1.2", Level: "raid10", Members: disks[:3]},
		{Version: "1.2", Level: "raid10", Members: disks[:4]},
	} {
		o.Number, o.Name = 3, "any:data"
		b := bench{k: k, o: o, other: disks[3]}
		name := fmt.Sprintf("%s %s of %d: ", o.Level, o.Version, len(o.Members))
		add(name+"create", b.with(ctx, b.created))
		add(name+"members in use", b.with(ctx, b.held))
		add(name+"stop", b.with(ctx, b.stopped))
		add(name+"assemble", b.with(ctx, b.assembled))
		add(name+"assemble with wrong members", b.with(ctx, b.misassembled))
		add(name+"content", b.with(ctx, b.kept))
		add(name+"partitions of the array", b.with(ctx, b.partitioned))
	}
	b := bench{k: k, other: disks[3], o: raid.Options{
		Number: 3, Version: "1.2", Level: "raid1", Name: "any:data", Members: disks[:2],
	}}
	add("partition in use", b.with(ctx, b.partitionInUse))
	add("stop while it is open", b.with(ctx, b.stoppedInUse))
	add("create with what is in use", b.with(ctx, b.createdAgain))
	add("two arrays", b.with(ctx, b.two))
	add("unknown array", b.unknown(ctx))
	add("unsuitable members", b.unsuitable(ctx))
	b.o.Members = nil
	add("partitions as members", b.onPartitions(ctx, disks[:2]))
	return results
}

// bench is an array of a case.
type bench struct {
	k     Kernel
	o     raid.Options
	other string // a disk that is no member, except of arrays of all disks
	path  string // while the array runs
}

// with creates the array, calls a case, stops the array if it runs, and checks that the disks are free.
func (b *bench) with(ctx context.Context, run func(context.Context) error) (err error) {
	if b.path, err = b.k.Create(ctx, b.o); err != nil {
		return err
	}
	err = run(ctx)
	if b.path != "" {
		err = errors.Join(err, b.stop(ctx))
	}
	for _, path := range append(slices.Clone(b.o.Members), b.other) {
		err = errors.Join(err, exclusive(path), clear(path))
	}
	return err
}

// clear zeroes the places of superblocks and partition tables.
func clear(path string) error {
	return errors.Join(WriteAt(path, 0, make([]byte, MiB)), WriteAt(path, DiskSize-MiB, make([]byte, MiB)))
}

func (b *bench) stop(ctx context.Context) error {
	path := b.path
	b.path = ""
	return b.k.Stop(ctx, path)
}

// exclusive opens a device exclusively, and closes it.
func exclusive(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// want returns an error unless err wraps target.
func want(what string, err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return fmt.Errorf("%s: got %w, want %w", what, err, target)
}

// wantAny returns an error if err is nil.
func wantAny(what string, err error) error {
	if err == nil {
		return fmt.Errorf("%s: got no error", what)
	}
	return nil
}

// expect returns an error unless the kernel knows only the array, in one of the states.
func (b *bench) expect(ctx context.Context, states ...string) error {
	list, err := b.k.List(ctx)
	if err != nil || len(list) != 1 {
		return fmt.Errorf("got arrays %+v and %w, want one", list, err)
	}
	a := list[0]
	if a.Name != "md3" || a.Path != b.path || a.Level != b.o.Level || a.Version != b.o.Version ||
		a.Devices != len(b.o.Members) || a.Degraded != 0 || !slices.Contains(states, a.State) {
		return fmt.Errorf("got array %+v, want md3, %s, in a state of %q", a, b.path, states)
	}
	var slots []raid.Slot
	for i, path := range b.o.Members {
		slots = append(slots, raid.Slot{Path: path, Role: i, State: "in_sync"})
	}
	slices.SortFunc(slots, func(a, b raid.Slot) int { return strings.Compare(a.Path, b.Path) })
	if !slices.Equal(a.Slots, slots) {
		return fmt.Errorf("got slots %+v, want %+v", a.Slots, slots)
	}
	return nil
}

// writable are the states of an array that can be resynced.
var writable = []string{"clean", "active", "active-idle", "write-pending"}

// uuid returns the UUID of the array in the superblock of its first member.
func (b *bench) uuid(ctx context.Context) (string, error) {
	found, err := raid.Read(ctx, b.o.Members[0])
	if err != nil || len(found) != 1 || found[0].Problem != nil {
		return "", fmt.Errorf("got superblocks %+v and %w, want one", found, err)
	}
	return found[0].UUID, nil
}

// created: a new array is writable and has all its members in their roles. Its metadata can be removed.
func (b *bench) created(ctx context.Context) error {
	if err := errors.Join(b.expect(ctx, writable...), b.k.Check(b.path, b.o.Level, b.o.Members)); err != nil {
		return err
	}
	swapped := slices.Clone(b.o.Members)
	slices.Reverse(swapped)
	err := errors.Join(
		want("members in another order", b.k.Check(b.path, b.o.Level, swapped), raid.ErrIncomplete),
		wantAny("another level", b.k.Check(b.path, "raid4", b.o.Members)),
		wantAny("a member less", b.k.Check(b.path, b.o.Level, b.o.Members[1:])),
		b.k.CheckWritten(b.path, b.o.Level, b.o.Members),
		b.k.Wipe(ctx, b.path, erase.Wait{}),
		b.k.Check(b.path, b.o.Level, b.o.Members),
		b.k.Resync(b.path), // it is writable already
		b.expect(ctx, writable...),
	)
	for i, path := range b.o.Members {
		found, failed := raid.Read(ctx, path)
		if failed != nil || len(found) != 1 || found[0].Problem != nil || found[0].Name != b.o.Name ||
			found[0].Version != b.o.Version || found[0].Level != b.o.Level || found[0].Role != i {
			err = errors.Join(err, fmt.Errorf("%s: got superblocks %+v and %w, want one with role %d",
				path, found, failed, i))
		}
	}
	return err
}

// held: members can be read, but neither be opened exclusively nor lose their metadata. The array can be opened
// exclusively.
func (b *bench) held(ctx context.Context) error {
	var problems []error
	for _, path := range b.o.Members {
		f, err := os.Open(path)
		if err == nil {
			_, err = f.ReadAt(make([]byte, 4096), 4096)
			err = errors.Join(err, f.Close())
		}
		problems = append(problems, err, want(path+": open exclusively", exclusive(path), unix.EBUSY),
			want(path+": remove metadata", erase.Metadata(ctx, sysfs.Root{}, path, erase.Wait{}), erase.ErrBusy))
	}
	return errors.Join(append(problems, exclusive(b.path), b.k.Check(b.path, b.o.Level, b.o.Members))...)
}

// stopped: the array is not listed, its members are free and have the superblocks of a complete array. Its former
// device cannot be stopped again.
func (b *bench) stopped(ctx context.Context) error {
	path := b.path
	uuid, err := b.uuid(ctx)
	if err = errors.Join(err, b.stop(ctx)); err != nil {
		return err
	}
	list, err := b.k.List(ctx)
	if err != nil || len(list) > 0 {
		return fmt.Errorf("got arrays %+v and %w, want none", list, err)
	}
	_, err = raid.ReadMembers(ctx, sysfs.Root{}, uuid, b.o.Members)
	problems := []error{
		err, want("stop again", b.k.Stop(ctx, path), fs.ErrNotExist),
		want("check", b.k.Check(path, b.o.Level, b.o.Members), fs.ErrNotExist),
		want("resync", b.k.Resync(path), fs.ErrNotExist),
	}
	for _, member := range b.o.Members {
		problems = append(problems, exclusive(member))
	}
	return errors.Join(problems...)
}

// assembled: the array is read-only until it is resynced, except for RAID 0. It has the size that the superblocks say.
func (b *bench) assembled(ctx context.Context) error {
	uuid, err := b.uuid(ctx)
	if err = errors.Join(err, b.stop(ctx)); err != nil {
		return err
	}
	members, err := raid.ReadMembers(ctx, sysfs.Root{}, uuid, b.o.Members)
	if err != nil {
		return err
	}
	size, _, err := members.UsedSizes()
	if err != nil {
		return err
	}
	given := slices.Clone(b.o.Members)
	slices.Reverse(given) // the superblocks say which role a member has
	if b.path, err = b.k.Assemble(ctx, 3, uuid, given); err != nil {
		return err
	}
	f, err := os.Open(b.path)
	if err != nil {
		return err
	}
	got, _, err := block.Geometry(f)
	if err = errors.Join(err, f.Close()); err != nil || got != size {
		return fmt.Errorf("got an array of %d bytes and %w, want %d", got, err, size)
	}
	if b.o.Level == "raid0" {
		err = errors.Join(b.expect(ctx, "clean"), b.k.Check(b.path, b.o.Level, b.o.Members))
	} else {
		err = errors.Join(b.expect(ctx, "read-auto"),
			wantAny("check of what is read-only", b.k.Check(b.path, b.o.Level, b.o.Members)),
			wantAny("check of what was not written", b.k.CheckWritten(b.path, b.o.Level, b.o.Members)))
	}
	_, again := b.k.Assemble(ctx, 4, uuid, b.o.Members)
	return errors.Join(err, want("assemble again", again, unix.EBUSY), b.k.Resync(b.path), b.expect(ctx, writable...),
		b.k.CheckWritten(b.path, b.o.Level, b.o.Members))
}

// misassembled: without a member, with a member twice, with another UUID, or while a member is in use, the array is not
// assembled, and the kernel knows none.
func (b *bench) misassembled(ctx context.Context) error {
	uuid, err := b.uuid(ctx)
	if err = errors.Join(err, b.stop(ctx)); err != nil {
		return err
	}
	all := b.o.Members
	twice := append(slices.Clone(all[1:]), all[1])
	_, missing := b.k.Assemble(ctx, 3, uuid, all[1:])
	_, repeated := b.k.Assemble(ctx, 3, uuid, twice)
	_, foreign := b.k.Assemble(ctx, 3, "other", all)
	_, unknown := b.k.Assemble(ctx, 3, uuid, append(slices.Clone(all[1:]), "/dev/missing"))
	f, err := os.OpenFile(all[1], os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return err
	}
	_, busy := b.k.Assemble(ctx, 3, uuid, all)
	err = errors.Join(f.Close(), want("missing", missing, raid.ErrIncomplete),
		want("twice", repeated, raid.ErrIncomplete), want("UUID", foreign, raid.ErrIncomplete),
		want("unknown", unknown, fs.ErrNotExist), want("in use", busy, unix.EBUSY))
	list, failed := b.k.List(ctx)
	if failed != nil || len(list) > 0 {
		err = errors.Join(err, fmt.Errorf("got arrays %+v and %w, want none", list, failed))
	}
	return err
}

// kept: the content of the array is the same when it is assembled again. A write makes it writable.
func (b *bench) kept(ctx context.Context) error {
	uuid, err := b.uuid(ctx)
	if err != nil {
		return err
	}
	const at = 3*MiB + 4096
	text := bytes.Repeat([]byte("tenant! "), 512)
	if err := errors.Join(WriteAt(b.path, at, text), b.stop(ctx)); err != nil {
		return err
	}
	if b.path, err = b.k.Assemble(ctx, 3, uuid, b.o.Members); err != nil {
		return err
	}
	f, err := os.Open(b.path)
	if err != nil {
		return err
	}
	got := make([]byte, len(text))
	_, err = f.ReadAt(got, at)
	if err = errors.Join(err, f.Close()); err != nil || !bytes.Equal(got, text) {
		return fmt.Errorf("got content %.16q and %w, want %.16q", got, err, text)
	}
	return errors.Join(WriteAt(b.path, at, text), b.expect(ctx, writable...),
		b.k.CheckWritten(b.path, b.o.Level, b.o.Members))
}

// partitioned: the kernel shows the partitions of an array when it reads the table, also of an array that is assembled,
// and none when the metadata are removed.
func (b *bench) partitioned(ctx context.Context) error {
	uuid, err := b.uuid(ctx)
	if err != nil {
		return err
	}
	if err := createPartitions(ctx, b.path, 1); err != nil {
		return err
	}
	if err := b.wantPartitions(ctx, 1); err != nil {
		return err
	}
	if err := b.stop(ctx); err != nil {
		return err
	}
	if b.path, err = b.k.Assemble(ctx, 3, uuid, b.o.Members); err != nil {
		return err
	}
	if err := errors.Join(b.wantPartitions(ctx, 1), b.k.Wipe(ctx, b.path, erase.Wait{})); err != nil {
		return err
	}
	return b.wantPartitions(ctx, 0)
}

// createPartitions makes partitions of 8 MiB, and lets the kernel show them.
func createPartitions(ctx context.Context, disk string, count int) error {
	layout := partition.Layout{Scheme: partition.GPT}
	for i := range count {
		layout.Partitions = append(layout.Partitions, partition.Planned{Partition: partition.Partition{
			Number: i + 1, Start: int64(1+8*i) * MiB, Size: 8 * MiB, Type: partition.TypeLinux,
		}})
	}
	if _, err := partition.Create(ctx, disk, layout); err != nil {
		return err
	}
	return partition.Sync(ctx, sysfs.Root{}, disk)
}

func (b *bench) wantPartitions(ctx context.Context, count int) error {
	parts, err := block.Partitions(ctx, sysfs.Root{}, b.path)
	if err != nil || len(parts) != count {
		return fmt.Errorf("got partitions %+v and %w, want %d", parts, err, count)
	}
	for _, p := range parts {
		if p.Path != block.PartitionPath(sysfs.Root{}, b.path, p.Number) || p.Size != 8*MiB {
			return fmt.Errorf("got partition %+v, want 8 MiB", p)
		}
	}
	return nil
}

// partitionInUse: while a partition of the array is in use, the kernel reads no table, and the array neither stops nor
// can be opened exclusively.
func (b *bench) partitionInUse(ctx context.Context) error {
	if err := createPartitions(ctx, b.path, 1); err != nil {
		return err
	}
	f, err := os.OpenFile(block.PartitionPath(sysfs.Root{}, b.path, 1), os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return err
	}
	return errors.Join(want("read the table", block.Rescan(ctx, b.path), unix.EBUSY),
		want("open the array", exclusive(b.path), unix.EBUSY),
		want("stop the array", b.k.Stop(ctx, b.path), unix.EBUSY),
		b.wantPartitions(ctx, 1), f.Close(), partition.Sync(ctx, sysfs.Root{}, b.path), b.wantPartitions(ctx, 1))
}

// stoppedInUse: an array that is open does not stop, whether or not it is open exclusively. It still runs.
func (b *bench) stoppedInUse(ctx context.Context) error {
	var problems []error
	for name, flags := range map[string]int{"read-only": os.O_RDONLY, "exclusively": os.O_RDWR | unix.O_EXCL} {
		f, err := os.OpenFile(b.path, flags, 0)
		if err != nil {
			return err
		}
		problems = append(problems, want("stop while it is open "+name, b.k.Stop(ctx, b.path), unix.EBUSY),
			b.k.Check(b.path, b.o.Level, b.o.Members), f.Close())
	}
	return errors.Join(problems...)
}

// createdAgain: a member or a number that is in use cannot be used for another array.
func (b *bench) createdAgain(ctx context.Context) error {
	o := b.o
	o.Number, o.Members = 4, []string{b.o.Members[1], b.other}
	_, member := b.k.Create(ctx, o)
	o.Number, o.Level, o.Members = 3, "raid1", []string{b.other, b.other}
	_, twice := b.k.Create(ctx, o)
	return errors.Join(want("member in use", member, unix.EBUSY), want("member twice", twice, unix.EBUSY),
		b.expect(ctx, writable...))
}

// two: a second array has another number. Its number is not free, and it can be stopped alone.
func (b *bench) two(ctx context.Context) error {
	o := b.o
	o.Number, o.Level, o.Name = 4, "raid0", "any:other"
	parts, err := b.otherPartitions(ctx)
	if err != nil {
		return err
	}
	o.Members = parts
	path, err := b.k.Create(ctx, o)
	if err != nil {
		return err
	}
	list, err := b.k.List(ctx)
	var names []string
	for _, a := range list {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"md3", "md4"}) {
		err = fmt.Errorf("got arrays %q and %w, want md3 and md4", names, err)
	}
	err = errors.Join(err, b.k.Check(path, "raid0", parts), b.k.Stop(ctx, path), b.expect(ctx, writable...))
	// The superblocks of the members are written before the number is used.
	o.Number = 3
	_, used := b.k.Create(ctx, o)
	return errors.Join(err, wantAny("number in use", used), b.expect(ctx, writable...), exclusive(parts[0]),
		exclusive(parts[1]), partition.Forget(ctx, sysfs.Root{}, b.other))
}

func (b *bench) otherPartitions(ctx context.Context) ([]string, error) {
	if err := createPartitions(ctx, b.other, 2); err != nil {
		return nil, err
	}
	return []string{
		block.PartitionPath(sysfs.Root{}, b.other, 1), block.PartitionPath(sysfs.Root{}, b.other, 2),
	}, nil
}

// unknown: a device that is not there is an error.
func (b *bench) unknown(ctx context.Context) error {
	const path = "/dev/md9"
	return errors.Join(want("stop", b.k.Stop(ctx, path), fs.ErrNotExist),
		want("resync", b.k.Resync(path), fs.ErrNotExist),
		want("check", b.k.Check(path, "raid1", b.o.Members), fs.ErrNotExist),
		wantAny("check", b.k.CheckWritten(path, "raid1", b.o.Members)),
		wantAny("wipe", b.k.Wipe(ctx, path, erase.Wait{})))
}

// unsuitable: an array with members that are missing or too few is not created, and its members remain free.
func (b *bench) unsuitable(ctx context.Context) error {
	o := b.o
	o.Members = []string{b.o.Members[0], "/dev/missing"}
	_, missing := b.k.Create(ctx, o)
	o.Members = b.o.Members[:1]
	_, few := b.k.Create(ctx, o)
	o.Members, o.Level = b.o.Members, "raid7"
	_, level := b.k.Create(ctx, o)
	list, err := b.k.List(ctx)
	if err != nil || len(list) > 0 {
		err = fmt.Errorf("got arrays %+v and %w, want none", list, err)
	}
	return errors.Join(err, want("missing member", missing, fs.ErrNotExist), wantAny("one member", few),
		wantAny("unknown level", level), exclusive(b.o.Members[0]), exclusive(b.o.Members[1]))
}

// onPartitions: while partitions of a disk are members, the disk can neither be opened exclusively nor be partitioned,
// nor can the kernel drop its partitions.
func (b *bench) onPartitions(ctx context.Context, disks []string) error {
	for _, disk := range disks {
		if err := createPartitions(ctx, disk, 2); err != nil {
			return err
		}
		b.o.Members = append(b.o.Members, block.PartitionPath(sysfs.Root{}, disk, 2))
	}
	path, err := b.k.Create(ctx, b.o)
	if err != nil {
		return err
	}
	b.path = path
	problems := []error{b.expect(ctx, writable...), b.k.Check(path, b.o.Level, b.o.Members)}
	for _, disk := range disks {
		_, created := partition.Create(ctx, disk, partition.Layout{Scheme: partition.GPT})
		problems = append(problems, want("open "+disk, exclusive(disk), unix.EBUSY),
			want("partition "+disk, created, unix.EBUSY),
			exclusive(block.PartitionPath(sysfs.Root{}, disk, 1)),
			want("open the member on "+disk, exclusive(block.PartitionPath(sysfs.Root{}, disk, 2)), unix.EBUSY),
			want("forget partitions of "+disk, partition.Forget(ctx, sysfs.Root{}, disk), unix.EBUSY))
	}
	problems = append(problems, b.stop(ctx))
	for _, disk := range disks {
		problems = append(problems, erase.Metadata(ctx, sysfs.Root{}, disk, erase.Wait{}), exclusive(disk))
	}
	return errors.Join(problems...)
}
