package bootloader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/mkfs"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
)

// nodeTimeout is the time limit for the device of a new partition.
const nodeTimeout = 30 * time.Second

// arrayName is the name of the mirror. mdadm assembles it under the name without "any:" on every host.
const arrayName = "any:" + ESPName

// labelESP is the label of a new file system.
const labelESP = "efi-part"

// ErrTooLarge is returned if the files of an EFI system partition do not fit on the mirror.
var ErrTooLarge = errors.New("EFI system partition of the image does not fit on the mirror")

// ESP is a partition of a disk that the firmware can read as the EFI system partition.
type ESP struct {
	partition.Partition

	Disk string // device path

	path string // device path
}

// MoveESP moves the EFI system partition source of the array to a mirror on the array's disks: its files, and the
// serial number and label of its file system. The source is zeroed afterwards, so that no two file systems have the
// serial number. A nil source stands for an empty file system. A mirror that exists is used again, with other content;
// one that is not complete is created again.
//
// The mirror does not run when MoveESP returns. Its file system was read back on each member, as the firmware reads it.
func (a *ArrayDisks) MoveESP(ctx context.Context, source *partition.Partition) ([]ESP, error) {
	members, err := a.moveESP(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("EFI system partition on the disks of array %s: %w", a.Path, err)
	}
	return members, nil
}

func (a *ArrayDisks) moveESP(ctx context.Context, source *partition.Partition) (members []ESP, err error) {
	want := content{label: labelESP}
	if source != nil {
		f, tree, err := openFAT(ctx, a.Path, *source)
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // only read
		if want, err = readContent(ctx, tree); err != nil {
			return nil, err
		}
	}
	m, err := a.mirror(ctx)
	if err != nil {
		return nil, err
	}
	err = m.fill(ctx, want)
	if err = errors.Join(err, m.stop(ctx)); err != nil {
		return nil, err
	}
	for _, member := range m.members {
		if err := member.check(ctx, want); err != nil {
			return nil, err
		}
	}
	if source != nil {
		if err := a.wipeSource(ctx, *source); err != nil {
			return nil, err
		}
	}
	a.log.Info("EFI system partition is on each disk of the array", "device", a.Path, "disks", a.Disks,
		"files", want.files, "bytes", want.bytes, "uuid", want.serial, "label", want.label)
	return m.members, nil
}

// wipeSource zeroes both ends of the array's own EFI system partition.
func (a *ArrayDisks) wipeSource(ctx context.Context, source partition.Partition) error {
	f, err := os.OpenFile(a.Path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = block.WipeEnds(ctx, f, [2]int64{source.Start, source.Start + source.Size})
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("wipe partition %d of %s: %w", source.Number, a.Path, err)
	}
	return nil
}

// UseESP assembles the mirror, calls use with its members, and stops it again. Afterwards all members have the same
// files.
func (a *ArrayDisks) UseESP(ctx context.Context, use func(members []ESP) error) error {
	m, err := a.existing(ctx)
	if err == nil && m == nil {
		err = ErrNoESP
	}
	if err == nil {
		err = m.use(ctx, use)
	}
	if err != nil {
		return fmt.Errorf("EFI system partition on the disks of array %s: %w", a.Path, err)
	}
	return nil
}

func (m *mirror) use(ctx context.Context, use func(members []ESP) error) error {
	err := raid.Resync(m.path) // otherwise it is not writable before the first write
	if err == nil {
		m.array.Mirror = m.path
		err = use(m.members)
		m.array.Mirror = ""
	}
	if err == nil {
		err = raid.CheckWritten(m.array.sys, m.path, mirrorLevel, m.paths())
	}
	if err = errors.Join(err, m.stop(ctx)); err != nil {
		return err
	}
	f, tree, err := openFAT(ctx, m.members[0].Disk, m.members[0].Partition)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	want, err := readContent(ctx, tree)
	if err != nil {
		return err
	}
	for _, member := range m.members[1:] {
		if err := member.check(ctx, want); err != nil {
			return err
		}
	}
	return nil
}

// ESP returns the members of the mirror. The error wraps [ErrNoESP] if there is none or if it is not
// complete.
func (a *ArrayDisks) ESP(ctx context.Context) ([]ESP, error) {
	found, err := a.holders(ctx)
	if err == nil && found == nil {
		err = ErrNoESP
	}
	if err == nil {
		if _, err = raid.ReadMembers(ctx, a.sys, found.uuid, found.paths()); err != nil {
			err = fmt.Errorf("%w: %w", ErrNoESP, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("EFI system partition on the disks of array %s: %w", a.Path, err)
	}
	return found.members, nil
}

// mirror is the array with the EFI system partition.
type mirror struct {
	array   *ArrayDisks
	path    string // device path while it runs
	uuid    string // of the superblocks, "" if they differ or do not exist
	members []ESP
}

func (m *mirror) paths() []string {
	var paths []string
	for _, member := range m.members {
		paths = append(paths, member.path)
	}
	return paths
}

// holders returns the mirror's partitions, nil unless each disk has one. It changes nothing.
func (a *ArrayDisks) holders(ctx context.Context) (*mirror, error) {
	m := &mirror{array: a}
	for i, disk := range a.Disks {
		p, err := a.place(ctx, i, espPartition(i))
		if err != nil {
			return nil, err
		}
		if p.Number == 0 {
			return nil, nil //nolint:nilnil // documented
		}
		path, err := a.wait(ctx, disk, p.Number)
		if err != nil {
			return nil, err
		}
		m.members = append(m.members, ESP{p, disk, path})
	}
	for i, member := range m.members {
		found, err := raid.Read(ctx, member.path)
		if err != nil {
			return nil, err
		}
		uuid := ""
		if len(found) == 1 && found[0].Problem == nil && found[0].ShortName() == ESPName &&
			found[0].Level == mirrorLevel && found[0].Version == mirrorVersion && found[0].DataOffset == 0 {
			uuid = found[0].UUID
		}
		if i == 0 {
			m.uuid = uuid
		} else if m.uuid != uuid {
			m.uuid = ""
		}
	}
	return m, nil
}

// existing assembles the mirror and returns it, nil if there is none or if it is not complete.
func (a *ArrayDisks) existing(ctx context.Context) (*mirror, error) {
	m, err := a.holders(ctx)
	if err != nil || m == nil || m.uuid == "" {
		return nil, err
	}
	arrays, err := raid.List(ctx, a.sys)
	if err != nil {
		return nil, err
	}
	isOurs := func(other raid.Slot) bool { return slices.Contains(m.paths(), other.Path) }
	for _, running := range arrays {
		if slices.ContainsFunc(running.Slots, isOurs) {
			// A former call could not stop it.
			if err := raid.Stop(ctx, running.Path); err != nil {
				return nil, err
			}
		}
	}
	found, err := raid.ReadMembers(ctx, a.sys, m.uuid, m.paths())
	if errors.Is(err, raid.ErrIncomplete) {
		a.log.Warn("EFI system partition on the disks of the array is not complete", "device", a.Path, "err", err)
		return nil, nil //nolint:nilnil // documented
	}
	if err != nil {
		return nil, err
	}
	m.sort(found)
	m.path, err = raid.Assemble(ctx, a.sys, raid.FreeNumber(0, raid.Names(arrays)), m.uuid, m.paths())
	if err != nil {
		return nil, err
	}
	return m, nil
}

// sort sorts the members by their roles.
func (m *mirror) sort(found []raid.Member) {
	role := func(path string) int {
		return slices.IndexFunc(found, func(other raid.Member) bool { return other.Device.Path == path })
	}
	slices.SortFunc(m.members, func(a, b ESP) int { return role(a.path) - role(b.path) })
}

// mirror assembles the mirror, or creates it with the partitions that it needs.
func (a *ArrayDisks) mirror(ctx context.Context) (*mirror, error) {
	m, err := a.existing(ctx)
	if err != nil || m != nil {
		return m, err
	}
	if err := a.CheckSpace(ctx, true); err != nil { // before the first write
		return nil, err
	}
	for i, disk := range a.Disks {
		p, err := a.place(ctx, i, espPartition(i))
		if err != nil {
			return nil, err
		}
		if p.Number == 0 {
			if _, err := a.add(ctx, disk, p); err != nil {
				return nil, err
			}
			continue
		}
		path, err := a.wait(ctx, disk, p.Number)
		if err != nil {
			return nil, err
		}
		if err := wipe(ctx, path); err != nil {
			return nil, err
		}
	}
	if m, err = a.holders(ctx); err != nil {
		return nil, err
	}
	arrays, err := raid.List(ctx, a.sys)
	if err != nil {
		return nil, err
	}
	m.path, err = raid.Create(ctx, a.sys, raid.Options{
		Number: raid.FreeNumber(0, raid.Names(arrays)), Version: mirrorVersion, Level: mirrorLevel, Name: arrayName,
		Members: m.paths(),
	})
	if err != nil {
		// No superblocks are left.
		for _, path := range m.paths() {
			err = errors.Join(err, wipe(context.WithoutCancel(ctx), path))
		}
		return nil, err
	}
	a.log.Info("RAID array created", "device", m.path, "name", ESPName, "level", mirrorLevel, "members", m.paths())
	return m, nil
}

// wipe zeroes both ends of a partition that is not in use.
func wipe(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return err
	}
	size, _, err := block.Geometry(f)
	if err == nil {
		err = block.WipeEnds(ctx, f, [2]int64{0, size})
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("wipe %s: %w", path, err)
	}
	return nil
}

// fill makes the file system, and checks that all of it is on all members.
func (m *mirror) fill(ctx context.Context, want content) error {
	d, err := block.Find(m.array.sys, m.path)
	if err != nil {
		return err
	}
	if want.bytes > d.Size {
		return fmt.Errorf("%w: got %d bytes, want at most %d", ErrTooLarge, want.bytes, d.Size)
	}
	o := mkfs.Options{Label: want.label, UUID: want.serial, Files: want.nodes}
	if err := mkfs.Make(ctx, m.path, "vfat", o); err != nil {
		return err
	}
	return raid.CheckWritten(m.array.sys, m.path, mirrorLevel, m.paths())
}

// stop stops the mirror, also if ctx has ended.
func (m *mirror) stop(ctx context.Context) error {
	return raid.Stop(context.WithoutCancel(ctx), m.path)
}

// check returns an error unless the file system on a member has the content.
func (e ESP) check(ctx context.Context, want content) error {
	f, tree, err := openFAT(ctx, e.Disk, e.Partition)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	got, err := readContent(ctx, tree)
	if err != nil {
		return fmt.Errorf("read %s back: %w", e.path, err)
	}
	if want.serial == "" {
		want.serial = got.serial // a random one
	}
	if got.summary() != want.summary() {
		return fmt.Errorf("read %s back: got %s, want %s", e.path, got.summary(), want.summary())
	}
	return nil
}

// summary describes the content by all that is compared.
func (c content) summary() string {
	return fmt.Sprintf("%d files of %d bytes with digest %x, UUID %s, label %q",
		c.files, c.bytes, c.digest, strings.ToUpper(c.serial), c.label)
}
