package hardware

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
	"ironroot/storage/raidboot"
	"ironroot/storage/sysfs"
)

// volumeName is the key of an entry of skip_block_devices or raid_config with the name of a RAID array.
const volumeName = "volume_name"

// Arrays are the software RAID arrays that a node object names: those that skip_block_devices protects, and those that
// Ironic created (raid_config).
type Arrays struct {
	protected []string
	created   []logicalDisk
}

// logicalDisk is a software RAID entry of raid_config.
type logicalDisk struct {
	number     int    // position in the list, from 1
	volumeName string // "" if the entry has none
	level      string // as [md.Superblock] names it; "" if it is not known
	size       int64  // bytes; 0 if it is unknown or "MAX"
}

// ArraysOf returns the arrays that a node names. A nil node names none. An entry that cannot be parsed is an error,
// because it may protect an array. A level or size that cannot be parsed counts as unknown.
func ArraysOf(n *node.Node) (Arrays, error) {
	var a Arrays
	if n == nil {
		return a, nil
	}
	skipped, err := n.SkipBlockDevices()
	if err != nil {
		return a, err
	}
	for i, entry := range skipped {
		value, ok := entry[volumeName]
		if !ok {
			continue
		}
		name, ok := value.(string)
		if !ok || name == "" {
			return a, fmt.Errorf("entry %d of skip_block_devices: %s: got %#v, want a name", i+1, volumeName, value)
		}
		a.protected = append(a.protected, name)
	}
	disks, err := n.LogicalDisks()
	if err != nil {
		return a, err
	}
	for i, entry := range disks {
		if controller, _ := entry["controller"].(string); !strings.EqualFold(controller, "software") {
			continue
		}
		disk := logicalDisk{number: i + 1, level: raidLevel(entry["raid_level"])}
		disk.volumeName, _ = entry[volumeName].(string)
		if gigabytes, err := strconv.ParseFloat(fmt.Sprint(entry["size_gb"]), 64); err == nil {
			disk.size = int64(gigabytes * (1 << 30))
		}
		a.created = append(a.created, disk)
	}
	return a, nil
}

// raidLevel converts a level of raid_config to the name that [md.Superblock] uses, "" if it is unknown.
func raidLevel(value any) string {
	text := strings.TrimSpace(fmt.Sprint(value))
	switch text {
	case "0", "1", "5", "6":
		return "raid" + text
	case "1+0", "10":
		return "raid10"
	}
	return ""
}

// HasProtected reports whether skip_block_devices protects an array by its name.
func (a Arrays) HasProtected() bool { return len(a.protected) > 0 }

// HasCreated reports whether Ironic has created arrays.
func (a Arrays) HasCreated() bool { return len(a.created) > 0 }

// IsEmpty reports whether the node names no array: none is protected, and Ironic has created none.
func (a Arrays) IsEmpty() bool { return len(a.protected) == 0 && len(a.created) == 0 }

// Protected reports whether skip_block_devices protects the array of a superblock by its name. The superblock must be
// valid. If raid_config has an array of that name, its level and size must be the same. Other arrays can have the same
// name: see [Arrays.CheckNames].
func (a Arrays) Protected(s md.Superblock) bool {
	if s.Problem != nil || !slices.ContainsFunc(a.protected, func(name string) bool { return hasName(s, name) }) {
		return false
	}
	for _, disk := range a.created {
		if hasName(s, disk.volumeName) && !disk.fits(s) {
			return false
		}
	}
	return true
}

// CheckName returns an error if an array has a name that skip_block_devices protects, and raid_config has another array
// of that name, so that the array of the superblock is not protected.
func (a Arrays) CheckName(s md.Superblock) error {
	if s.Problem == nil && !a.Protected(s) &&
		slices.ContainsFunc(a.protected, func(name string) bool { return hasName(s, name) }) {
		return fmt.Errorf("skip_block_devices protects %s by its name, but level or size differ from raid_config", s)
	}
	return nil
}

// Unmatched returns the names that skip_block_devices protects and no member has.
func (a Arrays) Unmatched(members []raid.Member) []string {
	var unmatched []string
	for _, name := range a.protected {
		if !slices.ContainsFunc(members, func(m raid.Member) bool {
			return hasName(m.Superblock, name) && a.Protected(m.Superblock)
		}) {
			unmatched = append(unmatched, name)
		}
	}
	return unmatched
}

// NameErrors are the errors of the names that skip_block_devices protects and that several arrays share.
type NameErrors []nameError

type nameError struct {
	name string
	err  error
}

// CheckNames compares the members on all disks: those that a name protects must pass [CheckOneArray]. An error contains
// the name, and devices with the UUIDs of their arrays.
func (a Arrays) CheckNames(members []raid.Member) NameErrors {
	var errs NameErrors
	for _, name := range a.protected {
		named := slices.DeleteFunc(slices.Clone(members), func(m raid.Member) bool {
			return !hasName(m.Superblock, name) || !a.Protected(m.Superblock)
		})
		if err := CheckOneArray(named); err != nil {
			err = fmt.Errorf("volume_name %q of skip_block_devices does not name one array: %w", name, err)
			errs = append(errs, nameError{name, err})
		}
	}
	return errs
}

// Of returns the error of the first of the names that the array of a superblock has.
func (errs NameErrors) Of(s md.Superblock) error {
	for _, e := range errs {
		if hasName(s, e.name) {
			return e.err
		}
	}
	return nil
}

// CheckOneArray returns an error if the members cannot belong to one array. Members of one array have the same UUID,
// level, number of devices and size, different numbers and roles, and were in use together. The error names at most
// maxDescribed members, first those that contradict each other.
func CheckOneArray(members []raid.Member) error {
	for i, m := range members {
		for j, other := range members[:i] {
			var problem string
			switch {
			case m.UUID != other.UUID:
				problem = "members have different UUIDs"
			case m.Level != other.Level:
				problem = "members have different levels"
			case m.Devices != other.Devices:
				problem = "members have different numbers of devices"
			case m.ArraySize != other.ArraySize && m.Level != "raid0" && m.Level != "linear": // use whole members
				problem = "members have different sizes"
			case m.Number == other.Number:
				problem = fmt.Sprintf("two members have number %d", m.Number)
			case m.Role == other.Role && m.Role >= 0:
				problem = fmt.Sprintf("two members have role %d", m.Role)
			case eventsApart(m, other) > md.MaxEventsApart:
				problem = fmt.Sprintf("events of members differ by %d", eventsApart(m, other))
			default:
				continue
			}
			return fmt.Errorf("%s: %s", problem, describe(members, j, i))
		}
		if m.Role >= m.Devices {
			return fmt.Errorf("a member has role %d of %d: %s", m.Role, m.Devices, describe(members, i))
		}
	}
	return nil
}

// eventsApart returns the difference between the event counts of two members.
func eventsApart(m, other raid.Member) uint64 {
	return max(m.Events, other.Events) - min(m.Events, other.Events)
}

// maxDescribed limits the members that an error lists: there can be one on each of a thousand disks.
const maxDescribed = 16

// describe lists the devices of at most maxDescribed members with the fields that distinguish arrays. It starts with
// those at positions.
func describe(members []raid.Member, positions ...int) string {
	for i := range members {
		if len(positions) == maxDescribed {
			break
		}
		if !slices.Contains(positions, i) {
			positions = append(positions, i)
		}
	}
	var list []string
	for _, i := range positions {
		m := members[i]
		list = append(list, fmt.Sprintf("%s (UUID %s, %s of %d, %d bytes, number %d, role %d, events %d)",
			m.Device.Path, m.UUID, m.Level, m.Devices, m.ArraySize, m.Number, m.Role, m.Events))
	}
	if more := len(members) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

// Created returns a description of the entry of raid_config that can be the array of a superblock, "" if there is
// none. An entry with a volume_name is compared by the name, or by the level if the array has no name; an entry
// without one by the level. The mirror with the EFI system partition has no
// entry.
func (a Arrays) Created(s md.Superblock) string {
	if s.Problem != nil || isESP(s) {
		return ""
	}
	for _, disk := range a.created {
		sameLevel := disk.level == "" || disk.level == s.Level
		if hasName(s, disk.volumeName) || sameLevel && (disk.volumeName == "" || s.Name == "") {
			if disk.volumeName == "" {
				return fmt.Sprintf("logical disk %d of raid_config", disk.number)
			}
			return fmt.Sprintf("logical disk %d of raid_config, volume_name %q", disk.number, disk.volumeName)
		}
	}
	return ""
}

// CheckShown returns an error if the partition table of a device names partitions that the kernel does not show, and
// the node object names arrays: a hidden partition can be a member of one, and [Members] does not find it.
func (a Arrays) CheckShown(ctx context.Context, sys sysfs.Root, d block.Device) error {
	if a.IsEmpty() {
		return nil
	}
	hidden, err := partition.Hidden(ctx, sys, d.Path)
	if err != nil || len(hidden) == 0 {
		return err
	}
	first := hidden[0]
	return fmt.Errorf("the kernel does not show %d of the partitions in the table of %s (the first is number %d, "+
		"%d bytes at byte %d), which can be members of an array that skip_block_devices or raid_config names: "+
		"repair or remove the table, or name the disk in skip_block_devices by its serial number or WWN",
		len(hidden), d.Path, first.Number, first.Size, first.Start)
}

// isESP reports whether an array looks like the mirror with the EFI system partition that install_bootloader creates: a
// RAID 1 of its name with the superblock at the end. No array of raid_config has this name.
func isESP(s md.Superblock) bool {
	return s.ShortName() == raidboot.ESPName && s.Level == "raid1" && s.Version == "1.0"
}

// IsESPMember reports whether a member looks like one of the mirror with the EFI system partition. The size of the
// whole member is limited, because a superblock can name a small part of it.
func IsESPMember(m raid.Member) bool { return isESP(m.Superblock) && m.Device.Size <= 1<<30 }

// minCutName is the shortest name in bytes that mdadm may have truncated: it writes at most 31 or 32 bytes of a longer
// name.
const minCutName = 31

// hasName reports whether an array has the name, with or without the host that created it.
func hasName(s md.Superblock, name string) bool {
	isCut := len(s.Name) >= minCutName && strings.HasPrefix(name, s.Name)
	return name != "" && (s.Name == name || s.ShortName() == name || isCut)
}

// fits reports whether an array has the level and the size of an entry. The size of an entry is that of the partition
// of each member, which also has space for booting and for metadata, or that of the array. Ironic rounds sizes to GiB
// on each member.
func (d logicalDisk) fits(s md.Superblock) bool {
	if d.level != "" && d.level != s.Level {
		return false
	}
	near := func(size, tolerance int64) bool { return max(d.size-size, size-d.size) <= tolerance }
	return d.size == 0 || near(s.DataSize, 1<<30) || near(s.ArraySize, int64(s.Devices)<<30)
}

// WithoutProtectedArrays returns the devices that are not part of a RAID array that the node's skip list protects by
// its name. It omits disks with a member on them or on one of their partitions, and the array itself. The devices are
// read only if the list has such an entry. A device that cannot be read is an error then.
func WithoutProtectedArrays(
	ctx context.Context, sys sysfs.Root, n *node.Node, devices []block.Device,
) ([]block.Device, error) {
	arrays, err := ArraysOf(n)
	if err != nil {
		return nil, err
	}
	if !arrays.HasProtected() {
		return devices, nil
	}
	kept := make([]block.Device, 0, len(devices))
	for _, d := range devices {
		if err := arrays.CheckShown(ctx, sys, d); err != nil {
			return nil, fmt.Errorf("find the RAID arrays of skip_block_devices: %w", err)
		}
		members, err := Members(ctx, sys, d)
		if err != nil {
			return nil, fmt.Errorf("find the RAID arrays of skip_block_devices: %w", err)
		}
		if !slices.ContainsFunc(members, func(m raid.Member) bool { return arrays.Protected(m.Superblock) }) {
			kept = append(kept, d)
		}
	}
	return kept, nil
}

// CheckCreated returns an error if a device or one of its partitions is a member of an array that Ironic created:
// writing to it would destroy the array. An assembled array is not a member of itself. The device is read only if the
// node has such arrays. A table with partitions that the kernel does not show is an error, see [Arrays.CheckShown].
func CheckCreated(ctx context.Context, sys sysfs.Root, n *node.Node, d block.Device) error {
	arrays, err := ArraysOf(n)
	if err != nil || !arrays.HasCreated() {
		return err
	}
	if err := arrays.CheckShown(ctx, sys, d); err != nil {
		return err
	}
	members, err := raid.Members(ctx, sys, d)
	if err != nil {
		return fmt.Errorf("find the RAID arrays of raid_config: %w", err)
	}
	for _, member := range members {
		if entry := arrays.Created(member.Superblock); entry != "" {
			return fmt.Errorf("%s is a member of %s, which Ironic created (%s): "+
				"choose another disk by root device hints, or remove the array",
				member.Device.Path, member.Superblock, entry)
		}
	}
	return nil
}

// Members returns the members of arrays among a device, its partitions and, if it is an assembled array, its
// components.
func Members(ctx context.Context, sys sysfs.Root, d block.Device) ([]raid.Member, error) {
	members, err := raid.Members(ctx, sys, d)
	if err != nil || !d.IsArray() {
		return members, err
	}
	components, err := block.Components(sys, d.Path)
	if err != nil {
		return nil, err
	}
	for _, path := range components {
		found, err := raid.Read(ctx, path)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			if s.Problem == nil {
				members = append(members, raid.Member{Device: d, Superblock: s}) // the whole device is this array
			}
		}
	}
	return members, nil
}
