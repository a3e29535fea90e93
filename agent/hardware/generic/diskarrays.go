package generic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ironroot/agent/hardware"
	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
)

// keptArray is an array that Ironic created (raid_config), as create_configuration creates it.
type keptArray struct {
	volume

	number  int            // of its device, if no other array has it
	members []md.Member    // in the order of their roles
	disks   []block.Device // of the members
	running string         // device path if it runs, "" otherwise
	device  block.Device   // of the array, if a step has assembled it
}

func (a *keptArray) String() string { return a.members[0].String() }

// readAgain reads the superblocks of an array that was stopped: while it ran, the kernel changed them one after the
// other.
func (a *keptArray) readAgain(ctx context.Context) error {
	for i, m := range a.members {
		found, err := md.Read(ctx, m.Device.Path)
		if err != nil {
			return err
		}
		if len(found) != 1 || found[0].UUID != m.UUID {
			return fmt.Errorf("%s: got %d superblocks, want that of %s", m.Device.Path, len(found), a)
		}
		a.members[i].Superblock = found[0]
	}
	return md.CheckComplete(a.members)
}

func (a *keptArray) paths() []string {
	var paths []string
	for _, m := range a.members {
		paths = append(paths, m.Device.Path)
	}
	return paths
}

// describe lists the members with the serial numbers of their disks.
func (a *keptArray) describe() string {
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

// findCreated finds the arrays that Ironic created (raid_config) and that the step can keep, and stops those that run.
// Each is the only one of its name, all of its members are on disks that the step erases, and it is as
// create_configuration creates it. Any other array that can be one of raid_config stays an error of its disks, see
// keptMembers. The log says why an array cannot be kept.
func (r *diskRun) findCreated(ctx context.Context, n *node.Node) {
	if err := r.readCreated(ctx, n); err != nil {
		r.m.o.Log.Warn("RAID arrays of raid_config cannot be wiped", "err", err)
		r.notKept[""] = err
	}
}

// readCreated implements findCreated. Its error is why no array can be kept.
func (r *diskRun) readCreated(ctx context.Context, n *node.Node) error {
	if n == nil {
		return nil
	}
	if r.arrays.HasProtected() {
		for _, m := range r.members {
			if r.arrays.Created(m.Superblock) != "" && !r.arrays.Protected(m.Superblock) {
				return fmt.Errorf("%s on %s: skip_block_devices protects another array by its name", m, m.Device.Path)
			}
		}
		return nil
	}
	found, problems, err := r.m.findVolumes(ctx, n, r.arrays, r.disks,
		func(ctx context.Context, d block.Device) ([]md.Member, error) {
			return bounded(ctx, r, d, func(ctx context.Context, d block.Device) ([]md.Member, error) {
				return md.Members(ctx, r.m.o.System, d)
			})
		})
	if err != nil {
		return err
	}
	for _, p := range problems {
		r.m.o.Log.Warn("RAID array cannot be wiped", "volume_name", p.name, "err", p.err)
		r.notKept[p.name] = p.err
	}
	for _, a := range found {
		if a.running != "" {
			err := r.m.stop(ctx, a, a.running)
			if err == nil {
				r.m.o.Log.Info("RAID array stopped", "device", a.running)
				err = a.readAgain(ctx)
			}
			if err != nil {
				r.m.o.Log.Warn("RAID array cannot be wiped", "volume_name", a.name, "err", err)
				r.notKept[a.name] = err
				continue
			}
			r.disks = slices.DeleteFunc(r.disks, func(d block.Device) bool { return d.Path == a.running })
		}
		r.kept = append(r.kept, a)
		for _, m := range a.members {
			r.created[m.Device.Path] = m
		}
	}
	return nil
}

// drop marks an array as one that the step cannot keep, which is an error of its disks.
func (r *diskRun) drop(a *keptArray, err error) {
	r.m.o.Log.Error("RAID array not erased", "array", a.String(), "devices", a.describe(), "err", err)
	r.notKept[a.name] = err
	for _, m := range a.members {
		delete(r.created, m.Device.Path)
	}
	r.kept = slices.DeleteFunc(r.kept, func(other *keptArray) bool { return other == a })
}

// badVolume is an array of raid_config that cannot be used, and why.
type badVolume struct {
	volume

	err error
}

var errProtectedVolume = errors.New("skip_block_devices protects the array")

// findVolumes finds the arrays of raid_config among the members on disks. It returns those that are as
// create_configuration creates them, and the others with the reason. It only reads.
func (m *Manager) findVolumes(
	ctx context.Context, n *node.Node, arrays hardware.Arrays, disks []block.Device,
	read func(context.Context, block.Device) ([]md.Member, error),
) (found []*keptArray, problems []badVolume, err error) {
	config, _ := n.Raw()["raid_config"].(map[string]any)
	volumes, err := volumesOf(n, config, arrays)
	if err != nil || len(volumes) == 0 {
		return nil, nil, err
	}
	groups := raidGroups{}
	byPath := map[string]block.Device{}
	for _, d := range disks {
		members, err := read(ctx, d)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", d.Path, err) // an error of the disk later
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
		if err == nil {
			err = checkCreated(ctx, v, g, byPath)
		}
		if err == nil && arrays.Protected(g.members[0].Superblock) {
			err = errProtectedVolume
		}
		a := &keptArray{volume: v, number: i}
		if err == nil {
			a.running, err = g.runningAs(running)
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

// runningAs returns the device path of the running array that consists of exactly the members of the group, "" if none
// of them is in use by an array.
func (g *raidGroup) runningAs(running []raid.Array) (string, error) {
	for _, a := range running {
		used := 0
		for _, m := range g.members {
			if slices.ContainsFunc(a.Members, func(other raid.Member) bool { return other.Path == m.Device.Path }) {
				used++
			}
		}
		switch {
		case used == 0:
		case used == len(g.members) && len(a.Members) == used && a.Degraded <= 0:
			return a.Path, nil
		default:
			return "", fmt.Errorf("%s runs with %d of %d members of %s, %d of them missing", a.Path, used,
				len(g.members), g, max(0, a.Degraded))
		}
	}
	return "", nil
}

// maxDataOffset limits the offset of the data of arrays that can be wiped. It exceeds that of mdadm for large members.
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
		table, err := partition.Read(ctx, d.Path)
		if err != nil {
			return err
		}
		extended := slices.ContainsFunc(table.Partitions, partition.Partition.Extended)
		if table.Unusual {
			return fmt.Errorf("%s: the partition table has its entries at an unusual place", d.Path)
		}
		if table.Damaged || table.BackupMisplaced {
			return fmt.Errorf("%s: the partition table is damaged", d.Path)
		}
		if extended {
			return fmt.Errorf("%s: the partition table has an extended partition", d.Path)
		}
		if err := checkOverlap(table, m.Device); err != nil {
			return err
		}
	}
	return nil
}

// checkOverlap returns an error if another partition of the table overlaps a member: its erase would overwrite it.
func checkOverlap(table *partition.Table, member block.Device) error {
	for _, p := range table.Partitions {
		if p.Number != member.Number && p.Start < member.Start+member.Size && member.Start < p.Start+p.Size {
			return fmt.Errorf("partition %d overlaps %s", p.Number, member.Path)
		}
	}
	return nil
}

// hasCreated reports whether a partition of a disk is a member of an array that is wiped and kept.
func (r *diskRun) hasCreated(ctx context.Context, d block.Device) (bool, error) {
	if len(r.created) == 0 {
		return false, nil
	}
	parts, err := block.Partitions(ctx, r.m.o.System, d.Path)
	return slices.ContainsFunc(parts, func(part block.Device) bool {
		_, created := r.created[part.Path]
		return created
	}), err
}

// wipeMember removes the content of a member of an array that Ironic created, and keeps its superblock.
func (r *diskRun) wipeMember(ctx context.Context, member md.Member) (erase.Method, error) {
	r.m.o.Log.Info("wiping RAID member", "device", member.Device.Path, "array", member.String())
	if err := raid.Wipe(ctx, member); err != nil {
		return "", err
	}
	return erase.MetadataOnly + erase.Method("; not erased: superblock of "+member.String()), nil
}

// wipeBeside removes what is beside the partitions of a disk with members of arrays that Ironic created. Then the disk
// must have no other superblocks.
func (r *diskRun) wipeBeside(ctx context.Context, d block.Device) error {
	if err := partition.WipeGaps(ctx, d.Path); err != nil {
		return err
	}
	members, err := md.Members(ctx, r.m.o.System, d)
	if err != nil {
		return err
	}
	var problems []error
	found := map[string]int{}
	for _, m := range members {
		found[m.Device.Path]++
		if own, created := r.created[m.Device.Path]; !created || own.UUID != m.UUID {
			problems = append(problems, fmt.Errorf("a superblock of %s is left on %s", m, m.Device.Path))
		}
	}
	parts, err := block.Partitions(ctx, r.m.o.System, d.Path)
	for _, part := range parts {
		if own, created := r.created[part.Path]; created && found[part.Path] != 1 {
			problems = append(problems, fmt.Errorf("%s has %d superblocks, want that of %s",
				part.Path, found[part.Path], own))
		}
	}
	return errors.Join(append(problems, err)...)
}
