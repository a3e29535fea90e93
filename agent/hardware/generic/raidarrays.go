package generic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/node"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/raid"
)

// raidState describes the disks of a node and the arrays on them, before a RAID step changes anything.
type raidState struct {
	disks   []block.Device // to be changed: not arrays, not named by skip_block_devices, not of a network
	network networkDisks
	groups  []*raidGroup
	running []raid.Status
	flags   eraseFlags
	arrays  hardware.Arrays
}

// raidGroup are the members of one array: those with one UUID.
type raidGroup struct {
	members []raidMember
	action  raidAction
	reason  string // why it is kept or wiped
}

// raidGroups are the groups of members by UUID.
type raidGroups map[string]*raidGroup

// add adds the members on a disk and its partitions.
func (groups raidGroups) add(d block.Device, members []raid.Member) {
	for _, member := range members {
		if groups[member.UUID] == nil {
			groups[member.UUID] = &raidGroup{}
		}
		groups[member.UUID].members = append(groups[member.UUID].members, raidMember{member, d.Path})
	}
}

// named returns the only group with a member of a name. The name does not contain the host that created the array.
func (groups raidGroups) named(name string) (*raidGroup, error) {
	var named []*raidGroup
	for _, g := range groups {
		if slices.ContainsFunc(g.members, func(m raidMember) bool { return m.ShortName() == name }) {
			named = append(named, g)
		}
	}
	if len(named) != 1 {
		return nil, fmt.Errorf("got %d arrays of name %q, want 1", len(named), name)
	}
	return named[0], nil
}

// raidMember is a member of an array with the disk that it is on.
type raidMember struct {
	raid.Member
	disk string // device path
}

// raidAction is what deleting the configuration does to an array.
type raidAction int

const (
	actionUndecided raidAction = iota
	actionDelete
	actionKeep // protected by skip_block_devices, or the EFI system partition of such an array
	actionWipe // on a disk of a kept array: its content is removed
)

func (g *raidGroup) String() string { return g.members[0].String() }

func (g *raidGroup) plain() []raid.Member {
	var members []raid.Member
	for _, m := range g.members {
		members = append(members, m.Member)
	}
	return members
}

func (g *raidGroup) isOn(disks map[string]bool) bool {
	return slices.ContainsFunc(g.members, func(m raidMember) bool { return disks[m.disk] })
}

// mark sets the action and adds the group's disks to a set.
func (g *raidGroup) mark(action raidAction, reason string, disks map[string]bool) {
	g.action, g.reason = action, reason
	for _, m := range g.members {
		disks[m.disk] = true
	}
}

// readRAID reads the arrays on all disks and decides what deleting the configuration does to each. It only reads. What
// cannot be read or decided is an error, except for disks that skip_block_devices names while it names no array.
// Disks that are reached over a network are handled as if skip_block_devices named them, see localDisks.
func (m *Manager) readRAID(ctx context.Context, n *node.Node) (*raidState, error) {
	c := m.o.Config.Get()
	s := &raidState{flags: eraseFlagsOf(n, c.GuardSpecialFilesystems)}
	s.flags.wait = erase.Wait{
		Interval: c.DiskPartitioner.CheckDeviceInterval, Retries: c.DiskPartitioner.CheckDeviceMaxRetries,
	}
	var err error
	if s.arrays, err = hardware.ArraysOf(n); err != nil {
		return nil, err
	}
	skips, err := hardware.NewSkipList(n)
	if err != nil {
		return nil, err
	}
	all, err := m.o.Disks(ctx)
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	all = slices.DeleteFunc(slices.Clone(all), block.Device.IsArray)
	if s.disks, err = skips.Without(all); err != nil {
		return nil, err
	}
	if s.disks, s.network, err = m.localDisks(s.disks); err != nil {
		return nil, err
	}
	for _, d := range s.disks {
		if err := errors.Join(skips.CheckRead(d), s.arrays.CheckShown(ctx, m.o.System, d)); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Path, err)
		}
	}
	groups := raidGroups{}
	for _, d := range all {
		members, err := m.membersOn(ctx, d)
		if err != nil {
			if !s.has(d) && !s.arrays.HasProtected() {
				m.o.Log.Warn("RAID superblocks not read", "device", d.Path, "err", err)
				continue
			}
			return nil, fmt.Errorf("%s: %w", d.Path, err)
		}
		groups.add(d, members)
	}
	for _, uuid := range slices.Sorted(maps.Keys(groups)) {
		s.groups = append(s.groups, groups[uuid])
	}
	if s.running, err = raid.List(ctx, m.o.System); err != nil {
		return nil, err
	}
	return s, s.decide()
}

func (s *raidState) has(d block.Device) bool {
	return slices.ContainsFunc(s.disks, func(other block.Device) bool { return other.Path == d.Path })
}

// decide sets the actions of all groups.
func (s *raidState) decide() error {
	var all []raid.Member
	for _, g := range s.groups {
		all = append(all, g.plain()...)
	}
	nameErrs := s.arrays.CheckNames(all) // once: a tenant can write thousands of members
	kept := map[string]bool{}            // disks
	for _, g := range s.groups {
		protected := false
		for _, m := range g.members {
			if err := s.arrays.CheckName(m.Superblock); err != nil {
				return fmt.Errorf("%s: %w", m.Device.Path, err)
			}
			if !s.arrays.Protected(m.Superblock) {
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
		if err := hardware.CheckOneArray(g.plain()); err != nil {
			return err
		}
		g.mark(actionKeep, "protected by skip_block_devices", kept)
	}
	var esps []raid.Member
	for _, g := range s.groups {
		if g.action == actionUndecided && g.isOn(kept) &&
			!slices.ContainsFunc(g.members, func(m raidMember) bool { return !hardware.IsESPMember(m.Member) }) {
			g.mark(actionKeep, "the EFI system partition of a protected array", kept)
			esps = append(esps, g.plain()...)
		}
	}
	if err := hardware.CheckOneArray(esps); err != nil {
		return fmt.Errorf("%q is not the name of one array: %w", espName, err)
	}
	// The content of an array that shares a disk with a kept one is removed, and that of the arrays on its other disks.
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

// deletion is what deleting the configuration changes.
type deletion struct {
	*raidState

	stop  []raid.Status
	wipe  []*raidGroup
	clear []block.Device // disks whose partition tables and superblocks are removed
}

// planDelete checks whether the configuration can be deleted. It only reads.
func (m *Manager) planDelete(ctx context.Context, s *raidState) (deletion, error) {
	del := deletion{raidState: s}
	changed := map[string]bool{} // paths of disks and members
	for _, g := range s.groups {
		if g.action == actionKeep {
			continue
		}
		on := 0
		for _, member := range g.members {
			if s.has(block.Device{Path: member.disk}) {
				on++
			}
		}
		switch {
		case on == 0:
			continue // none of its disks can be changed
		case on < len(g.members):
			return deletion{}, fmt.Errorf(
				"%s has members that the step must not change: %s%s", g,
				g.describe(), s.network.note())
		case g.action == actionWipe:
			del.wipe = append(del.wipe, g)
		}
		for _, member := range g.members {
			changed[member.Device.Path] = true
			if g.action == actionDelete {
				changed[member.disk] = true
			}
		}
	}
	for _, d := range s.disks {
		if !slices.ContainsFunc(s.groups, func(g *raidGroup) bool {
			return g.action == actionDelete && g.isOn(map[string]bool{d.Path: true})
		}) {
			continue
		}
		if err := m.checkWritable(ctx, s, d); err != nil {
			return deletion{}, err
		}
		del.clear = append(del.clear, d)
	}
	for _, g := range del.wipe {
		if err := m.checkWipe(ctx, s, g); err != nil {
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
func (m *Manager) checkWipe(ctx context.Context, s *raidState, g *raidGroup) error {
	for _, d := range s.disks {
		if !g.isOn(map[string]bool{d.Path: true}) {
			continue
		}
		if err := m.checkWritable(ctx, s, d); err != nil {
			return err
		}
	}
	for _, member := range g.members {
		if member.Version != "1.2" {
			continue // of other members, only the data is wiped
		}
		if err := m.limitDisk(ctx, member.Device, func(context.Context) error {
			return raid.CheckWipe(member.Member)
		}); err != nil {
			return fmt.Errorf("wipe %s on %w", g, err)
		}
	}
	for _, other := range s.groups {
		if other == g || other.action == actionDelete {
			continue
		}
		for _, member := range g.members {
			if i := slices.IndexFunc(other.members, member.overlaps); i >= 0 {
				return fmt.Errorf("%s on %s: removing its content would destroy %s on %s: "+
					"remove the superblock that is not in use",
					g, member.Device.Path, other, other.members[i].Device.Path)
			}
		}
	}
	return nil
}

// overlaps reports whether two members have space in common. The start of a partition is unknown if it is a map.
func (m raidMember) overlaps(other raidMember) bool {
	a, b := m.Device, other.Device
	switch {
	case m.disk != other.disk:
		return false
	case a.Path == b.Path || a.Path == m.disk || b.Path == m.disk:
		return true
	}
	return a.Start > 0 && b.Start > 0 && a.Start < b.Start+b.Size && b.Start < a.Start+a.Size
}

func (g *raidGroup) describe() string {
	var words []string
	for _, m := range g.members {
		words = append(words, m.Device.Path)
	}
	return strings.Join(words, ", ")
}

// checkWritable returns an error if a disk must not or cannot be overwritten.
func (m *Manager) checkWritable(ctx context.Context, s *raidState, d block.Device) error {
	switch {
	case d.ReadOnly:
		return fmt.Errorf("%s: %w", d.Path, erase.ErrReadOnly)
	case d.Zoned == "host-managed":
		return fmt.Errorf("%s: %w", d.Path, erase.ErrZoned)
	case s.flags.guard:
		return m.limitDisk(ctx, d, func(ctx context.Context) error { return erase.Guard(ctx, m.o.System, d.Path) })
	}
	return nil
}

// membersUnlimited reads the members of arrays on a disk and its partitions, without a time limit.
func (m *Manager) membersUnlimited(ctx context.Context, d block.Device) ([]raid.Member, error) {
	return raid.Members(ctx, m.o.System, d)
}

// membersOn reads the members of arrays on a disk and its partitions, with the time limits of the disk.
func (m *Manager) membersOn(ctx context.Context, d block.Device) ([]raid.Member, error) {
	return timelimit.Do(ctx, m.limits(d), func(ctx context.Context) ([]raid.Member, error) {
		return m.membersUnlimited(ctx, d)
	})
}

// limitDisk calls a function that reads or writes a disk, with the time limits of the disk.
func (m *Manager) limitDisk(ctx context.Context, d block.Device, call func(context.Context) error) error {
	_, err := timelimit.Do(ctx, m.limits(d), func(ctx context.Context) (any, error) { return nil, call(ctx) })
	return err
}

// deleteArrays stops and deletes the arrays of a plan. If one of their disks or members is in use, it writes to none.
func (m *Manager) deleteArrays(ctx context.Context, del deletion) error {
	for _, a := range del.stop {
		if err := m.stopArray(ctx, a.Path); err != nil {
			return err
		}
		m.o.Log.Info("RAID array stopped", "device", a.Path)
	}
	var written []string // device paths
	for _, d := range del.clear {
		written = append(written, d.Path)
	}
	for _, g := range del.wipe {
		for _, member := range g.members {
			written = append(written, member.Device.Path)
		}
	}
	for _, path := range written {
		if err := erase.AwaitFree(ctx, m.o.System, path, del.flags.wait); err != nil {
			return err
		}
	}
	for _, g := range del.wipe {
		for _, member := range g.members {
			if err := m.limitDisk(ctx, member.Device, func(ctx context.Context) error {
				return raid.Wipe(ctx, member.Member)
			}); err != nil {
				return err
			}
		}
		m.o.Log.Warn("RAID array wiped", "array", g.String(), "devices", g.describe(), "reason", g.reason)
	}
	for _, d := range del.clear {
		if err := m.limitDisk(ctx, d, func(ctx context.Context) error {
			return erase.Metadata(ctx, m.o.System, d.Path, del.flags.wait)
		}); err != nil {
			return err
		}
		m.o.Log.Info("RAID superblocks and partitions removed", "device", d.Path)
	}
	for _, g := range del.groups {
		if g.action == actionKeep {
			m.o.Log.Warn("RAID array kept", "array", g.String(), "devices", g.describe(), "reason", g.reason)
		}
	}
	return nil
}

// raidFault converts an error of a RAID step to that of the protocol, unless the step was cancelled.
func raidFault(ctx context.Context, err error) error {
	var known *fault.Error
	if err == nil || errors.As(err, &known) || ctx.Err() != nil {
		return err
	}
	if errors.Is(err, erase.ErrProtected) {
		return fault.ProtectedDevice("%w", err)
	}
	return fault.SoftwareRAID("%w", err)
}
