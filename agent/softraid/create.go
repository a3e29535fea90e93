package softraid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/fault"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/hint"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
)

// creation are the partitions and arrays that a configuration needs.
type creation struct {
	disks   []block.Device
	layouts map[string]partition.Layout // by disk
	volumes []Volume
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
// only reads. del precedes the creation.
func (r *Arrays) planCreate(
	ctx context.Context, volumes []Volume, del deletion,
) (creation, error) {
	plan := creation{layouts: map[string]partition.Layout{}}
	volumes, err := missing(volumes, del)
	if err != nil {
		return creation{}, err
	}
	candidates, err := r.candidates(del.disks)
	if err != nil {
		return creation{}, err
	}
	for _, v := range volumes {
		disks, err := choose(v, candidates, del.network)
		if err != nil {
			return creation{}, err
		}
		v.number = plan.freeNumber(del)
		for _, d := range disks {
			if _, known := plan.layouts[d.Path]; !known {
				plan.disks = append(plan.disks, d)
				plan.layouts[d.Path] = partition.Layout{Scheme: r.o.Scheme}
			}
			member, err := plan.add(d, v, r.o.UEFI)
			if err != nil {
				return creation{}, err
			}
			v.Members = append(v.Members, member)
		}
		if err := v.checkMembers(); err != nil {
			return creation{}, fmt.Errorf("%w%s", err, del.network.note())
		}
		plan.volumes = append(plan.volumes, v)
	}
	if err := checkExternal(ctx, plan.disks); err != nil {
		return creation{}, err
	}
	var partitioned []string
	for _, d := range plan.disks {
		if err := r.checkWritable(ctx, d); err != nil {
			return creation{}, err
		}
		if slices.ContainsFunc(del.clear, func(other block.Device) bool { return other.Path == d.Path }) {
			continue // it will be empty
		}
		empty, err := r.isEmpty(ctx, d, del)
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
func (r *Arrays) candidates(disks []block.Device) ([]block.Device, error) {
	var candidates []block.Device
	for _, d := range disks {
		medium, err := block.IsVirtualMedia(r.o.System, d.Name)
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
func (r *Arrays) checkDisks(ctx context.Context, volumes []Volume, c *configuration, s *state) error {
	candidates, err := r.candidates(s.disks)
	if err != nil {
		return err
	}
	for _, array := range volumes {
		if s.remains(array.Name) {
			continue
		}
		want, entries := md.MinDevices(array.Level), len(array.hints)
		if len(candidates) < want {
			c.add("Software RAID configuration is not possible for RAID level %s with only %d block devices found. "+
				"Want %d or more, got %s%s", levelName(array.Level), len(candidates), want,
				cmp.Or(pathList(candidates), "none"), s.network.note())
		}
		if array.hints != nil && entries < want {
			c.add("RAID array %q: got %d entries of physical_disks, want %d or more for RAID level %s", array.Name,
				entries, want, levelName(array.Level))
		}
		if _, err := choose(array, candidates, s.network); err != nil {
			c.add("%s", fault.From(toFault(ctx, err)).Details)
		}
	}
	return nil
}

// remains reports whether an array of a name exists that is kept or wiped because of skip_block_devices.
func (s *state) remains(name string) bool {
	return slices.ContainsFunc(s.groups, func(g *group) bool {
		return (g.action == actionKeep || g.action == actionWipe) && g.Array[0].ShortName() == name
	})
}

// missing returns the arrays that do not exist yet. An array that exists must be kept or wiped because of
// skip_block_devices, and must have the level of the configuration; all others are an error.
func missing(volumes []Volume, del deletion) ([]Volume, error) {
	if !del.rules.HasProtected() {
		return volumes, nil
	}
	found := map[string]bool{}
	for _, g := range del.groups {
		if g.action == actionDelete && (g.isOn(pathSet(del.clear)) || !g.isOn(pathSet(del.disks))) {
			continue // it is deleted before, or its disks cannot be changed
		}
		name := g.Array[0].ShortName()
		switch {
		case name == "":
			return nil, errors.New("a Software RAID device detected that does not have a volume name. This is not " +
				"allowed because there is a volume_name hint in the property 'skip_block_devices'")
		case g.action == actionKeep && name == espName:
			continue
		}
		i := slices.IndexFunc(volumes, func(v Volume) bool { return v.Name == name })
		if i < 0 || g.action == actionDelete || found[name] {
			return nil, fault.SoftwareRAID("Existing Software RAID device detected that should not: %s on %s", g,
				devices(g.Array))
		}
		if volumes[i].Level != g.Array[0].Level {
			return nil, fmt.Errorf("existing %s on %s: got %s, want %s", g, devices(g.Array), g.Array[0].Level,
				volumes[i].Level)
		}
		found[name] = true
	}
	return slices.DeleteFunc(slices.Clone(volumes), func(v Volume) bool { return found[v.Name] }), nil
}

// choose returns the disks of an array: all, or for each entry of physical_disks the first that matches and that no
// earlier entry has chosen. Errors name the disks of a network, which are no candidates.
func choose(v Volume, candidates []block.Device, network networkDisks) ([]block.Device, error) {
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
	for _, a := range p.volumes {
		used[fmt.Sprintf("md%d", a.number)] = true
	}
	return raid.FreeNumber(0, used)
}

// add adds a partition for an array to a disk. The first partition ends at the size of its array, and each other the
// size of its array after the previous one. An array without a size gets the rest, up to a MiB before the end.
func (p *creation) add(d block.Device, v Volume, uefi bool) (raid.Member, error) {
	layout := p.layouts[d.Path]
	part := partition.Partition{Number: len(layout.Partitions) + 1, Type: partition.TypeMBRLinux, Start: raidStartMBR}
	if layout.Scheme == partition.GPT {
		part.Type, part.Name, part.Start = partition.TypeLinux, "primary", raidStartBIOS
	}
	if uefi {
		part.Start = raidStartUEFI
	}
	end := v.Size
	if last := len(layout.Partitions) - 1; last >= 0 {
		part.Start = layout.Partitions[last].Start + layout.Partitions[last].Size
		end += part.Start
	}
	if v.Size == 0 {
		end = (d.Size - raidAlign) / raidAlign * raidAlign
	}
	part.Size = end - part.Start
	if part.Size <= 0 {
		return raid.Member{}, fmt.Errorf("%s of %d bytes has no space for RAID array %q after byte %d",
			d.Path, d.Size, v.Name, part.Start)
	}
	layout.Partitions = append(layout.Partitions, partition.Planned{Role: roleRAID, Partition: part})
	if err := layout.Fits(d.Size, max(d.LogicalSector, 512)); err != nil {
		return raid.Member{}, fmt.Errorf("RAID array %q on %s: %w", v.Name, d.Path, err)
	}
	p.layouts[d.Path] = layout
	return raid.Member{Device: block.Device{Number: part.Number, Size: part.Size}, Disk: d}, nil
}

const roleRAID partition.Role = "RAID"

// checkMembers returns an error if the planned members are too few or too small.
func (v *Volume) checkMembers() error {
	array := md.New{Version: superblockVersion, Level: v.Level, Name: arrayName(v.Name)}
	var disks []string
	for _, member := range v.Members {
		array.Sizes = append(array.Sizes, member.Device.Size)
		disks = append(disks, member.Disk.Path)
	}
	if err := array.Check(); err != nil {
		return fmt.Errorf("RAID array %q on %s: %w", v.Name, strings.Join(disks, ", "), err)
	}
	return nil
}

// isEmpty reports whether a disk has no partitions. A disk that is in use or a member of an array is an error.
func (r *Arrays) isEmpty(ctx context.Context, d block.Device, del deletion) (bool, error) {
	for _, g := range del.groups {
		for _, member := range g.Array {
			if member.Device.Path == d.Path {
				return false, fmt.Errorf("%s is a member of %s", d.Path, g)
			}
		}
	}
	parts, err := block.Partitions(ctx, r.o.System, d.Path)
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
func (r *Arrays) createArrays(ctx context.Context, plan creation) (err error) {
	var written []block.Device
	var running []string
	defer func() {
		if err != nil {
			err = errors.Join(err, r.removeArrays(context.WithoutCancel(ctx), plan, running, written))
		}
	}()
	for _, d := range plan.disks {
		written = append(written, d) // at least in part
		if err := r.limitDisk(ctx, d, func(ctx context.Context) error {
			_, err := partition.Create(ctx, d.Path, plan.layouts[d.Path])
			return err
		}); err != nil {
			return err
		}
		if err := partition.Sync(ctx, r.o.System, d.Path); err != nil {
			return err
		}
	}
	members := map[string][]string{}
	for _, a := range plan.volumes {
		o := raid.Options{
			Number: a.number, Version: superblockVersion, Level: a.Level, Name: arrayName(a.Name),
		}
		for _, member := range a.Members {
			path, err := r.waitMember(ctx, member)
			if err != nil {
				return err
			}
			o.Members = append(o.Members, path)
		}
		path, err := r.o.Kernel.Create(ctx, o)
		if err != nil {
			return err
		}
		running = append(running, path)
		members[path] = o.Members
		// The disks can have been members of a similar array, whose content would appear again.
		if err := r.limitDisk(ctx, block.Device{Path: path}, func(ctx context.Context) error {
			return r.o.Kernel.Wipe(ctx, path, r.o.Wait)
		}); err != nil {
			return err
		}
		r.o.Log.Info("RAID array created", "device", path, "name", a.Name, "level", a.Level, "members", o.Members)
	}
	for i, path := range running { // members can have failed since
		if err := r.o.Kernel.Check(path, plan.volumes[i].Level, members[path]); err != nil {
			return err
		}
	}
	return nil
}

// partitionTimeout limits the wait for the device of a new partition.
const partitionTimeout = 30 * time.Second

// waitMember waits until the kernel shows a partition, and returns its path.
func (r *Arrays) waitMember(ctx context.Context, member raid.Member) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, partitionTimeout, errors.New("partition did not appear"))
	defer cancel()
	return block.WaitPartition(ctx, r.o.System, member.Disk.Path, member.Device.Number)
}

// removeArrays stops arrays and removes the partition tables and superblocks of their disks.
func (r *Arrays) removeArrays(ctx context.Context, plan creation, running []string, written []block.Device) error {
	var problems []error
	for _, path := range running {
		problems = append(problems, r.o.Kernel.Stop(ctx, path))
	}
	for _, d := range written {
		problems = append(problems, r.limitDisk(ctx, d, func(ctx context.Context) error {
			return erase.Metadata(ctx, r.o.System, d.Path, r.o.Wait)
		}))
	}
	return errors.Join(problems...)
}
