// Command guest is a ramdisk with mdadm. It compares the superblocks of mdadm with those of package md, creates arrays
// with package raid, and prints what mdadm thinks of them. With the kernel parameter "assemble" it creates arrays with
// mdadm, and assembles and erases them.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/sysfs"
	"ironroot/storage/md"
	"ironroot/storage/raid"
	"ironroot/uinit/boot"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		<-m.Settled
		if err := run(ctx, m); err != nil {
			fmt.Printf("\nFAILED %v\n", err)
			return err
		}
		fmt.Printf("\nDONE\n")
		return nil
	})
}

func run(ctx context.Context, m *boot.Machine) error {
	if err := m.Probe(ctx, "loop"); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll("/run", 0o755), os.MkdirAll("/work", 0o755)); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/work", "tmpfs", 0, "size=600m"); err != nil {
		return err
	}
	if command, err := os.ReadFile("/proc/cmdline"); err != nil {
		return err
	} else if strings.Contains(string(command), "assemble") {
		return assemble(ctx)
	}
	for _, name := range []string{"IMSM_NO_PLATFORM", "IMSM_DEVNAME_AS_SERIAL"} { // a machine without Intel's firmware
		if err := os.Setenv(name, "1"); err != nil {
			return err
		}
	}
	if err := external(ctx); err != nil {
		return err
	}
	if err := create(ctx); err != nil {
		return err
	}
	return compare(ctx)
}

// members attaches sparse files to loop devices.
func members(sizes []int64) (devices []string, release func(), err error) {
	var closers []func()
	release = func() {
		for _, close := range slices.Backward(closers) {
			close()
		}
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, release, err
	}
	defer control.Close()
	for i, size := range sizes {
		path := fmt.Sprintf("/work/%d", i)
		file, err := os.Create(path)
		if err != nil {
			return nil, release, err
		}
		if err := file.Truncate(size); err != nil {
			return nil, release, err
		}
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, release, err
		}
		device := fmt.Sprintf("/dev/loop%d", number)
		loop, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			return nil, release, err
		}
		err = unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(file.Fd()))
		if err := errors.Join(err, loop.Close()); err != nil {
			return nil, release, err
		}
		closers = append(closers, func() {
			if loop, err := os.OpenFile(device, os.O_RDWR, 0); err == nil {
				_ = errors.Join(unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0), loop.Close())
			}
			_ = errors.Join(file.Close(), os.Remove(path))
		})
		devices = append(devices, device)
	}
	return devices, release, nil
}

func mdadm(args ...string) (string, error) {
	out, err := exec.Command("/bin/mdadm", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("mdadm %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// compare compares the superblocks of mdadm with those of package md.
func compare(ctx context.Context) error {
	for _, n := range []md.New{
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
	} {
		if err := compareOne(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func compareOne(ctx context.Context, n md.New) error {
	n.Name = "any:data"
	name := fmt.Sprintf("%s %s %d", n.Version, n.Level, n.Sizes)
	devices, release, err := members(n.Sizes)
	defer release()
	if err != nil {
		return err
	}
	args := createArgs("/dev/md7", n.Version, n.Level, len(devices))
	if _, err := mdadm(append(args, devices...)...); err != nil {
		return err
	}
	if err := raid.Stop(ctx, "/dev/md7"); err != nil {
		return err
	}
	ours, err := n.Encode(time.Now())
	if err != nil {
		return err
	}
	same := true
	for i, blocks := range ours {
		file, err := os.Open(filepath.Join("/work", fmt.Sprint(i)))
		if err != nil {
			return err
		}
		for j, block := range blocks {
			theirs := make([]byte, len(block.Data))
			if _, err := file.ReadAt(theirs, block.Offset); err != nil {
				return err
			}
			mask(theirs, j == 0)
			mask(block.Data, j == 0)
			if at := difference(theirs, block.Data); at >= 0 {
				same = false
				fmt.Printf("\nDIFFERS %s: member %d, block %d at byte %d: got %x, want %x\n", name, i, j, at,
					block.Data[at&^7:at&^7+16], theirs[at&^7:at&^7+16])
			}
		}
		_ = file.Close()
	}
	if same {
		fmt.Printf("\nSAME %s\n", name)
	}
	return nil
}

// mask clears what is random, time, or depends on them, and what the kernel has changed: the counts of events, and what
// is in sync.
func mask(b []byte, superblock bool) {
	if !superblock {
		clear(b[8:40])
		clear(b[256:])
		return
	}
	for _, r := range [][2]int{{16, 32}, {64, 72}, {168, 184}, {192, 220}} {
		clear(b[r[0]:r[1]])
	}
}

func difference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// external creates containers with the metadata of firmware RAID, and prints what package md finds on their members.
func external(ctx context.Context) error {
	for _, format := range []string{"imsm", "ddf"} {
		devices, release, err := members([]int64{64 * mib, 64*mib + 512})
		if err != nil {
			release()
			return err
		}
		before, err := md.ReadExternal(ctx, devices[0])
		if err != nil {
			return err
		}
		args := []string{"--create", "/dev/md7", "--run", "--metadata=" + format, "--raid-devices", "2"}
		if _, err := mdadm(append(args, devices...)...); err != nil {
			return err
		}
		if _, err := mdadm("--stop", "/dev/md7"); err != nil {
			return err
		}
		for i, device := range devices {
			after, err := md.ReadExternal(ctx, device)
			if err != nil {
				return err
			}
			fmt.Printf("\nEXTERNAL %s member %d: %q, then %q\n", format, i, string(before), string(after))
		}
		release()
	}
	return nil
}

// create creates an array of each level with package raid, and prints what mdadm and the kernel say.
func create(ctx context.Context) error {
	for _, o := range []raid.Options{
		{Version: "1.2", Level: "raid0", Members: make([]string, 2)},
		{Version: "1.2", Level: "raid1", Members: make([]string, 2)},
		{Version: "1.0", Level: "raid1", Members: make([]string, 3)},
		{Version: "1.2", Level: "raid5", Members: make([]string, 3)},
		{Version: "1.2", Level: "raid6", Members: make([]string, 4)},
		{Version: "1.2", Level: "raid10", Members: make([]string, 4)},
	} {
		if err := createOne(ctx, o); err != nil {
			return fmt.Errorf("%s %s: %w", o.Version, o.Level, err)
		}
	}
	return refused(ctx)
}

func createOne(ctx context.Context, o raid.Options) error {
	sizes := make([]int64, len(o.Members))
	for i := range sizes {
		sizes[i] = 24 * mib
	}
	devices, release, err := members(sizes)
	defer release()
	if err != nil {
		return err
	}
	for i, device := range devices {
		if err := fill(device, uint64(i+1), sizes[i]); err != nil {
			return err
		}
	}
	o.Number, o.Name, o.Members = 3, "any:data", devices
	if err := limitResync("1000"); err != nil { // it must not end before mdadm shows it
		return err
	}
	path, err := raid.Create(ctx, sysfs.Root{}, o)
	if err != nil {
		return err
	}
	arrays, err := raid.List(ctx, sysfs.Root{})
	if err != nil || len(arrays) != 1 {
		return fmt.Errorf("got arrays %+v and %w, want one", arrays, err)
	}
	state, _ := os.ReadFile("/proc/mdstat")
	name := o.Version + " " + o.Level
	a := arrays[0]
	fmt.Printf("\nARRAY %s %s %s %s %d/%d %+v\n%s\n", name, path, a.Level, a.Version, a.Degraded, a.Devices, a.Members,
		state)
	if _, err := raid.Create(ctx, sysfs.Root{}, o); !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("create the array again: got %w, want %w", err, unix.EBUSY)
	}
	detail, err := mdadm("--detail", path)
	if err != nil {
		return err
	}
	fmt.Printf("\nDETAIL %s\n%s\nEND\n", name, detail)
	if err := limitResync("1000000"); err != nil {
		return err
	}
	if err := wait(ctx); err != nil {
		return err
	}
	if detail, err = mdadm("--detail", path); err != nil {
		return err
	}
	fmt.Printf("\nSYNCED %s\n%s\nEND\n", name, detail)
	if o.Level != "raid0" {
		mismatches, err := check(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("\nMISMATCHES %s %s\n", name, mismatches)
	}
	if o.Level != "raid0" && o.Version == "1.2" {
		readded, err := readd(ctx, path, devices[1])
		if err != nil {
			return err
		}
		fmt.Printf("\nREADDED %s: %s\n", name, readded)
	}
	if err := raid.Stop(ctx, path); err != nil {
		return err
	}
	for _, device := range devices {
		out, err := mdadm("--examine", device)
		if err != nil {
			return err
		}
		fmt.Printf("\nEXAMINE %s %s\n%s\nEND\n", name, device, out)
	}
	out, err := mdadm("--assemble", "--scan")
	if err != nil {
		return err
	}
	fmt.Printf("\nASSEMBLED %s: %s\n", name, strings.TrimSpace(out))
	if err := errors.Join(raid.Stop(ctx, "/dev/md/data"), os.RemoveAll("/dev/md")); err != nil {
		return err
	}
	return createTheirs(ctx, o, name)
}

// limitResync sets the largest speed of a resync in KiB per second.
func limitResync(speed string) error {
	return os.WriteFile("/proc/sys/dev/raid/speed_limit_max", []byte(speed), 0o600)
}

// createTheirs creates the array of the same options with mdadm, and prints what it shows of it.
func createTheirs(ctx context.Context, o raid.Options, name string) error {
	args := createArgs("/dev/md3", o.Version, o.Level, len(o.Members))
	if _, err := mdadm(append(args, o.Members...)...); err != nil {
		return err
	}
	if err := wait(ctx); err != nil {
		return err
	}
	detail, err := mdadm("--detail", "/dev/md3")
	if err != nil {
		return err
	}
	fmt.Printf("\nTHEIRS SYNCED %s\n%s\nEND\n", name, detail)
	if err := raid.Stop(ctx, "/dev/md3"); err != nil {
		return err
	}
	for _, device := range o.Members {
		out, err := mdadm("--examine", device)
		if err != nil {
			return err
		}
		fmt.Printf("\nTHEIRS EXAMINE %s %s\n%s\nEND\n", name, device, out)
	}
	return nil
}

// createArgs returns the arguments of mdadm, without the members, for an array like that of package md.
func createArgs(path, version, level string, members int) []string {
	args := []string{
		"--create", path, "--force", "--run", "--homehost=any", "--metadata=" + version, "--level",
		strings.TrimPrefix(level, "raid"), "--name", "data", "--raid-devices", fmt.Sprint(members),
	}
	if version == "1.2" && level != "raid0" {
		args = append(args, "--bitmap=internal")
	}
	return args
}

// readd lets mdadm fail and remove a member, writes to the array, and lets mdadm return the member. It describes the
// result: whether the data of the array are those that were written, and how many sectors of the members differ.
func readd(ctx context.Context, path, member string) (string, error) {
	dir := "/sys/block/" + filepath.Base(path) + "/md/"
	if _, err := mdadm(path, "--fail", member); err != nil {
		return "", err
	}
	if err := await(ctx, dir+"dev-"+filepath.Base(member)+"/slot", "none"); err != nil {
		return "", err
	}
	if _, err := mdadm(path, "--remove", member); err != nil {
		return "", err
	}
	const written = 8 * mib
	if err := fill(path, 77, written); err != nil {
		return "", err
	}
	want, err := digest(path)
	if err != nil {
		return "", err
	}
	out, err := mdadm(path, "--re-add", member)
	if err != nil {
		return "", err
	}
	if err := await(ctx, dir+"degraded", "0"); err != nil {
		return "", err
	}
	mismatches, err := check(ctx)
	if err != nil {
		return "", err
	}
	got, err := digest(path)
	if err != nil {
		return "", err
	}
	state, err := os.ReadFile(dir + "dev-" + filepath.Base(member) + "/state")
	return fmt.Sprintf("%s, %s, same=%v, mismatches %s", strings.TrimSpace(out), bytes.TrimSpace(state), got == want,
		mismatches), err
}

// digest returns the checksum of a device's data, which it does not read from the kernel's cache.
func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = unix.IoctlRetInt(int(f.Fd()), unix.BLKFLSBUF)
	if err == nil {
		_, err = io.Copy(h, f)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), errors.Join(err, f.Close())
}

// await waits until a file of sysfs has a content.
func await(ctx context.Context, path, want string) error {
	for {
		got, err := os.ReadFile(path)
		if err != nil || string(bytes.TrimSpace(got)) == want {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond): // the kernel reports no event
		case <-ctx.Done():
			return fmt.Errorf("%s: got %q, want %q: %w", path, bytes.TrimSpace(got), want, ctx.Err())
		}
	}
}

// fill writes pseudo-random data to a device: the parity of constant data can be right by chance.
func fill(path string, seed uint64, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	data := make([]byte, mib)
	state := seed
	for offset := int64(0); offset < size; offset += mib {
		for i := 0; i < len(data); i += 8 {
			state ^= state << 13
			state ^= state >> 7
			state ^= state << 17
			binary.LittleEndian.PutUint64(data[i:], state)
		}
		if _, err := f.WriteAt(data[:min(mib, size-offset)], offset); err != nil {
			return err
		}
	}
	return errors.Join(f.Sync(), f.Close())
}

// wait waits until the kernel is idle.
func wait(ctx context.Context) error {
	for {
		action, err := os.ReadFile("/sys/block/md3/md/sync_action")
		if errors.Is(err, os.ErrNotExist) || bytes.Equal(bytes.TrimSpace(action), []byte("idle")) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond) // the kernel reports no event
	}
}

// check compares all copies and parities, and returns the number of sectors that differ.
func check(ctx context.Context) (string, error) {
	if err := os.WriteFile("/sys/block/md3/md/sync_action", []byte("check"), 0o600); err != nil {
		return "", err
	}
	if err := wait(ctx); err != nil {
		return "", err
	}
	count, err := os.ReadFile("/sys/block/md3/md/mismatch_cnt")
	return strings.TrimSpace(string(count)), err
}

// refused prints the errors of arrays that cannot be created. No member is written to.
func refused(ctx context.Context) error {
	devices, release, err := members([]int64{40 * mib, 40 * mib, 64 << 10})
	defer release()
	if err != nil {
		return err
	}
	for _, o := range []raid.Options{
		{Version: "1.2", Level: "raid1", Name: "small", Members: []string{devices[0], devices[2]}},
		{Version: "1.2", Level: "raid5", Name: "few", Members: devices[:2]},
		{Version: "1.2", Level: "raid1", Name: "twice", Members: []string{devices[0], devices[0]}},
		{Version: "1.2", Level: "raid1", Name: "missing", Members: []string{devices[0], "/dev/missing"}},
	} {
		_, err := raid.Create(ctx, sysfs.Root{}, o)
		fmt.Printf("\nREFUSED %s: %v\n", o.Name, err)
	}
	for i, device := range devices {
		data, err := os.ReadFile(fmt.Sprintf("/work/%d", i))
		if err != nil {
			return err
		}
		fmt.Printf("\nEMPTY %s %v\n", device, len(bytes.Trim(data, "\x00")) == 0)
	}
	arrays, err := raid.List(ctx, sysfs.Root{})
	fmt.Printf("\nARRAYS %d %v\n", len(arrays), err)
	return err
}
