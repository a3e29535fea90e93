// Package raidtest has a kernel of software RAID for tests, makes disks with members of arrays, and has the cases that
// this kernel and a real one pass.
package raidtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// FakeKernel stands in for the kernel of a machine without software RAID. Its members are block devices of this
// machine, and its arrays are loop devices, so that this machine's kernel answers for sizes, partitions, and devices in
// use. It passes the same [Cases] as the real kernel. It differs from the real kernel in five points: the device of an
// array is named as a loop device, it remains when the array is stopped, its content is kept apart from the members,
// sysfs does not show the array as a holder of its members, and nothing is resynced. It implements softraid.Kernel.
type FakeKernel struct {
	System sysfs.Root // arrays of ListArray are listed and stopped, too

	// Calls, with the paths that the arrays have on a real machine. Assembled has only calls that succeeded.
	Created, Assembled, Checked, Wiped, Stopped []string

	Fail     map[string]error // of Create, by names of arrays
	CheckErr error

	OnStop func(path string) error // nil is no error
	OnWipe func(ctx context.Context) error

	t       testing.TB
	own     sysfs.Root        // shows the arrays
	devices map[string]device // of all arrays, by UUID
	arrays  map[string]*array // that run, by the paths of their devices
}

// device is a loop device with the content of an array.
type device struct{ path, file string }

// array is an array that runs.
type array struct {
	raid.Status

	device  device
	members []*os.File // opened exclusively
	since   time.Time  // of the last write to the device before the array was started
}

// NewKernel returns a kernel without arrays.
func NewKernel(t testing.TB) *FakeKernel {
	t.Helper()
	return &FakeKernel{
		t: t, own: sysfs.Root{Path: t.TempDir()}, devices: map[string]device{}, arrays: map[string]*array{},
	}
}

// List implements softraid.Kernel.
func (k *FakeKernel) List(ctx context.Context) ([]raid.Status, error) {
	list, err := raid.List(ctx, k.System)
	if err != nil || len(k.arrays) == 0 {
		return list, err
	}
	if err := k.update(); err != nil {
		return nil, err
	}
	own, err := raid.List(ctx, k.own)
	for _, status := range own {
		for path, a := range k.arrays {
			if a.Name == status.Name {
				status.Path = path
			}
		}
		list = append(list, status)
	}
	return list, err
}

// Create implements softraid.Kernel.
func (k *FakeKernel) Create(ctx context.Context, o raid.Options) (path string, err error) {
	fail := func(err error) (string, error) { return "", fmt.Errorf("create array %q: %w", o.Name, err) }
	uuid, err := writeMembers(o)
	if err != nil {
		return fail(err)
	}
	k.Created = append(k.Created, fmt.Sprintf("md%d %s %s %s", o.Number, o.Level, o.Name, o.Version))
	if err := k.Fail[o.Name]; err != nil {
		return fail(err)
	}
	members, err := raid.ReadMembers(ctx, sysfs.Root{}, uuid, o.Members)
	if err == nil {
		path, err = k.start(ctx, o.Number, members, "clean")
	}
	if err != nil {
		return fail(err)
	}
	return path, nil
}

// writeMembers writes the superblocks of a new array, and returns its UUID.
func writeMembers(o raid.Options) (uuid string, err error) {
	files, err := open(o.Members)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, closeAll(files)) }()
	n := md.New{Version: o.Version, Level: o.Level, Name: o.Name}
	for _, f := range files {
		size, _, err := block.Geometry(f)
		if err != nil {
			return "", err
		}
		n.Sizes = append(n.Sizes, size)
	}
	members, err := n.Encode(time.Unix(1700000000, 0))
	if err != nil {
		return "", err
	}
	for i, f := range files {
		for _, b := range members[i] {
			if _, err := f.WriteAt(b.Data, b.Offset); err != nil {
				return "", err
			}
		}
		if err := f.Sync(); err != nil {
			return "", err
		}
	}
	size, _, err := block.Geometry(files[0])
	if err != nil {
		return "", err
	}
	superblocks, err := md.Find(files[0], size)
	for _, s := range superblocks {
		if s.Problem == nil && s.Version == o.Version {
			uuid = s.UUID
		}
	}
	return uuid, err
}

// open opens members exclusively, as the kernel does. After an error none is open.
func open(members []string) ([]*os.File, error) {
	var files []*os.File
	for _, path := range members {
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
		if err != nil {
			return nil, errors.Join(err, closeAll(files))
		}
		files = append(files, f)
	}
	return files, nil
}

func closeAll(files []*os.File) error {
	var problems []error
	for _, f := range files {
		problems = append(problems, f.Close())
	}
	return errors.Join(problems...)
}

// Assemble implements softraid.Kernel.
func (k *FakeKernel) Assemble(ctx context.Context, number int, uuid string, members []string) (path string, err error) {
	found, err := raid.ReadMembers(ctx, sysfs.Root{}, uuid, members)
	if err == nil {
		state := "read-auto"
		if found[0].Level == "raid0" {
			state = "clean"
		}
		path, err = k.start(ctx, number, found, state)
	}
	if err != nil {
		return "", fmt.Errorf("assemble array %s of %s: %w", uuid, strings.Join(members, ", "), err)
	}
	k.Assembled = append(k.Assembled, k.shown(path))
	return path, nil
}

// start runs an array in a state. Its members are in the order of their roles.
func (k *FakeKernel) start(ctx context.Context, number int, members raid.Array, state string) (string, error) {
	size, _, err := members.UsedSizes()
	if err != nil {
		return "", err
	}
	first := members[0]
	a := &array{Status: raid.Status{
		Name: fmt.Sprintf("md%d", number), Level: first.Level, Version: first.Version, State: state,
		Devices: len(members),
	}}
	for _, other := range k.arrays {
		if other.Name == a.Name {
			return "", fmt.Errorf("new array %s: %w", a.Name, unix.EEXIST)
		}
	}
	for _, m := range members {
		a.Slots = append(a.Slots, raid.Slot{Path: m.Device.Path, Role: m.Role, State: "in_sync"})
	}
	if a.members, err = open(members.Paths()); err != nil {
		return "", err
	}
	k.t.Cleanup(func() { _ = closeAll(a.members) }) // of arrays that are not stopped
	known := false
	if a.device, known = k.devices[first.UUID]; !known {
		file := testenv.SparseFile(k.t, size)
		a.device = device{testenv.Loop(k.t, file, 512), file}
		k.devices[first.UUID] = a.device
	}
	info, err := os.Stat(a.device.file)
	if err == nil {
		a.since = info.ModTime()
		err = show(k.own, a.Status)
	}
	if err == nil && known {
		err = partition.Sync(ctx, sysfs.Root{}, a.device.path)
	}
	if err != nil {
		return "", errors.Join(err, closeAll(a.members))
	}
	a.Path = a.device.path
	k.arrays[a.Path] = a
	return a.Path, nil
}

// show writes the files of an array in sysfs.
func show(sys sysfs.Root, a raid.Status) error {
	files := map[string]string{
		"level": a.Level, "metadata_version": a.Version, "array_state": a.State, "raid_disks": fmt.Sprint(a.Devices),
	}
	if a.Level != "raid0" {
		files["degraded"] = fmt.Sprint(a.Degraded)
	}
	for _, s := range a.Slots {
		dir := "dev-" + filepath.Base(s.Path)
		files[dir+"/slot"], files[dir+"/state"] = fmt.Sprint(s.Role), s.State
		files[dir+"/bad_blocks"], files[dir+"/unacknowledged_bad_blocks"] = "", ""
	}
	for file, text := range files {
		path := sys.Sys("class/block", a.Name, "md", file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// update shows the arrays that are writable since they have been written to.
func (k *FakeKernel) update() error {
	for _, a := range k.arrays {
		info, err := os.Stat(a.device.file)
		if err != nil {
			return err
		}
		if a.State == "read-auto" && !info.ModTime().Equal(a.since) {
			a.State = "active"
			if err := show(k.own, a.Status); err != nil {
				return err
			}
		}
	}
	return nil
}

// shown returns the path that an array has on a real machine.
func (k *FakeKernel) shown(path string) string {
	if a := k.arrays[path]; a != nil {
		return "/dev/" + a.Name
	}
	return path
}

// Check implements softraid.Kernel.
func (k *FakeKernel) Check(path, level string, members []string) error {
	k.Checked = append(k.Checked, fmt.Sprint(k.shown(path), " ", level, " ", members))
	if k.CheckErr != nil {
		return k.CheckErr
	}
	if err := k.update(); err != nil {
		return err
	}
	return raid.Check(k.own, k.shown(path), level, members)
}

// CheckWritten implements softraid.Kernel.
func (k *FakeKernel) CheckWritten(path, level string, members []string) error {
	if err := k.update(); err != nil {
		return err
	}
	return raid.CheckWritten(k.own, k.shown(path), level, members)
}

// Resync implements softraid.Kernel.
func (k *FakeKernel) Resync(path string) error {
	a := k.arrays[path]
	if a == nil {
		return fmt.Errorf("resync array: %w", &os.PathError{Op: "open", Path: path, Err: unix.ENOENT})
	}
	if a.State == "read-auto" {
		a.State = "clean"
	}
	return show(k.own, a.Status)
}

// Wipe implements softraid.Kernel.
func (k *FakeKernel) Wipe(ctx context.Context, path string, wait erase.Wait) error {
	k.Wiped = append(k.Wiped, k.shown(path))
	if k.OnWipe != nil {
		if err := k.OnWipe(ctx); err != nil {
			return err
		}
	}
	return erase.Metadata(ctx, sysfs.Root{}, path, wait)
}

// Stop implements softraid.Kernel.
func (k *FakeKernel) Stop(ctx context.Context, path string) error {
	k.Stopped = append(k.Stopped, k.shown(path))
	a, listed := k.arrays[path], k.System.Sys("class/block", filepath.Base(path))
	isListed := false // by ListArray
	if k.System.Path != "" {
		_, err := os.Stat(listed)
		isListed = err == nil
	}
	if k.OnStop != nil {
		if err := k.OnStop(path); err != nil {
			return err
		}
	}
	switch {
	case isListed:
		return os.RemoveAll(listed)
	case a == nil:
		return fmt.Errorf("stop array: %w", &os.PathError{Op: "open", Path: path, Err: unix.ENOENT})
	}
	if err := block.WhileBusy(ctx, func() error { return unused(path) }); err != nil {
		return fmt.Errorf("stop array %s: %w", path, err)
	}
	delete(k.arrays, path)
	return errors.Join(partition.Forget(ctx, sysfs.Root{}, path), closeAll(a.members),
		os.RemoveAll(k.own.Sys("class/block", a.Name)))
}

// StopAll stops all arrays that were created or assembled.
func (k *FakeKernel) StopAll(t testing.TB) {
	t.Helper()
	for path := range k.arrays {
		if err := k.Stop(context.WithoutCancel(t.Context()), path); err != nil {
			t.Fatal(err)
		}
	}
}

// unused returns an error that wraps unix.EBUSY if a device or one of its partitions is mounted, or open in this
// process.
func unused(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		link, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name()))
		if err == nil && (link == path || strings.HasPrefix(link, path+"p")) {
			return fmt.Errorf("%s is open: %w", link, unix.EBUSY)
		}
	}
	return nil
}
