package softraid

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/raid"
)

// state describes the disks of a node and the arrays on them, before a RAID step changes anything.
type state struct {
	disks   []block.Device // to be changed: not arrays, not named by skip_block_devices, not of a network
	network networkDisks
	groups  []*group
	running []raid.Status
	rules   Rules
}

// group is an array on the disks, and what deleting the configuration does to it. Its members have one UUID.
type group struct {
	raid.Array

	action action
	reason string // why it is kept or wiped
}

// groups are arrays by UUID.
type groups map[string]*group

// add adds members to their arrays.
func (gs groups) add(members []raid.Member) {
	for _, member := range members {
		if gs[member.UUID] == nil {
			gs[member.UUID] = &group{}
		}
		gs[member.UUID].Array = append(gs[member.UUID].Array, member)
	}
}

// named returns the only array with a member of a name. The name does not contain the host that created the array.
func (gs groups) named(name string) (raid.Array, error) {
	var named []raid.Array
	for _, g := range gs {
		if slices.ContainsFunc(g.Array, func(m raid.Member) bool { return m.ShortName() == name }) {
			named = append(named, g.Array)
		}
	}
	if len(named) != 1 {
		return nil, fmt.Errorf("got %d arrays of name %q, want 1", len(named), name)
	}
	return named[0], nil
}

// action is the effect on an array of deleting the configuration.
type action int

const (
	actionUndecided action = iota
	actionDelete
	actionKeep // protected by skip_block_devices, or the EFI system partition of such an array
	actionWipe // on a disk of a kept array: its content is removed
)

func (g *group) isOn(disks map[string]bool) bool {
	return slices.ContainsFunc(g.Array, func(m raid.Member) bool { return disks[m.Disk.Path] })
}

// mark sets the action and adds the group's disks to a set.
func (g *group) mark(action action, reason string, disks map[string]bool) {
	g.action, g.reason = action, reason
	for _, m := range g.Array {
		disks[m.Disk.Path] = true
	}
}

// read reads the arrays on all disks and decides what deleting the configuration does to each. It only reads. A disk
// that cannot be read or compared is an error, unless skip_block_devices names the disk and names no array. Disks that
// are reached over a network are handled as if skip_block_devices named them, see [Disks].
func (r *Arrays) read(ctx context.Context) (*state, error) {
	s := &state{}
	var err error
	if s.rules, err = RulesOf(r.o.Node); err != nil {
		return nil, err
	}
	skips, err := node.NewSkipList(r.o.Node)
	if err != nil {
		return nil, err
	}
	all, err := r.o.Disks.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	all = slices.DeleteFunc(slices.Clone(all), block.Device.IsArray)
	if s.disks, err = skips.Without(all); err != nil {
		return nil, err
	}
	if s.disks, s.network, err = r.o.Disks.Local(s.disks); err != nil {
		return nil, err
	}
	for _, d := range s.disks {
		if err := errors.Join(skips.CheckRead(d), s.rules.CheckShown(ctx, r.o.System, d)); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Path, err)
		}
	}
	found := groups{}
	for _, d := range all {
		members, err := r.membersOn(ctx, d)
		if err != nil {
			if !s.has(d) && !s.rules.HasProtected() {
				r.o.Log.Warn("RAID superblocks not read", "device", d.Path, "err", err)
				continue
			}
			return nil, fmt.Errorf("%s: %w", d.Path, err)
		}
		found.add(members)
	}
	for _, uuid := range slices.Sorted(maps.Keys(found)) {
		s.groups = append(s.groups, found[uuid])
	}
	if s.running, err = r.o.Kernel.List(ctx); err != nil {
		return nil, err
	}
	return s, s.decide()
}

func (s *state) has(d block.Device) bool {
	return slices.ContainsFunc(s.disks, func(other block.Device) bool { return other.Path == d.Path })
}

// decide sets the actions of all groups.
func (s *state) decide() error {
	var all []raid.Member
	for _, g := range s.groups {
		all = append(all, g.Array...)
	}
	nameErrs := s.rules.CheckNames(all) // once: a tenant can write thousands of members
	kept := map[string]bool{}           // disks
	for _, g := range s.groups {
		protected := false
		for _, m := range g.Array {
			if err := s.rules.CheckName(m.Superblock); err != nil {
				return fmt.Errorf("%s: %w", m.Device.Path, err)
			}
			if !s.rules.Protected(m.Superblock) {
				continue
			}
			if err := nameErrs.Of(m.Superblock); err != nil {
				return err
			}
			protected = true
		}
		if !protected {
			continue
		}
		// The members of an array have one name. Others with its UUID are copies, or were written by a tenant.
		if err := g.CheckConsistent(); err != nil {
			return err
		}
		g.mark(actionKeep, "protected by skip_block_devices", kept)
	}
	var esps raid.Array
	for _, g := range s.groups {
		if g.action == actionUndecided && g.isOn(kept) &&
			!slices.ContainsFunc(g.Array, func(m raid.Member) bool { return !IsESPMember(m) }) {
			g.mark(actionKeep, "the EFI system partition of a protected array", kept)
			esps = append(esps, g.Array...)
		}
	}
	if err := esps.CheckConsistent(); err != nil {
		return fmt.Errorf("%q is not the name of one array: %w", espName, err)
	}
	// The content of an array that shares a disk with a kept one is removed, as is the content of the arrays on its
	// other disks.
	for changed := true; changed; {
		changed = false
		for _, g := range s.groups {
			if g.action == actionUndecided && g.isOn(kept) {
				g.mark(actionWipe, "on a disk of a protected array", kept)
				changed = true
			}
		}
	}
	for _, g := range s.groups {
		if g.action == actionUndecided {
			g.action = actionDelete
		}
	}
	return nil
}

// checkExternal returns an error that names all disks with RAID metadata of a firmware or controller. Their arrays are
// neither read nor deleted, and new arrays are not created on top of them.
func checkExternal(ctx context.Context, disks []block.Device) error {
	var found []string
	for _, d := range disks {
		format, err := raid.ReadExternal(ctx, d.Path)
		if err != nil {
			return err
		}
		if format != "" {
			found = append(found, fmt.Sprintf("%s has RAID metadata of %s", d.Path, format))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%s: delete the array in the firmware's setup, remove its metadata by erase_devices_metadata, "+
		"or name the disk in skip_block_devices", strings.Join(found, ", "))
}

// deletion lists the changes made by deleting the configuration.
type deletion struct {
	*state

	stop  []raid.Status
	wipe  []*group
	clear []block.Device // disks whose partition tables and superblocks are removed
}

// planDelete checks whether the configuration can be deleted. It only reads.
func (r *Arrays) planDelete(ctx context.Context, s *state) (deletion, error) {
	del := deletion{state: s}
	changed := map[string]bool{} // paths of disks and members
	for _, g := range s.groups {
		if g.action == actionKeep {
			continue
		}
		on := 0
		for _, member := range g.Array {
			if s.has(block.Device{Path: member.Disk.Path}) {
				on++
			}
		}
		switch {
		case on == 0:
			continue // none of its disks can be changed
		case on < len(g.Array):
			return deletion{}, fmt.Errorf(
				"%s has members that the step must not change: %s%s", g,
				devices(g.Array), s.network.note())
		case g.action == actionWipe:
			del.wipe = append(del.wipe, g)
		}
		for _, member := range g.Array {
			changed[member.Device.Path] = true
			if g.action == actionDelete {
				changed[member.Disk.Path] = true
			}
		}
	}
	for _, d := range s.disks {
		if !slices.ContainsFunc(s.groups, func(g *group) bool {
			return g.action == actionDelete && g.isOn(map[string]bool{d.Path: true})
		}) {
			continue
		}
		if err := r.checkWritable(ctx, d); err != nil {
			return deletion{}, err
		}
		del.clear = append(del.clear, d)
	}
	for _, g := range del.wipe {
		if err := r.checkWipe(ctx, s, g); err != nil {
			return deletion{}, err
		}
	}
	for _, a := range s.running {
		used := 0
		for _, member := range a.Slots {
			if changed[member.Path] {
				used++
			}
		}
		if used == 0 {
			continue
		}
		if used < len(a.Slots) {
			return deletion{}, fmt.Errorf("%s runs on devices that must be kept", a.Path)
		}
		del.stop = append(del.stop, a)
	}
	return del, nil
}

// checkWipe returns an error if the content of an array must not or cannot be removed: if its disks cannot be
// overwritten, if [raid.Wipe] does not support its superblocks, or if one of its members shares space with a member of
// an array that is kept. A superblock that a newer array did not overwrite claims such space.
func (r *Arrays) checkWipe(ctx context.Context, s *state, g *group) error {
	for _, d := range s.disks {
		if !g.isOn(map[string]bool{d.Path: true}) {
			continue
		}
		if err := r.checkWritable(ctx, d); err != nil {
			return err
		}
	}
	for _, member := range g.Array {
		if member.Version != "1.2" {
			continue // of other members, only the data is wiped
		}
		if err := r.limitDisk(ctx, member.Device, func(context.Context) error {
			return raid.CheckWipe(member)
		}); err != nil {
			return fmt.Errorf("wipe %s on %w", g, err)
		}
	}
	for _, other := range s.groups {
		if other == g || other.action == actionDelete {
			continue
		}
		for _, member := range g.Array {
			if i := slices.IndexFunc(other.Array, func(m raid.Member) bool { return overlap(member, m) }); i >= 0 {
				return fmt.Errorf("%s on %s: removing its content would destroy %s on %s: "+
					"remove the superblock that is not in use",
					g, member.Device.Path, other, other.Array[i].Device.Path)
			}
		}
	}
	return nil
}

// overlap reports whether two members have space in common. The start of a partition is unknown if it is a map.
func overlap(m, other raid.Member) bool {
	a, b, disk := m.Device, other.Device, m.Disk.Path
	switch {
	case disk != other.Disk.Path:
		return false
	case a.Path == b.Path || a.Path == disk || b.Path == disk:
		return true
	}
	return a.Start > 0 && b.Start > 0 && a.Start < b.Start+b.Size && b.Start < a.Start+a.Size
}

// devices lists the device paths of the members.
func devices(a raid.Array) string { return strings.Join(a.Paths(), ", ") }

// checkWritable returns an error if a disk must not or cannot be overwritten.
func (r *Arrays) checkWritable(ctx context.Context, d block.Device) error {
	switch {
	case d.ReadOnly:
		return fmt.Errorf("%s: %w", d.Path, erase.ErrReadOnly)
	case d.Zoned == "host-managed":
		return fmt.Errorf("%s: %w", d.Path, erase.ErrZoned)
	case r.o.Guard:
		return r.limitDisk(ctx, d, func(ctx context.Context) error { return erase.Guard(ctx, r.o.System, d.Path) })
	}
	return nil
}

// deleteArrays stops and deletes the arrays of a plan. If one of their disks or members is in use, it writes to none.
func (r *Arrays) deleteArrays(ctx context.Context, del deletion) error {
	for _, a := range del.stop {
		if err := r.o.Kernel.Stop(ctx, a.Path); err != nil {
			return err
		}
		r.o.Log.Info("RAID array stopped", "device", a.Path)
	}
	var written []string // device paths
	for _, d := range del.clear {
		written = append(written, d.Path)
	}
	for _, g := range del.wipe {
		for _, member := range g.Array {
			written = append(written, member.Device.Path)
		}
	}
	for _, path := range written {
		if err := erase.AwaitFree(ctx, r.o.System, path, r.o.Wait); err != nil {
			return err
		}
	}
	for _, g := range del.wipe {
		for _, member := range g.Array {
			if err := r.limitDisk(ctx, member.Device, func(ctx context.Context) error {
				return raid.Wipe(ctx, member)
			}); err != nil {
				return err
			}
		}
		r.o.Log.Warn("RAID array wiped", "array", g.String(), "devices", devices(g.Array), "reason", g.reason)
	}
	for _, d := range del.clear {
		if err := r.limitDisk(ctx, d, func(ctx context.Context) error {
			return erase.Metadata(ctx, r.o.System, d.Path, r.o.Wait)
		}); err != nil {
			return err
		}
		r.o.Log.Info("RAID superblocks and partitions removed", "device", d.Path)
	}
	for _, g := range del.groups {
		if g.action == actionKeep {
			r.o.Log.Warn("RAID array kept", "array", g.String(), "devices", devices(g.Array), "reason", g.reason)
		}
	}
	return nil
}
