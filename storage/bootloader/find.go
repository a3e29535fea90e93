package bootloader

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// findRoot returns the device of the disk's partition with the UUID, otherwise the one with that label. If the disk has
// neither, it returns the device with the UUID among the disks, maps and arrays of others; nil has none. The programs
// of a root that is found there run, and its files are changed.
func findRoot(
	ctx context.Context, sys sysfs.Root, others block.Lister, disk string, table *partition.Table, uuid string,
) (string, error) {
	device, unread, err := findPartition(ctx, sys, disk, table, uuid)
	if err != nil || device != "" {
		return device, err
	}
	if others != nil {
		disks, err := others.Disks(ctx)
		if err != nil && !errors.Is(err, block.ErrUnreadable) {
			return "", fmt.Errorf("find UUID %s: %w", uuid, err)
		}
		unread = errors.Join(unread, err)
		device, err = findAnywhere(ctx, sys, disks, disk, uuid)
		if err != nil || device != "" {
			return device, err
		}
	}
	return "", errors.Join(fmt.Errorf("%w: none of %d partitions on %s, and no other device, has the UUID %s",
		ErrNoRoot, len(table.Partitions), disk, uuid), unread)
}

// findPartition searches the partitions of a disk and returns "" if none matches. unread names those that could not be
// read.
func findPartition(
	ctx context.Context, sys sysfs.Root, disk string, table *partition.Table, uuid string,
) (found string, unread, err error) {
	labelled := ""
	for _, p := range table.Partitions {
		device := block.PartitionPath(sys, disk, p.Number)
		if strings.EqualFold(p.UUID, uuid) {
			return device, nil, nil
		}
		fs, err := block.Probe(ctx, device)
		switch {
		case ctx.Err() != nil:
			return "", nil, ctx.Err()
		case err != nil:
			unread = errors.Join(unread, err)
		case strings.EqualFold(fs.UUID, uuid):
			return device, nil, nil
		case fs.Label == uuid:
			labelled = device
		}
	}
	return labelled, unread, nil
}

// findAnywhere searches disks for a file system with the UUID and then for a partition with it, as findfs(8) does.
// It omits the partitions of disk. It returns "" if there is none. Two devices with the same UUID are an error.
// Devices that cannot be read are skipped.
func findAnywhere(ctx context.Context, sys sysfs.Root, disks []block.Device, disk, uuid string) (string, error) {
	var systems, partitions []string
	for _, d := range disks {
		if fs, err := block.Probe(ctx, d.Path); err == nil && strings.EqualFold(fs.UUID, uuid) {
			systems = append(systems, d.Path)
		}
		if d.Path == disk {
			continue
		}
		table, err := partition.Read(ctx, d.Path)
		if err != nil {
			continue
		}
		for _, p := range table.Partitions {
			device := block.PartitionPath(sys, d.Path, p.Number)
			if fs, err := block.Probe(ctx, device); err == nil && strings.EqualFold(fs.UUID, uuid) {
				systems = append(systems, device)
			} else if strings.EqualFold(p.UUID, uuid) {
				partitions = append(partitions, device)
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	for _, found := range [][]string{systems, partitions} {
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return "", fmt.Errorf("%w: UUID %s belongs to several devices: %s",
				ErrNoRoot, uuid, strings.Join(found, ", "))
		}
	}
	return "", nil
}

// findMount returns the partition of the disk that the first field of an fstab line (source) refers to.
func findMount(
	ctx context.Context, sys sysfs.Root, disk string, table *partition.Table, source string,
) (string, error) {
	if strings.HasPrefix(source, block.LinkDir) {
		return partition.FindLink(ctx, sys, []block.Device{{Path: disk}}, source)
	}
	tag, value, _ := strings.Cut(source, "=")
	value = strings.Trim(value, `"`)
	for _, p := range table.Partitions {
		device := block.PartitionPath(sys, disk, p.Number)
		got := ""
		switch tag {
		case "PARTUUID":
			got = p.UUID
		case "PARTLABEL":
			got = p.Name
		case "UUID", "LABEL":
			fs, err := block.Probe(ctx, device)
			if err != nil {
				return "", err
			}
			if got = fs.UUID; tag == "LABEL" {
				got = fs.Label
			}
		default:
			got, value = device, source
		}
		if value != "" && (got == value || strings.HasSuffix(tag, "UUID") && strings.EqualFold(got, value)) {
			return device, nil
		}
	}
	return "", fmt.Errorf("none of %d partitions on %s is %s", len(table.Partitions), disk, source)
}
