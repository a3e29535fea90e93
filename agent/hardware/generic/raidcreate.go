package generic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/agent/fault"
	"ironroot/agent/imaging"
	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/storage/bootloader"
	"ironroot/storage/erase"
	"ironroot/storage/hint"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
)

// creation are the partitions and arrays that a configuration needs.
type creation struct {
	flags   eraseFlags
	disks   []block.Device
	layouts map[string]partition.Layout // by disk
	arrays  []plannedArray
}

// plannedArray is an array to create.
type plannedArray struct {
	volume

	number  int
	members []plannedMember
}

// plannedMember is a partition of a disk.
type plannedMember struct {
	disk      string
	partition int
	size      int64 // bytes
}

// Starts of the first partition, as in ironic-python-agent. The space before it is for the partitions to boot from.
const (
	raidStartUEFI = 551 << 20
	raidStartBIOS = 8 << 20 // on a GPT
	raidStartMBR  = 1 << 20
	raidAlign     = 1 << 20
)

// superblockVersion is the version of the superblocks of new arrays, mdadm's default.
const superblockVersion = "1.2"

// planCreate chooses disks, partitions and device numbers for a configuration, and checks whether they can be used. It
// only reads. del is what is deleted before.
func (m *Manager) planCreate(
	ctx context.Context, n *node.Node, volumes []volume, del deletion,
) (creation, error) {
	plan := creation{flags: del.flags, layouts: map[string]partition.Layout{}}
	volumes, err := missing(volumes, del)
	if err != nil {
		return creation{}, err
	}
	candidates, err := m.candidates(del.disks)
	if err != nil {
		return creation{}, err
	}
	uefi := imaging.BootsUEFI(n, bootloader.FirmwareIsUEFI(m.o.System))
	scheme := imaging.TableScheme(n, uefi)
	for _, v := range volumes {
		disks, err := choose(v, candidates, del.network)
		if err != nil {
			return creation{}, err
		}
		array := plannedArray{volume: v, number: plan.freeNumber(del)}
		for _, d := range disks {
			if _, known := plan.layouts[d.Path]; !known {
				plan.disks = append(plan.disks, d)
				plan.layouts[d.Path] = partition.Layout{Scheme: scheme}
			}
			member, err := plan.add(d, v, uefi)
			if err != nil {
				return creation{}, err
			}
			array.members = append(array.members, member)
		}
		if err := array.check(); err != nil {
			return creation{}, fmt.Errorf("%w%s", err, del.network.note())
		}
		plan.arrays = append(plan.arrays, array)
	}
	if err := checkExternal(ctx, plan.disks); err != nil {
		return creation{}, err
	}
	var partitioned []string
	for _, d := range plan.disks {
		if err := m.checkWritable(ctx, del.raidState, d); err != nil {
			return creation{}, err
		}
		if slices.ContainsFunc(del.clear, func(other block.Device) bool { return other.Path == d.Path }) {
			continue // it will be empty
		}
		empty, err := m.isEmpty(ctx, d, del)
		if err != nil {
			return creation{}, err
		}
		if !empty {
			partitioned = append(partitioned, d.Path)
		}
	}
	if len(partitioned) > 0 {
		return creation{}, fault.SoftwareRAID("Partitions detected on devices %s during RAID config",
			strings.Join(partitioned, ", "))
	}
	return plan, nil
}

// candidates returns the disks that arrays can be created on: all but the media of a BMC, which come and go.
func (m *Manager) candidates(disks []block.Device) ([]block.Device, error) {
	var candidates []block.Device
	for _, d := range disks {
		medium, err := block.IsVirtualMedia(m.o.System, d.Name)
		if err != nil {
			return nil, err
		}
		if !medium {
			candidates = append(candidates, d)
		}
	}
	return candidates, nil
}

// checkDisks adds a problem for each array that has fewer disks than its level needs, or whose hints match no disk. It
// ignores arrays that exist and remain.
func (m *Manager) checkDisks(ctx context.Context, v *validation, s *raidState) error {
	candidates, err := m.candidates(s.disks)
	if err != nil {
		return err
	}
	for _, array := range v.volumes {
		if s.remains(array.name) {
			continue
		}
		want, entries := md.MinDevices(array.level), len(array.hints)
		if len(candidates) < want {
			v.add("Software RAID configuration is not possible for RAID level %s with only %d block devices found. "+
				"Want %d or more, got %s%s", levelName(array.level), len(candidates), want,
				cmp.Or(pathList(candidates), "none"), s.network.note())
		}
		if array.hints != nil && entries < want {
			v.add("RAID array %q: got %d entries of physical_disks, want %d or more for RAID level %s", array.name,
				entries, want, levelName(array.level))
		}
		if _, err := choose(array, candidates, s.network); err != nil {
			v.add("%s", fault.From(raidFault(ctx, err)).Details)
		}
	}
	return nil
}

// remains reports whether an array of a name exists that is kept or wiped because of skip_block_devices.
func (s *raidState) remains(name string) bool {
	return slices.ContainsFunc(s.groups, func(g *raidGroup) bool {
		return (g.action == actionKeep || g.action == actionWipe) && g.members[0].ShortName() == name
	})
}

// missing returns the arrays that do not exist yet. An array that exists must be kept or wiped because of
// skip_block_devices, and must have the level of the configuration; all others are an error.
func missing(volumes []volume, del deletion) ([]volume, error) {
	if !del.arrays.HasProtected() {
		return volumes, nil
	}
	found := map[string]bool{}
	for _, g := range del.groups {
		if g.action == actionDelete && (g.isOn(pathSet(del.clear)) || !g.isOn(pathSet(del.disks))) {
			continue // it is deleted before, or its disks cannot be changed
		}
		name := g.members[0].ShortName()
		switch {
		case name == "":
			return nil, errors.New("a Software RAID device detected that does not have a volume name. This is not " +
				"allowed because there is a volume_name hint in the property 'skip_block_devices'")
		case g.action == actionKeep && name == espName:
			continue
		}
		i := slices.IndexFunc(volumes, func(v volume) bool { return v.name == name })
		if i < 0 || g.action == actionDelete || found[name] {
			return nil, fault.SoftwareRAID("Existing Software RAID device detected that should not: %s on %s", g,
				g.describe())
		}
		if volumes[i].level != g.members[0].Level {
			return nil, fmt.Errorf("existing %s on %s: got %s, want %s", g, g.describe(), g.members[0].Level,
				volumes[i].level)
		}
		found[name] = true
	}
	return slices.DeleteFunc(slices.Clone(volumes), func(v volume) bool { return found[v.name] }), nil
}

// choose returns the disks of an array: all, or for each entry of physical_disks the first that matches and that no
// earlier entry has chosen. Errors name the disks of a network, which are no candidates.
func choose(v volume, candidates []block.Device, network networkDisks) ([]block.Device, error) {
	if v.hints == nil {
		return candidates, nil
	}
	var chosen []block.Device
	for _, hints := range v.hints {
		found, err := hint.Find(hints, candidates)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(found, func(d block.Device) bool {
			return !slices.ContainsFunc(chosen, func(other block.Device) bool { return other.Path == d.Path })
		})
		switch {
		case len(found) == 0:
			return nil, fault.SoftwareRAID("No candidates for physical disk %s from the list %s%s", hints,
				pathList(candidates), network.note())
		case i < 0:
			return nil, fault.SoftwareRAID("No candidates left for physical disk %s from the list %s after picking %s "+
				"for previous volumes%s", hints, pathList(found), pathList(chosen), network.note())
		}
		chosen = append(chosen, found[i])
	}
	return chosen, nil
}

func pathList(devices []block.Device) string {
	var list []string
	for _, d := range devices {
		list = append(list, d.Path)
	}
	return strings.Join(list, ", ")
}

func pathSet(devices []block.Device) map[string]bool {
	set := map[string]bool{}
	for _, d := range devices {
		set[d.Path] = true
	}
	return set
}

// freeNumber returns the first number of a device that no array has.
func (p *creation) freeNumber(del deletion) int {
	used := map[string]bool{}
	for _, a := range del.running {
		used[a.Name] = !slices.ContainsFunc(del.stop, func(stopped raid.Status) bool { return stopped.Name == a.Name })
	}
	for _, a := range p.arrays {
		used[fmt.Sprintf("md%d", a.number)] = true
	}
	return freeNumber(0, used)
}

// freeNumber returns the first number from start on whose device name is not used.
func freeNumber(start int, used map[string]bool) int {
	number := start
	for used[fmt.Sprintf("md%d", number)] {
		number++
	}
	return number
}

// add adds a partition for an array to a disk. The first partition ends at the size of its array, and each other the
// size of its array after the previous one. An array without a size gets the rest, up to a MiB before the end.
func (p *creation) add(d block.Device, v volume, uefi bool) (plannedMember, error) {
	layout := p.layouts[d.Path]
	part := partition.Partition{Number: len(layout.Partitions) + 1, Type: partition.TypeMBRLinux, Start: raidStartMBR}
	if layout.Scheme == partition.GPT {
		part.Type, part.Name, part.Start = partition.TypeLinux, "primary", raidStartBIOS
	}
	if uefi {
		part.Start = raidStartUEFI
	}
	end := v.size
	if last := len(layout.Partitions) - 1; last >= 0 {
		part.Start = layout.Partitions[last].Start + layout.Partitions[last].Size
		end += part.Start
	}
	if v.size == 0 {
		end = (d.Size - raidAlign) / raidAlign * raidAlign
	}
	part.Size = end - part.Start
	if part.Size <= 0 {
		return plannedMember{}, fmt.Errorf("%s of %d bytes has no space for RAID array %q after byte %d",
			d.Path, d.Size, v.name, part.Start)
	}
	layout.Partitions = append(layout.Partitions, partition.Planned{Role: roleRAID, Partition: part})
	if err := layout.Fits(d.Size, max(d.LogicalSector, 512)); err != nil {
		return plannedMember{}, fmt.Errorf("RAID array %q on %s: %w", v.name, d.Path, err)
	}
	p.layouts[d.Path] = layout
	return plannedMember{d.Path, part.Number, part.Size}, nil
}

const roleRAID partition.Role = "RAID"

// check returns an error if the members are too few or too small.
func (a plannedArray) check() error {
	array := md.New{Version: superblockVersion, Level: a.level, Name: arrayName(a.name)}
	for _, member := range a.members {
		array.Sizes = append(array.Sizes, member.size)
	}
	if err := array.Check(); err != nil {
		var disks []string
		for _, member := range a.members {
			disks = append(disks, member.disk)
		}
		return fmt.Errorf("RAID array %q on %s: %w", a.name, strings.Join(disks, ", "), err)
	}
	return nil
}

// isEmpty reports whether a disk has no partitions. A disk that is in use or a member of an array is an error.
func (m *Manager) isEmpty(ctx context.Context, d block.Device, del deletion) (bool, error) {
	for _, g := range del.groups {
		for _, member := range g.members {
			if member.Device.Path == d.Path {
				return false, fmt.Errorf("%s is a member of %s", d.Path, g)
			}
		}
	}
	parts, err := block.Partitions(ctx, m.o.System, d.Path)
	if err != nil || len(parts) > 0 {
		return false, err
	}
	table, err := partition.ReadAll(ctx, d.Path)
	if err == nil && len(table.Partitions) > 0 {
		return false, nil
	} else if err != nil && !errors.Is(err, partition.ErrNoTable) {
		return false, err
	}
	f, err := os.OpenFile(d.Path, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// createArrays writes the partition tables and creates the arrays. If it fails, it removes both again.
func (m *Manager) createArrays(ctx context.Context, plan creation) (err error) {
	var written []block.Device
	var running []string
	defer func() {
		if err != nil {
			err = errors.Join(err, m.removeArrays(context.WithoutCancel(ctx), plan, running, written))
		}
	}()
	for _, d := range plan.disks {
		written = append(written, d) // at least in part
		if err := m.limitDisk(ctx, d, func(ctx context.Context) error {
			_, err := partition.Create(ctx, d.Path, plan.layouts[d.Path])
			return err
		}); err != nil {
			return err
		}
		if err := partition.Sync(ctx, m.o.System, d.Path); err != nil {
			return err
		}
	}
	members := map[string][]string{}
	for _, a := range plan.arrays {
		o := raid.Options{
			Number: a.number, Version: superblockVersion, Level: a.level, Name: arrayName(a.name),
		}
		for _, member := range a.members {
			path, err := m.waitMember(ctx, member)
			if err != nil {
				return err
			}
			o.Members = append(o.Members, path)
		}
		path, err := m.createArray(ctx, m.o.System, o)
		if err != nil {
			return err
		}
		running = append(running, path)
		members[path] = o.Members
		// The disks can have been members of a similar array, whose content would appear again.
		if err := m.limitDisk(ctx, block.Device{Path: path}, func(ctx context.Context) error {
			return m.wipeArray(ctx, m.o.System, path, plan.flags.wait)
		}); err != nil {
			return err
		}
		m.o.Log.Info("RAID array created", "device", path, "name", a.name, "level", a.level, "members", o.Members)
	}
	for i, path := range running { // members can have failed since
		if err := m.checkArray(m.o.System, path, plan.arrays[i].level, members[path]); err != nil {
			return err
		}
	}
	return nil
}

// waitMember waits until the kernel shows a partition, and returns its path.
func (m *Manager) waitMember(ctx context.Context, member plannedMember) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, driverTimeout, errors.New("partition did not appear"))
	defer cancel()
	return block.WaitPartition(ctx, m.o.System, member.disk, member.partition)
}

// removeArrays stops arrays and removes the partition tables and superblocks of their disks.
func (m *Manager) removeArrays(ctx context.Context, plan creation, running []string, written []block.Device) error {
	var problems []error
	for _, path := range running {
		problems = append(problems, m.stopArray(ctx, path))
	}
	for _, d := range written {
		problems = append(problems, m.limitDisk(ctx, d, func(ctx context.Context) error {
			return erase.Metadata(ctx, m.o.System, d.Path, plan.flags.wait)
		}))
	}
	return errors.Join(problems...)
}
