package generic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ironroot/agent/hardware"
	"ironroot/agent/node"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
)

// createdArray is an array of raid_config that exists on the disks, as create_configuration creates it.
type createdArray struct {
	volume

	number  int            // of its device when Ironic created it
	members []raid.Member  // in the order of their roles
	disks   []block.Device // of the members
	running string         // device path if it ran when it was found, "" otherwise
	device  block.Device   // of the array, if a step has assembled it
}

func (a *createdArray) String() string { return a.members[0].String() }

// paths returns the device paths of the members.
func (a *createdArray) paths() []string {
	var paths []string
	for _, m := range a.members {
		paths = append(paths, m.Device.Path)
	}
	return paths
}

// describe lists the device paths of the members with the serial numbers of their disks.
func (a *createdArray) describe() string {
	var words []string
	for i, m := range a.members {
		word := m.Device.Path
		if serial := a.disks[i].Serial; serial != "" {
			word += fmt.Sprintf(" (serial %s)", serial)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// badVolume is an array of raid_config that is not on the disks as create_configuration creates it.
type badVolume struct {
	volume

	err error // the reason
}

var errProtectedVolume = errors.New("skip_block_devices protects the array")

// findVolumes finds the arrays of raid_config among the members on disks, which it reads with membersOn. It returns
// those that are as create_configuration creates them, and the others with the reason. It only reads.
func (m *Manager) findVolumes(
	ctx context.Context, n *node.Node, arrays hardware.Arrays, disks []block.Device,
	membersOn func(context.Context, block.Device) ([]raid.Member, error),
) (found []*createdArray, problems []badVolume, err error) {
	config, _ := n.Raw()["raid_config"].(map[string]any)
	volumes, err := volumesOf(n, config, arrays)
	if err != nil || len(volumes) == 0 {
		return nil, nil, err
	}
	groups := raidGroups{}
	byPath := map[string]block.Device{}
	for _, d := range disks {
		members, err := membersOn(ctx, d)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", d.Path, err)
		}
		byPath[d.Path] = d
		groups.add(d, members)
	}
	running, err := m.listArrays(ctx, m.o.System)
	if err != nil {
		return nil, nil, err
	}
	for i, v := range volumes {
		g, err := groups.named(v.name)
		a := &createdArray{volume: v, number: i}
		if err == nil {
			a.running, err = g.runningAs(running)
		}
		if err == nil {
			if a.running != "" {
				g.equalEvents()
			}
			err = checkCreated(ctx, v, g, byPath)
		}
		if err == nil && arrays.Protected(g.members[0].Superblock) {
			err = errProtectedVolume
		}
		if err != nil {
			problems = append(problems, badVolume{v, err})
			continue
		}
		slices.SortFunc(g.members, func(a, b raidMember) int { return a.Role - b.Role })
		for _, member := range g.members {
			a.members, a.disks = append(a.members, member.Member), append(a.disks, byPath[member.disk])
		}
		found = append(found, a)
	}
	return found, problems, nil
}

// runningAs returns the device path of the running array that consists of exactly the members of the group, "" if no
// running array has one of them. Any other array with one of them is an error.
func (g *raidGroup) runningAs(running []raid.Status) (string, error) {
	for _, a := range running {
		used := 0
		for _, m := range g.members {
			if slices.ContainsFunc(a.Slots, func(other raid.Slot) bool { return other.Path == m.Device.Path }) {
				used++
			}
		}
		switch {
		case used == 0:
		case used == len(g.members) && len(a.Slots) == used && a.Degraded <= 0:
			return a.Path, nil
		default:
			return "", fmt.Errorf("%s runs with %d of %d members of %s, %d other devices, and %d missing members",
				a.Path, used, len(g.members), g, len(a.Slots)-used, max(0, a.Degraded))
		}
	}
	return "", nil
}

// equalEvents sets the event counts of all members to that of the first. While an array runs, the kernel counts its
// members as in use together, and changes their superblocks one after the other. The kernel's buffers of a member can
// be older still.
func (g *raidGroup) equalEvents() {
	for i := range g.members {
		g.members[i].Events = g.members[0].Events
	}
}

// maxDataOffset limits the offset of the data on the members of an array that can be kept. It exceeds that of mdadm for
// large members.
const maxDataOffset = 256 << 20

// checkCreated returns an error unless the array of a group is that of a volume, complete, and as create_configuration
// creates it.
func checkCreated(ctx context.Context, v volume, g *raidGroup, disks map[string]block.Device) error {
	first := g.members[0]
	if first.Level != v.level {
		return fmt.Errorf("%s on %s: got level %s, want %s", g, g.describe(), first.Level, v.level)
	}
	if first.Devices != len(g.members) {
		return fmt.Errorf("%s on %s: got %d members, want %d", g, g.describe(), len(g.members), first.Devices)
	}
	if err := hardware.CheckOneArray(g.plain()); err != nil {
		return err
	}
	on := map[string]bool{}
	for _, m := range g.members {
		d := disks[m.disk]
		gap := max(v.size-m.Device.Size, m.Device.Size-v.size)
		switch {
		case m.Role < 0:
			return fmt.Errorf("%s has no role in %s", m.Device.Path, g)
		case m.Device.Number == 0:
			return fmt.Errorf("%s is not a partition", m.Device.Path)
		case m.ShortName() != v.name:
			return fmt.Errorf("%s: got name %q, want %q", m.Device.Path, m.ShortName(), v.name)
		case m.DataOffset != first.DataOffset:
			return fmt.Errorf("%s: got data at byte %d, want %d as on %s",
				m.Device.Path, m.DataOffset, first.DataOffset, first.Device.Path)
		case m.DataOffset > maxDataOffset:
			return fmt.Errorf("%s: got data at byte %d, want at most %d", m.Device.Path, m.DataOffset, maxDataOffset)
		case v.size > 0 && gap > 1<<30:
			return fmt.Errorf("%s: got %d bytes, want about %d", m.Device.Path, m.Device.Size, v.size)
		case d.Type != "disk":
			return fmt.Errorf("%s: got type %q, want a disk", d.Path, d.Type)
		case d.ReadOnly:
			return fmt.Errorf("%s: %w", d.Path, erase.ErrReadOnly)
		case on[d.Path]:
			return fmt.Errorf("%s has two members of %s", d.Path, g)
		}
		on[d.Path] = true
		if err := raid.CheckWipe(m.Member); err != nil {
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

// assemble starts an array, read-only until it is written to, and returns its device path. The device has the number
// with which Ironic created the array, or the next one that no array has.
func (m *Manager) assemble(ctx context.Context, a *createdArray) (string, error) {
	running, err := m.listArrays(ctx, m.o.System)
	if err != nil {
		return "", err
	}
	used := map[string]bool{}
	for _, other := range running {
		used[other.Name] = true
	}
	number := freeNumber(a.number, used)
	path, err := timelimit.Do(ctx, m.limits(a.disks[0]), func(ctx context.Context) (string, error) {
		return m.assembleArray(ctx, m.o.System, number, a.members[0].UUID, a.paths())
	})
	if err != nil {
		return "", err
	}
	m.o.Log.Info("RAID array assembled", "device", path, "array", a.String(), "members", a.paths())
	return path, nil
}

// stop stops an array with a device path. It has a time limit, because the kernel writes to the members.
func (m *Manager) stop(ctx context.Context, a *createdArray, path string) error {
	err := m.limitDisk(ctx, a.disks[0], func(ctx context.Context) error { return m.stopArray(ctx, path) })
	if err != nil {
		return err
	}
	m.o.Log.Info("RAID array stopped", "device", path)
	return nil
}
