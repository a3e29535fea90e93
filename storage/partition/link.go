package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// ErrNoLink is returned for a link that matches no device.
var ErrNoLink = errors.New("no device has this link")

// FindLink returns the path of the disk or partition that a link of udev such as /dev/disk/by-label/root names. It
// searches disks and their partitions. The error wraps ErrNoLink if no device matches. Several matches are an error,
// because udev can link to any of them. A device that cannot be read does not match by label or UUID.
func FindLink(ctx context.Context, s sysfs.Root, disks []block.Device, link string) (string, error) {
	kind, name, ok := strings.Cut(strings.TrimPrefix(link, block.LinkDir), "/")
	if !ok || name == "" || !strings.HasPrefix(link, block.LinkDir) {
		return "", fmt.Errorf("find device %s: %w", link, ErrNoLink)
	}
	var found []string
	var unread error
	for _, d := range disks {
		parts, err := block.Partitions(ctx, s, d.Path)
		unread = errors.Join(unread, err)
		has, err := hasLink(ctx, d, d.Path, Partition{}, kind, name)
		unread = errors.Join(unread, err)
		if has {
			found = append(found, d.Path)
		}
		table := &Table{}
		if len(parts) > 0 && (kind == "by-partlabel" || kind == "by-partuuid") {
			if table, err = Read(ctx, d.Path); err != nil {
				unread = errors.Join(unread, err)
				continue
			}
		}
		for _, part := range parts {
			entry := Partition{Number: part.Number}
			i := slices.IndexFunc(table.Partitions, func(p Partition) bool { return p.Number == part.Number })
			if i >= 0 {
				entry = table.Partitions[i]
			}
			has, err := hasLink(ctx, d, part.Path, entry, kind, name)
			unread = errors.Join(unread, err)
			if has {
				found = append(found, part.Path)
			}
		}
	}
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case len(found) == 0:
		return "", errors.Join(fmt.Errorf("find device %s: %w", link, ErrNoLink), unread)
	case len(found) > 1:
		return "", fmt.Errorf("find device %s: got several devices, want one: %s", link, strings.Join(found, ", "))
	}
	return found[0], nil
}

// hasLink reports whether udev links to a device by a name of a kind such as "by-label". The device is the partition p
// of a disk, or the disk itself if p has no number.
func hasLink(ctx context.Context, disk block.Device, path string, p Partition, kind, name string) (bool, error) {
	switch kind {
	case "by-partuuid":
		return p.UUID == name, nil
	case "by-partlabel":
		return block.LinkLabel(p.Name) == name, nil
	case "by-label", "by-uuid":
		fs, err := block.Probe(ctx, path)
		if err != nil {
			return false, err
		}
		switch fs.Type {
		case "linux_raid_member", "lvm2-pv": // they have the name and UUID of an array or a physical volume
			return false, nil
		}
		if kind == "by-uuid" {
			return fs.UUID == name, nil
		}
		return block.LinkLabel(fs.Label) == name, nil
	}
	if p.Number > 0 {
		name, ok := strings.CutSuffix(name, fmt.Sprintf("-part%d", p.Number))
		return ok && slices.Contains(disk.Links(), block.LinkDir+kind+"/"+name), nil
	}
	return slices.Contains(disk.Links(), block.LinkDir+kind+"/"+name), nil
}
