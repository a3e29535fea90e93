package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/md"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// array is an array that mdadm creates on members of size bytes.
type array struct {
	level   string
	members int
	size    int64
	args    string // of mdadm
	synced  bool   // wait for the first resync
	random  bool   // erase with random data, not with zeros
	torn    bool   // the machine has lost power while the superblocks were updated
}

func (a array) String() string {
	name := fmt.Sprintf("%s %d %s synced=%v random=%v", a.level, a.members, a.args, a.synced, a.random)
	if a.torn {
		name += " torn"
	}
	return strings.Join(strings.Fields(name), " ")
}

// assemble creates arrays with mdadm, assembles them, and erases them.
func assemble(ctx context.Context) error {
	arrays, err := raid.List(ctx, sysfs.Root{})
	fmt.Printf("\nAT BOOT %d %v\n", len(arrays), err)
	const bitmap = "--bitmap=internal --bitmap-chunk=64M"
	for _, a := range []array{
		{level: "raid0", members: 2, size: 24*mib + 300<<10},
		{level: "raid10", members: 3, size: 24*mib + 512<<10, synced: true}, // an odd number of chunks
		{level: "raid1", members: 2, size: 24 * mib, args: bitmap},
		{level: "raid1", members: 3, size: 24 * mib, synced: true},
		{level: "raid5", members: 3, size: 24 * mib},
		{level: "raid5", members: 3, size: 24 * mib, args: bitmap, synced: true, random: true},
		{level: "raid6", members: 4, size: 24 * mib},
		{level: "raid1", members: 2, size: 24 * mib, synced: true, torn: true},
		{level: "raid5", members: 3, size: 24 * mib, args: bitmap, synced: true, torn: true},
	} {
		if err := assembleOne(ctx, a); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	if err := rejected(ctx); err != nil {
		return err
	}
	return badBlocks(ctx)
}

// build creates an array with mdadm on members with random data, and stops it.
func (a array) build(ctx context.Context) (devices []string, uuid string, release func(), err error) {
	sizes := make([]int64, a.members)
	for i := range sizes {
		sizes[i] = a.size
	}
	devices, release, err = members(sizes)
	if err != nil {
		return nil, "", release, err
	}
	for i, device := range devices {
		if err := fill(device, uint64(i+1), a.size); err != nil {
			return nil, "", release, err
		}
	}
	args := append([]string{
		"--create", "/dev/md3", "--force", "--run", "--homehost=any", "--metadata=1.2", "--level",
		strings.TrimPrefix(a.level, "raid"), "--name", "data", "--raid-devices", fmt.Sprint(a.members),
	}, strings.Fields(a.args)...)
	if _, err := mdadm(append(args, devices...)...); err != nil {
		return nil, "", release, err
	}
	if a.synced {
		if err := wait(ctx); err != nil {
			return nil, "", release, err
		}
	}
	if err := raid.Stop(ctx, "/dev/md3"); err != nil {
		return nil, "", release, err
	}
	found, err := raid.Read(ctx, devices[0])
	if err != nil || len(found) != 1 {
		return nil, "", release, fmt.Errorf("got superblocks %+v and %w", found, err)
	}
	return devices, found[0].UUID, release, nil
}

func assembleOne(ctx context.Context, a array) error {
	devices, uuid, release, err := a.build(ctx)
	defer release()
	if err != nil {
		return err
	}
	if a.torn {
		if err := a.tear(ctx, devices); err != nil {
			return err
		}
	}
	before, err := contents(devices)
	if err != nil {
		return err
	}
	path, err := raid.Assemble(ctx, sysfs.Root{}, 3, uuid, devices)
	if err != nil {
		return err
	}
	state, _ := os.ReadFile("/sys/block/md3/md/array_state")
	action, _ := os.ReadFile("/sys/block/md3/md/sync_action")
	fmt.Printf("\nSTATE %s: %s %s %s\n", a, path, bytes.TrimSpace(state), bytes.TrimSpace(action))
	if err := readAll(path); err != nil {
		return err
	}
	if a.level == "raid0" {
		if err := raid.Resync(path); err != nil {
			return err
		}
	}
	if err := raid.Stop(ctx, path); err != nil {
		return err
	}
	after, err := contents(devices)
	if err != nil {
		return err
	}
	fmt.Printf("\nUNTOUCHED %s: %v\n", a, areEqual(before, after))
	return a.erase(ctx, devices, uuid)
}

// tear leaves what a loss of power leaves while the kernel updates the superblocks, before the first write to a clean
// array: that of the first member is the old one. The kernel updates all bitmaps before the superblocks.
func (a array) tear(ctx context.Context, devices []string) error {
	old, err := metadata(0)
	if err != nil {
		return err
	}
	if _, err := mdadm(append([]string{"--assemble", "/dev/md3"}, devices...)...); err != nil {
		return err
	}
	// The kernel must not mark the array as clean again.
	if err := os.WriteFile("/sys/block/md3/md/safe_mode_delay", []byte("0"), 0o200); err != nil {
		return err
	}
	if err := patch("/dev/md3", mib, []byte("written")); err != nil {
		return err
	}
	var updated [][]byte
	for i := range devices {
		b, err := metadata(i)
		if err != nil {
			return err
		}
		updated = append(updated, b)
	}
	if err := raid.Stop(ctx, "/dev/md3"); err != nil {
		return err
	}
	copy(updated[0][:512], old)
	for i, device := range devices {
		if err := patch(device, superblockAt, updated[i]); err != nil {
			return err
		}
	}
	le := binary.LittleEndian
	fmt.Printf("\nTORN %s: %d event, resync from %#x\n", a,
		le.Uint64(updated[1][200:])-le.Uint64(updated[0][200:]), le.Uint64(updated[1][208:]))
	return nil
}

// superblockAt is the offset of a superblock of version 1.2.
const superblockAt = 4096

// metadata returns the superblock and the bitmap of a member from the file behind its loop device.
func metadata(member int) ([]byte, error) {
	f, err := os.Open(fmt.Sprintf("/work/%d", member))
	if err != nil {
		return nil, err
	}
	b := make([]byte, 8<<10)
	_, err = f.ReadAt(b, superblockAt)
	return b, errors.Join(err, f.Close())
}

// dropLast makes the second member one that the array has dropped in its last update of the superblocks.
func dropLast(ctx context.Context, devices []string) error {
	if _, err := mdadm(append([]string{"--assemble", "/dev/md3"}, devices...)...); err != nil {
		return err
	}
	if _, err := mdadm("/dev/md3", "--fail", devices[1]); err != nil {
		return err
	}
	if err := raid.Stop(ctx, "/dev/md3"); err != nil {
		return err
	}
	newest, err := metadata(0)
	if err != nil {
		return err
	}
	b, err := metadata(1)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	missing := le.Uint64(newest[200:]) - le.Uint64(b[200:]) - 1
	le.PutUint64(b[200:], le.Uint64(b[200:])+missing)
	le.PutUint32(b[216:], le.Uint32(b[216:])+uint32(missing)) // the checksum is a sum
	return patch(devices[1], superblockAt, b)
}

// erase overwrites the array and the unused ranges of its members, and prints what is left and what mdadm says.
func (a array) erase(ctx context.Context, devices []string, uuid string) error {
	options := erase.Options{Iterations: 1, Zeroize: !a.random}
	path, err := raid.Assemble(ctx, sysfs.Root{}, 3, uuid, devices)
	if err != nil {
		return err
	}
	d, err := block.Find(sysfs.Root{}, path)
	if err != nil {
		return err
	}
	options.Recorder = &erase.Recorder{}
	if err := erase.Run(ctx, sysfs.Root{}, d, options); err != nil {
		return err
	}
	if err := raid.CheckWritten(sysfs.Root{}, path, a.level, devices); err != nil {
		return err
	}
	if err := raid.Stop(ctx, path); err != nil {
		return err
	}
	if _, err := raid.ReadMembers(ctx, sysfs.Root{}, uuid, devices); err != nil {
		return err
	}
	var found raid.Array
	for _, device := range devices {
		s, err := raid.Read(ctx, device)
		if err != nil || len(s) != 1 {
			return fmt.Errorf("got superblocks %+v and %w", s, err)
		}
		d, err := block.Find(sysfs.Root{}, device)
		if err != nil {
			return err
		}
		found = append(found, raid.Member{Device: d, Superblock: s[0]})
	}
	_, used, err := found.UsedSizes()
	if err != nil {
		return err
	}
	for i, m := range found {
		ranges, err := raid.UnusedRanges(m, used[i], 512)
		if err != nil {
			return err
		}
		if err := erase.Ranges(ctx, sysfs.Root{}, m.Device, ranges, erase.Options{Zeroize: true}); err != nil {
			return err
		}
		left, err := a.left(m)
		if err != nil {
			return err
		}
		fmt.Printf("\nLEFT %s: %s %s\n", a, options.Recorder.Report(), left)
	}
	return a.verify(ctx, devices, uuid)
}

// left describes where a member is not zero, by sectors. In the data of an array that was erased with random data, it
// describes the sectors that have not changed.
func (a array) left(m raid.Member) (string, error) {
	f, err := os.Open(m.Device.Path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	old, err := os.CreateTemp("/work", "old")
	if err != nil {
		return "", err
	}
	defer os.Remove(old.Name())
	defer old.Close()
	if err := fill(old.Name(), uint64(m.Number+1), a.size); err != nil {
		return "", err
	}
	allGot, allWas := make([]byte, a.size), make([]byte, a.size)
	if _, err := f.ReadAt(allGot, 0); err != nil {
		return "", err
	}
	if _, err := old.ReadAt(allWas, 0); err != nil {
		return "", err
	}
	var places []string
	zeros := make([]byte, 512)
	for at := int64(0); at+512 <= a.size; at += 512 {
		got, was := allGot[at:at+512], allWas[at:at+512]
		inData := at >= m.DataOffset && at < m.DataOffset+m.DataSize
		isZero := bytes.Equal(got, zeros)
		if bytes.Equal(got, was) || !isZero && !(a.random && inData) {
			places = append(places, fmt.Sprint(at))
		}
		if len(places) > 20 {
			break
		}
	}
	return strings.Join(places, " "), nil
}

// verify lets mdadm examine and assemble the array, and the kernel compare its copies and parities.
func (a array) verify(ctx context.Context, devices []string, uuid string) error {
	compact := strings.ReplaceAll(uuid, "-", "")
	for _, device := range devices {
		out, err := mdadm("--examine", device)
		if err != nil {
			return err
		}
		same := strings.Contains(strings.ReplaceAll(out, ":", ""), compact)
		fmt.Printf("\nEXAMINED %s: same=%v correct=%v\n", a, same, strings.Contains(out, "- correct"))
	}
	out, err := mdadm(append([]string{"--assemble", "/dev/md3"}, devices...)...)
	if err != nil {
		return err
	}
	fmt.Printf("\nASSEMBLED %s\n%s\nEND\n", a, strings.TrimSpace(out))
	if err := wait(ctx); err != nil {
		return err
	}
	if a.level != "raid0" {
		mismatches, err := check(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("\nMISMATCHES %s: %s\n", a, mismatches)
	}
	if err := raid.Stop(ctx, "/dev/md3"); err != nil {
		return err
	}
	if a.args != "" {
		out, err := mdadm("--examine-bitmap", devices[0])
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			if key, value, ok := strings.Cut(line, " : "); ok && strings.TrimSpace(key) == "Bitmap" {
				fmt.Printf("\nBITMAP %s: %s\n", a, strings.TrimSpace(value))
			}
		}
	}
	return nil
}

// rejected prints the errors of arrays that are not started, and whether their members were changed.
func rejected(ctx context.Context) error {
	for name, change := range map[string]func(devices []string, uuid string) ([]string, string, error){
		"missing": func(devices []string, uuid string) ([]string, string, error) { return devices[:1], uuid, nil },
		"twice": func(devices []string, uuid string) ([]string, string, error) {
			return []string{devices[0], devices[0]}, uuid, nil
		},
		"uuid": func(devices []string, _ string) ([]string, string, error) { return devices, "other", nil },
		"checksum": func(devices []string, uuid string) ([]string, string, error) {
			return devices, uuid, patch(devices[1], 4096+216, []byte{1, 2, 3, 4})
		},
		"several": func(devices []string, uuid string) ([]string, string, error) {
			other := md.New{Version: "1.0", Level: "raid1", Name: "any:other", Sizes: []int64{24 * mib, 24 * mib}}
			blocks, err := other.Encode(time.Now())
			if err != nil {
				return nil, "", err
			}
			return devices, uuid, patch(devices[1], blocks[1][0].Offset, blocks[1][0].Data)
		},
		// The first member is used alone, so that the other one is older.
		"events": func(devices []string, uuid string) ([]string, string, error) {
			if _, err := mdadm("--assemble", "--run", "/dev/md3", devices[0]); err != nil {
				return nil, "", err
			}
			err := patch("/dev/md3", 0, []byte("newer"))
			return devices, uuid, errors.Join(err, raid.Stop(ctx, "/dev/md3"))
		},
		"dropped": func(devices []string, uuid string) ([]string, string, error) {
			return devices, uuid, dropLast(ctx, devices)
		},
		"held": func(devices []string, uuid string) ([]string, string, error) {
			f, err := os.OpenFile(devices[1], os.O_RDWR|unix.O_EXCL, 0)
			held = f
			return devices, uuid, err
		},
	} {
		a := array{level: "raid1", members: 2, size: 24 * mib, synced: true}
		devices, uuid, release, err := a.build(ctx)
		if err != nil {
			release()
			return err
		}
		paths, uuid, err := change(devices, uuid)
		if err != nil {
			release()
			return fmt.Errorf("%s: %w", name, err)
		}
		before, err := contents(devices)
		if err != nil {
			return err
		}
		_, problem := raid.Assemble(ctx, sysfs.Root{}, 3, uuid, paths)
		after, err := contents(devices)
		if err != nil {
			return err
		}
		arrays, err := raid.List(ctx, sysfs.Root{})
		fmt.Printf("\nREJECTED %s: %v\nKEPT %s: %v %d %v\n", name, problem, name,
			areEqual(before, after), len(arrays), err)
		if held != nil {
			_ = held.Close()
			held = nil
		}
		release()
	}
	return nil
}

var held *os.File

// badBlocks prints the error of an array whose member has recorded a block that could not be written.
func badBlocks(ctx context.Context) error {
	devices, uuid, release, err := array{level: "raid1", members: 2, size: 24 * mib, synced: true}.build(ctx)
	defer release()
	if err != nil {
		return err
	}
	path, err := raid.Assemble(ctx, sysfs.Root{}, 3, uuid, devices)
	if err != nil {
		return err
	}
	fmt.Printf("\nREAD-ONLY: %v\n", raid.CheckWritten(sysfs.Root{}, path, "raid1", devices))
	if err := raid.Resync(path); err != nil {
		return err
	}
	fmt.Printf("\nGOOD: %v\n", raid.CheckWritten(sysfs.Root{}, path, "raid1", devices))
	file := "/sys/block/md3/md/dev-loop1/bad_blocks"
	if err := os.WriteFile(file, []byte("4096 8"), 0o200); err != nil {
		return err
	}
	fmt.Printf("\nBAD: %v\n", raid.CheckWritten(sysfs.Root{}, path, "raid1", devices))
	return raid.Stop(ctx, path)
}

func patch(path string, at int64, data []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, at)
	return errors.Join(err, f.Sync(), f.Close())
}

func readAll(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, f)
	return errors.Join(err, f.Close())
}

// contents returns the contents of the files behind loop devices. In an emulated machine, comparing contents is faster
// than computing checksums.
func contents(devices []string) ([][]byte, error) {
	unix.Sync()
	var list [][]byte
	for i := range devices {
		content, err := os.ReadFile(fmt.Sprintf("/work/%d", i))
		if err != nil {
			return nil, err
		}
		list = append(list, content)
	}
	return list, nil
}

func areEqual(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }
