package generic

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ironroot/agent/hardware"
	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
)

// findCreated finds the arrays that Ironic created (raid_config) and that can be wiped without being assembled: each is
// the only one of its name, all of its members are on disks that the step erases, and it is as create_configuration
// creates it. Any other array that can be one of raid_config stays an error of its disks, see keptMembers. The log says
// why an array cannot be wiped.
func (r *diskRun) findCreated(ctx context.Context, n *node.Node) {
	if err := r.readCreated(ctx, n); err != nil {
		r.m.o.Log.Warn("RAID arrays of raid_config cannot be wiped", "err", err)
	}
}

// readCreated implements findCreated. Its error is why no array can be wiped.
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
	config, _ := n.Raw()["raid_config"].(map[string]any)
	volumes, err := volumesOf(n, config, r.arrays)
	if err != nil || len(volumes) == 0 {
		return err
	}
	groups := raidGroups{}
	disks := map[string]block.Device{}
	for _, d := range r.disks {
		members, err := bounded(ctx, r, d, func(ctx context.Context, d block.Device) ([]md.Member, error) {
			return md.Members(ctx, r.m.o.System, d)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", d.Path, err) // an error of the disk later
		}
		disks[d.Path] = d
		groups.add(d, members)
	}
	running, err := raid.List(ctx, r.m.o.System)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		g, err := groups.named(v.name)
		if err == nil {
			err = r.checkCreated(ctx, v, g, disks, running)
		}
		if err != nil {
			r.m.o.Log.Warn("RAID array cannot be wiped", "volume_name", v.name, "err", err)
			continue
		}
		for _, m := range g.members {
			r.created[m.Device.Path] = m.Member
		}
	}
	return nil
}

// maxDataOffset limits the offset of the data of arrays that can be wiped. It exceeds that of mdadm for large members.
const maxDataOffset = 256 << 20

// checkCreated returns an error unless the array of a group is that of a volume, complete, and as create_configuration
// creates it.
func (r *diskRun) checkCreated(
	ctx context.Context, v volume, g *raidGroup, disks map[string]block.Device, running []raid.Array,
) error {
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
		if table.Damaged || table.BackupMisplaced {
			return fmt.Errorf("%s: the partition table is damaged", d.Path)
		}
		if extended {
			return fmt.Errorf("%s: the partition table has an extended partition", d.Path)
		}
	}
	for _, a := range running {
		if slices.ContainsFunc(a.Members, func(m raid.Member) bool {
			return slices.ContainsFunc(g.members, func(own raidMember) bool { return own.Device.Path == m.Path })
		}) {
			return fmt.Errorf("%s runs", a.Path)
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
