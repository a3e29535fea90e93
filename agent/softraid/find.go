package softraid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
)

// Describe lists the device paths of the members with the serial numbers of their disks.
func (v *Volume) Describe() string {
	var words []string
	for _, m := range v.Members {
		word := m.Device.Path
		if serial := m.Disk.Serial; serial != "" {
			word += fmt.Sprintf(" (serial %s)", serial)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

var errProtectedVolume = errors.New("skip_block_devices protects the array")

// Find finds the arrays of raid_config among the members on disks, which it reads with membersOn. Those that are not as
// create_configuration creates them have the reason as their error, and no members. It only reads.
func (r *Arrays) Find(
	ctx context.Context, rules Rules, disks []block.Device,
	membersOn func(context.Context, block.Device) ([]raid.Member, error),
) ([]*Volume, error) {
	volumes, err := rules.config.validated(r.o.Node)
	if err != nil || len(volumes) == 0 {
		return nil, err
	}
	found := groups{}
	for _, d := range disks {
		members, err := membersOn(ctx, d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.Path, err)
		}
		found.add(members)
	}
	running, err := r.o.Kernel.List(ctx)
	if err != nil {
		return nil, err
	}
	var list []*Volume
	for i := range volumes {
		v := &volumes[i]
		v.number = i
		v.Members, v.Running, v.Err = v.find(ctx, found, running, rules)
		list = append(list, v)
	}
	return list, nil
}

// find returns the members of the array, and its device path if it runs.
func (v *Volume) find(
	ctx context.Context, found groups, running []raid.Status, rules Rules,
) (raid.Array, string, error) {
	a, err := found.named(v.Name)
	if err != nil {
		return nil, "", err
	}
	path, err := runningAs(a, running)
	if err != nil {
		return nil, "", err
	}
	if path != "" {
		equalEvents(a)
	}
	if err := v.checkCreated(ctx, a); err != nil {
		return nil, "", err
	}
	if rules.Protected(a[0].Superblock) {
		return nil, "", errProtectedVolume
	}
	slices.SortFunc(a, func(a, b raid.Member) int { return a.Role - b.Role })
	return a, path, nil
}

// runningAs returns the device path of the running array that consists of exactly the members of an array, "" if no
// running array has one of them. Any other array with one of them is an error.
func runningAs(a raid.Array, running []raid.Status) (string, error) {
	for _, other := range running {
		used := 0
		for _, m := range a {
			if slices.ContainsFunc(other.Slots, func(s raid.Slot) bool { return s.Path == m.Device.Path }) {
				used++
			}
		}
		switch {
		case used == 0:
		case used == len(a) && len(other.Slots) == used && other.Degraded <= 0:
			return other.Path, nil
		default:
			return "", fmt.Errorf("%s runs with %d of %d members of %s, %d other devices, and %d missing members",
				other.Path, used, len(a), a, len(other.Slots)-used, max(0, other.Degraded))
		}
	}
	return "", nil
}

// equalEvents sets the event counts of all members to the first member's. While an array runs, the kernel counts its
// members as in use together, and changes their superblocks one after the other. The kernel's buffers of a member can
// be older still.
func equalEvents(a raid.Array) {
	for i := range a {
		a[i].Events = a[0].Events
	}
}

// maxDataOffset limits the offset of the data on the members of an array that can be kept. It exceeds the offset that
// mdadm chooses for large members.
const maxDataOffset = 256 << 20

// checkCreated returns an error unless an array is the volume, complete, and as create_configuration creates it.
func (v *Volume) checkCreated(ctx context.Context, a raid.Array) error {
	first := a[0]
	if first.Level != v.Level {
		return fmt.Errorf("%s on %s: got level %s, want %s", a, devices(a), first.Level, v.Level)
	}
	if first.Devices != len(a) {
		return fmt.Errorf("%s on %s: got %d members, want %d", a, devices(a), len(a), first.Devices)
	}
	if err := a.CheckConsistent(); err != nil {
		return err
	}
	on := map[string]bool{}
	for _, m := range a {
		d := m.Disk
		gap := max(v.Size-m.Device.Size, m.Device.Size-v.Size)
		switch {
		case m.Role < 0:
			return fmt.Errorf("%s has no role in %s", m.Device.Path, a)
		case m.Device.Number == 0:
			return fmt.Errorf("%s is not a partition", m.Device.Path)
		case m.ShortName() != v.Name:
			return fmt.Errorf("%s: got name %q, want %q", m.Device.Path, m.ShortName(), v.Name)
		case m.DataOffset != first.DataOffset:
			return fmt.Errorf("%s: got data at byte %d, want %d as on %s",
				m.Device.Path, m.DataOffset, first.DataOffset, first.Device.Path)
		case m.DataOffset > maxDataOffset:
			return fmt.Errorf("%s: got data at byte %d, want at most %d", m.Device.Path, m.DataOffset, maxDataOffset)
		case v.Size > 0 && gap > 1<<30:
			return fmt.Errorf("%s: got %d bytes, want about %d", m.Device.Path, m.Device.Size, v.Size)
		case d.Type != "disk":
			return fmt.Errorf("%s: got type %q, want a disk", d.Path, d.Type)
		case d.ReadOnly:
			return fmt.Errorf("%s: %w", d.Path, erase.ErrReadOnly)
		case on[d.Path]:
			return fmt.Errorf("%s has two members of %s", d.Path, a)
		}
		on[d.Path] = true
		if err := raid.CheckWipe(m); err != nil {
			return err
		}
		if err := checkTable(ctx, d, m.Device); err != nil {
			return err
		}
	}
	return nil
}

// checkTable returns an error if an erase of everything around a member could change the partition table of its disk,
// which is damaged, not where partitioning tools put it, or has an extended partition, or the member, because another
// partition overlaps it.
func checkTable(ctx context.Context, d, member block.Device) error {
	table, err := partition.Read(ctx, d.Path)
	if err != nil {
		return err
	}
	switch {
	case table.Unusual:
		return fmt.Errorf("%s: the partition table has its entries at an unusual place", d.Path)
	case table.Damaged || table.BackupMisplaced:
		return fmt.Errorf("%s: the partition table is damaged", d.Path)
	case slices.ContainsFunc(table.Partitions, partition.Partition.Extended):
		return fmt.Errorf("%s: the partition table has an extended partition", d.Path)
	}
	for _, p := range table.Partitions {
		if p.Number != member.Number && p.Start < member.Start+member.Size && member.Start < p.Start+p.Size {
			return fmt.Errorf("partition %d of %s overlaps %s", p.Number, d.Path, member.Path)
		}
	}
	return nil
}
