package softraid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/storage/bootloader"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// volumeName is the key of an entry of skip_block_devices or raid_config with the name of a RAID array.
const volumeName = "volume_name"

// Rules are the arrays that a node object names: those that skip_block_devices protects, and those that Ironic created
// (raid_config).
type Rules struct {
	protected []string // names
	created   []Volume
	config    *configuration // raid_config; nil for no node
}

// RulesOf returns the arrays that a node names. A nil node names none. An entry that cannot be parsed is an error,
// because it may protect an array. A level or size that cannot be parsed counts as unknown.
func RulesOf(n *node.Node) (Rules, error) {
	var r Rules
	if n == nil {
		return r, nil
	}
	err := r.protect(n)
	value := n.Raw()["raid_config"]
	config, ok := value.(map[string]any)
	r.config = parse(config, r.HasProtected())
	if value != nil && !ok {
		r.config.malformed = errors.New("raid_config is not an object")
	}
	r.created = slices.DeleteFunc(slices.Clone(r.config.volumes), func(v Volume) bool {
		return !strings.EqualFold(v.controller, softwareController)
	})
	return r, cmp.Or(err, r.config.malformed)
}

// protect adds the names of skip_block_devices.
func (r *Rules) protect(n *node.Node) error {
	skipped, err := n.SkipBlockDevices()
	if err != nil {
		return err
	}
	for i, entry := range skipped {
		value, ok := entry[volumeName]
		if !ok {
			continue
		}
		name, ok := value.(string)
		if !ok || name == "" {
			return fmt.Errorf("entry %d of skip_block_devices: %s: got %#v, want a name", i+1, volumeName, value)
		}
		r.protected = append(r.protected, name)
	}
	return nil
}

// HasProtected reports whether skip_block_devices protects an array by its name.
func (r Rules) HasProtected() bool { return len(r.protected) > 0 }

// HasCreated reports whether Ironic has created arrays.
func (r Rules) HasCreated() bool { return len(r.created) > 0 }

// IsEmpty reports whether the node names no array: none is protected, and Ironic has created none.
func (r Rules) IsEmpty() bool { return len(r.protected) == 0 && len(r.created) == 0 }

// Protected reports whether skip_block_devices protects the array of a superblock by its name. The superblock must be
// valid. If raid_config has an array of that name, its level and size must be the same. Other arrays can have the same
// name: see [Rules.CheckNames].
func (r Rules) Protected(s md.Superblock) bool {
	if s.Problem != nil || !slices.ContainsFunc(r.protected, func(name string) bool { return hasName(s, name) }) {
		return false
	}
	for _, v := range r.created {
		if hasName(s, v.Name) && !v.fits(s) {
			return false
		}
	}
	return true
}

// CheckName returns an error if an array has a name that skip_block_devices protects, and raid_config has another array
// of that name, so that the array of the superblock is not protected.
func (r Rules) CheckName(s md.Superblock) error {
	if s.Problem == nil && !r.Protected(s) &&
		slices.ContainsFunc(r.protected, func(name string) bool { return hasName(s, name) }) {
		return fmt.Errorf("skip_block_devices protects %s by its name, but level or size differ from raid_config", s)
	}
	return nil
}

// Unmatched returns the names that skip_block_devices protects and no member has.
func (r Rules) Unmatched(members []raid.Member) []string {
	var unmatched []string
	for _, name := range r.protected {
		if !slices.ContainsFunc(members, func(m raid.Member) bool {
			return hasName(m.Superblock, name) && r.Protected(m.Superblock)
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

// CheckNames compares the members on all disks: those that a name protects must pass [raid.Array.CheckConsistent]. An
// error contains the name, and devices with the UUIDs of their arrays.
func (r Rules) CheckNames(members []raid.Member) NameErrors {
	var errs NameErrors
	for _, name := range r.protected {
		named := slices.DeleteFunc(slices.Clone(members), func(m raid.Member) bool {
			return !hasName(m.Superblock, name) || !r.Protected(m.Superblock)
		})
		if err := raid.Array(named).CheckConsistent(); err != nil {
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

// Created returns a description of the entry of raid_config that can be the array of a superblock, "" if there is
// none. An entry with a volume_name is compared by the name, or by the level if the array has no name; an entry
// without one by the level. The mirror with the EFI system partition has no
// entry.
func (r Rules) Created(s md.Superblock) string {
	if s.Problem != nil || isESP(s) {
		return ""
	}
	for _, v := range r.created {
		sameLevel := v.Level == "" || v.Level == s.Level
		if hasName(s, v.Name) || sameLevel && (v.Name == "" || s.Name == "") {
			if v.Name == "" {
				return fmt.Sprintf("logical disk %d of raid_config", v.entry)
			}
			return fmt.Sprintf("logical disk %d of raid_config, volume_name %q", v.entry, v.Name)
		}
	}
	return ""
}

// CheckShown returns an error if the partition table of a device names partitions that the kernel does not show, and
// the node object names arrays: a hidden partition can be a member of one, and [Members] does not find it.
func (r Rules) CheckShown(ctx context.Context, sys sysfs.Root, d block.Device) error {
	if r.IsEmpty() {
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
	return s.ShortName() == bootloader.ESPName && s.Level == "raid1" && s.Version == "1.0"
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

// fits reports whether an array has the level and the size of an entry. The size of an entry is the size of the
// partition of each member, which also has space for booting and for metadata, or the size of the array. Ironic rounds
// sizes to GiB on each member.
func (v Volume) fits(s md.Superblock) bool {
	if v.Level != "" && v.Level != s.Level {
		return false
	}
	near := func(size, tolerance int64) bool { return max(v.Size-size, size-v.Size) <= tolerance }
	return v.Size == 0 || near(s.DataSize, 1<<30) || near(s.ArraySize, int64(s.Devices)<<30)
}

// WithoutProtected returns the devices that are not part of a RAID array that the node's skip list protects by
// its name. It omits disks with a member on them or on one of their partitions, and the array itself. The devices are
// read only if the list has such an entry. A device that cannot be read is an error then.
func WithoutProtected(
	ctx context.Context, sys sysfs.Root, n *node.Node, devices []block.Device,
) ([]block.Device, error) {
	rules, err := RulesOf(n)
	if err != nil {
		return nil, err
	}
	if !rules.HasProtected() {
		return devices, nil
	}
	kept := make([]block.Device, 0, len(devices))
	for _, d := range devices {
		if err := rules.CheckShown(ctx, sys, d); err != nil {
			return nil, fmt.Errorf("find the RAID arrays of skip_block_devices: %w", err)
		}
		members, err := Members(ctx, sys, d)
		if err != nil {
			return nil, fmt.Errorf("find the RAID arrays of skip_block_devices: %w", err)
		}
		if !slices.ContainsFunc(members, func(m raid.Member) bool { return rules.Protected(m.Superblock) }) {
			kept = append(kept, d)
		}
	}
	return kept, nil
}

// CheckCreated returns an error if a device or one of its partitions is a member of an array that Ironic created:
// writing to it would destroy the array. An assembled array is not a member of itself. The device is read only if the
// node has such arrays. A table with partitions that the kernel does not show is an error, see [Rules.CheckShown].
func CheckCreated(ctx context.Context, sys sysfs.Root, n *node.Node, d block.Device) error {
	rules, err := RulesOf(n)
	if err != nil || !rules.HasCreated() {
		return err
	}
	if err := rules.CheckShown(ctx, sys, d); err != nil {
		return err
	}
	members, err := raid.Members(ctx, sys, d)
	if err != nil {
		return fmt.Errorf("find the RAID arrays of raid_config: %w", err)
	}
	for _, member := range members {
		if entry := rules.Created(member.Superblock); entry != "" {
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
				// The whole device is this array.
				members = append(members, raid.Member{Device: d, Disk: d, Superblock: s})
			}
		}
	}
	return members, nil
}

// Unprotected returns the devices that the node's skip list does not protect, neither by an entry nor by the name of a
// RAID array. A device that the list may protect is an error, see [node.SkipList.CheckRead] and [WithoutProtected].
func Unprotected(
	ctx context.Context, sys sysfs.Root, n *node.Node, devices []block.Device,
) ([]block.Device, error) {
	skips, err := node.NewSkipList(n)
	if err != nil {
		return nil, err
	}
	if devices, err = skips.Without(devices); err != nil {
		return nil, err
	}
	for _, d := range devices {
		if err := skips.CheckRead(d); err != nil {
			return nil, fmt.Errorf("disk %s: %w", d.Path, err)
		}
	}
	return WithoutProtected(ctx, sys, n, devices)
}
