package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

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
	fmt.Printf("\nARRAY %s %s %s %s %d/%d %+v\n%s\n", name, path, a.Level, a.Version, a.Degraded, a.Devices, a.Slots,
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
	want, err := read(path)
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
	got, err := read(path)
	if err != nil {
		return "", err
	}
	state, err := os.ReadFile(dir + "dev-" + filepath.Base(member) + "/state")
	return fmt.Sprintf("%s, %s, same=%v, mismatches %s", strings.TrimSpace(out), bytes.TrimSpace(state),
		bytes.Equal(got, want), mismatches), err
}
