package raid

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ironroot/storage/block"
	"ironroot/storage/md"
	"ironroot/storage/sysfs"
)

// Options describe an array to create.
type Options struct {
	Number  int    // of the device, 0 for /dev/md0
	Version string // of the superblock, "1.0" or "1.2"
	Level   string // as in [md.New]
	Name    string
	Members []string // device paths, in the order of their roles
}

// Status describes an array that the kernel knows.
type Status struct {
	Name     string // kernel name, "md0"
	Path     string // "/dev/md0"
	Level    string // "raid1"; "" before it runs
	Version  string // of the superblocks, "1.2"; "none" and "external:…" are others
	State    string // "clean", "active", "inactive" …
	Devices  int    // number of members of a complete array
	Degraded int    // number of members that are missing or not in sync
	Slots    []Slot
}

// Names returns the kernel names of arrays, each with the value true.
func Names(arrays []Status) map[string]bool {
	names := map[string]bool{}
	for _, a := range arrays {
		names[a.Name] = true
	}
	return names
}

// FreeNumber returns the first number from start on that no array has. used contains the kernel names of the arrays.
func FreeNumber(start int, used map[string]bool) int {
	number := start
	for used[fmt.Sprintf("md%d", number)] {
		number++
	}
	return number
}

// Slot is a device in an array that the kernel knows.
type Slot struct {
	Path  string
	Role  int    // in the array, -1 for none
	State string // "in_sync", "faulty", "spare" …, separated by commas
}

// errBadBlocks is returned if the kernel has recorded parts of a member that could not be written.
var errBadBlocks = errors.New("member has bad blocks, which were not written")

// List returns the arrays that the kernel knows, including those that do not run, by their kernel names.
func List(ctx context.Context, sys sysfs.Root) ([]Status, error) {
	entries, err := os.ReadDir(sys.Sys("class/block"))
	if err != nil {
		return nil, fmt.Errorf("list arrays: %w", err)
	}
	var arrays []Status
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var a Status
		// The files of an array that the kernel is removing are busy.
		err := block.WhileBusy(ctx, func() (err error) {
			a, err = read(sys, entry.Name())
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			continue // another device, or the array was just removed
		} else if err != nil {
			return nil, fmt.Errorf("list arrays: %w", err)
		}
		arrays = append(arrays, a)
	}
	return arrays, nil
}

// read describes an array. The error wraps fs.ErrNotExist for another device.
func read(sys sysfs.Root, name string) (Status, error) {
	a := Status{Name: name, Path: "/dev/" + name}
	dir := sys.Sys("class/block", name, "md")
	values := map[string]*string{"level": &a.Level, "metadata_version": &a.Version, "array_state": &a.State}
	numbers := map[string]*int{"raid_disks": &a.Devices, "degraded": &a.Degraded}
	for file, value := range values {
		text, err := sys.Files.Read(filepath.Join(dir, file))
		if err != nil {
			return Status{}, fmt.Errorf("array %s: %w", name, err)
		}
		*value = strings.TrimSpace(string(text))
	}
	for file, value := range numbers {
		text, err := sys.Files.Read(filepath.Join(dir, file))
		if file == "degraded" && errors.Is(err, fs.ErrNotExist) {
			continue // RAID 0, and arrays that do not run
		} else if err != nil {
			return Status{}, fmt.Errorf("array %s: %w", name, err)
		}
		*value = decimal(string(text))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Status{}, fmt.Errorf("array %s: %w", name, err)
	}
	for _, entry := range entries {
		member, ok := strings.CutPrefix(entry.Name(), "dev-")
		if !ok {
			continue
		}
		slot, err := sys.Files.Read(filepath.Join(dir, entry.Name(), "slot"))
		if err != nil {
			return Status{}, fmt.Errorf("array %s: %w", name, err)
		}
		state, err := sys.Files.Read(filepath.Join(dir, entry.Name(), "state"))
		if err != nil {
			return Status{}, fmt.Errorf("array %s: %w", name, err)
		}
		a.Slots = append(a.Slots, Slot{
			Path: "/dev/" + strings.ReplaceAll(member, "!", "/"), Role: decimal(string(slot)),
			State: strings.TrimSpace(string(state)),
		})
	}
	slices.SortFunc(a.Slots, func(a, b Slot) int { return strings.Compare(a.Path, b.Path) })
	return a, nil
}

// decimal returns the number that a text begins with, and -1 for other texts, such as "none" for the slot of a spare.
func decimal(text string) int {
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ") // "3 (2)" during a reshape
	n, err := strconv.Atoi(word)
	if err != nil {
		return -1
	}
	return n
}

// Check returns an error unless the array runs and is writable, so that the kernel resyncs it, with exactly the
// members, in the order of their roles, and all of them are in sync as far as the array ever was. Errors of members
// wrap [ErrIncomplete].
func Check(sys sysfs.Root, path, level string, members []string) error {
	a, err := read(sys, filepath.Base(path))
	if err != nil {
		return err
	}
	return a.check(level, members, "clean", "active", "active-idle", "write-pending")
}

// check implements Check. The state must be one of states.
func (a Status) check(level string, members []string, states ...string) error {
	if a.Level != level || a.Devices != len(members) || !slices.Contains(states, a.State) {
		return fmt.Errorf("array %s: got %s of %d members, %s, want %s of %d",
			a.Path, a.Level, a.Devices, a.State, level, len(members))
	}
	if a.Degraded != 0 || len(a.Slots) != len(members) {
		return fmt.Errorf("array %s: %w: %d of %d members: %s", a.Path, ErrIncomplete,
			len(a.Slots)-max(0, a.Degraded), len(members), a.describe())
	}
	for i, path := range members {
		if !slices.ContainsFunc(a.Slots, func(m Slot) bool {
			states := strings.Split(m.State, ",")
			return m.Path == path && m.Role == i && slices.Contains(states, "in_sync") &&
				!slices.Contains(states, "faulty")
		}) {
			return fmt.Errorf("array %s: %w: %s is not member %d: %s", a.Path, ErrIncomplete, path, i, a.describe())
		}
	}
	return nil
}

// CheckWritten returns an error unless everything that was written to a running array is on all of its members: the
// array must be as [Check] requires, and no member may have bad blocks. The kernel does not drop a member while it can
// record which of its blocks could not be written.
func CheckWritten(sys sysfs.Root, path, level string, members []string) error {
	if err := Check(sys, path, level, members); err != nil {
		return err
	}
	for _, member := range members {
		dir := sys.Sys("class/block", filepath.Base(path), "md",
			"dev-"+strings.ReplaceAll(strings.TrimPrefix(member, "/dev/"), "/", "!"))
		for _, file := range []string{"bad_blocks", "unacknowledged_bad_blocks"} {
			text, err := sys.Files.Read(filepath.Join(dir, file))
			if err != nil {
				return fmt.Errorf("array %s: %s: %w", path, member, err)
			}
			if ranges := strings.TrimSpace(string(text)); ranges != "" {
				first, _, _ := strings.Cut(ranges, "\n")
				return fmt.Errorf("array %s: %s: %w: got %d ranges, the first of sector and length %s",
					path, member, errBadBlocks, strings.Count(ranges, "\n")+1, first)
			}
		}
	}
	return nil
}

// describe lists the members with slots and states.
func (a Status) describe() string {
	var words []string
	for _, m := range a.Slots {
		words = append(words, fmt.Sprintf("%s (slot %d, %s)", m.Path, m.Role, m.State))
	}
	if len(words) == 0 {
		return "no members"
	}
	return strings.Join(words, ", ")
}

// write writes the metadata of a member.
func write(f *os.File, blocks []md.Block) error {
	for _, block := range blocks {
		if _, err := f.WriteAt(block.Data, block.Offset); err != nil {
			return err
		}
	}
	return f.Sync()
}
