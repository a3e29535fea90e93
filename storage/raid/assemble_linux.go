package raid

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// Assemble starts the array with a UUID as /dev/mdN, where number is N, and returns this path. The array is read-only:
// until the first write to it, the kernel writes no data to its members and resyncs nothing. It can update the bitmap
// of an array that was not stopped. Before it starts the array, Assemble checks that the members have the superblocks
// of a complete array, see [ReadMembers]. Errors of members wrap [ErrIncomplete]. If Assemble fails, it stops the
// array.
func Assemble(ctx context.Context, sys sysfs.Root, number int, uuid string, members []string) (_ string, err error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("assemble array %s of %s: %w", uuid, strings.Join(members, ", "), err)
	}
	found, err := ReadMembers(ctx, sys, uuid, members)
	if err != nil {
		return fail(err)
	}
	path, err := assemble(sys, number, found)
	if err != nil {
		return fail(err)
	}
	// The kernel reads the partition table of an array when it is opened.
	f, err := os.Open(path)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fail(errors.Join(err, Stop(context.WithoutCancel(ctx), path)))
	}
	return path, nil
}

// assemble implements Assemble for members in the order of their roles.
func assemble(sys sysfs.Root, number int, members Array) (_ string, err error) {
	want, _, err := members.UsedSizes()
	if err != nil {
		return "", err
	}
	f, err := open(sys, number)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, closeArray(f, err)) }()
	paths := members.Paths()
	if err := setMembers(f, members[0].Version, paths); err != nil {
		return "", err
	}
	// The write runs the array.
	state := sys.Sys("class/block", filepath.Base(f.Name()), "md/array_state")
	if err := os.WriteFile(state, []byte(readAuto), 0o200); err != nil {
		return "", fmt.Errorf("%s: run: %w", f.Name(), err)
	}
	a, err := read(sys, filepath.Base(f.Name()))
	if err != nil {
		return "", err
	}
	states := []string{readAuto}
	if a.Level == "raid0" { // without redundancy, the kernel shows this state instead
		states = append(states, "clean")
	}
	if err := a.check(members[0].Level, paths, states...); err != nil {
		return "", err
	}
	size, _, err := block.Geometry(f)
	if err == nil && size != want {
		err = fmt.Errorf("%s: got an array of %d bytes, want %d", f.Name(), size, want)
	}
	return f.Name(), err
}

// readAuto is the state of an array that is read-only until it is written to.
const readAuto = "read-auto"

// Resync makes an array that Assemble has started writable, so that the kernel resyncs it if necessary. It does nothing
// to an array that is writable already.
func Resync(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("resync array: %w", err)
	}
	err = ioctl(f, restartRW, nil)
	if errors.Is(err, unix.EBUSY) { // already writable
		err = nil
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("resync array %s: %w", path, err)
	}
	return nil
}
