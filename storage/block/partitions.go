package block

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ironroot/storage/sysfs"
)

// MapUUID returns the device mapper's UUID of a multipath map (a kernel name or device path), "" for any other device.
// The kernel creates no partitions of a map: they are maps of their own that hold it open. Their UUIDs are the map's
// with "part", the number and "-" in front.
func MapUUID(s sysfs.Root, device string) string {
	uuid := readText(s, s.Sys("class/block", kernelName(device), "dm/uuid"))
	if !strings.HasPrefix(strings.ToLower(uuid), "mpath-") {
		return ""
	}
	return uuid
}

// PartitionPath returns the device node of partition n of disk (a device path): the one that the kernel knows,
// otherwise the one that it would create. If the disk's name ends in a digit, a "p" precedes the number (sda1,
// nvme0n1p1). The names of a multipath map's partitions do not depend on the map's (dm-7).
func PartitionPath(s sysfs.Root, disk string, n int) string {
	if MapUUID(s, disk) != "" {
		if names, err := partitionNames(s, disk); err == nil && names[n] != "" {
			return nodePath(names[n])
		}
	}
	if last := len(disk) - 1; last >= 0 && strings.ContainsRune("0123456789", rune(disk[last])) {
		disk += "p"
	}
	return disk + strconv.Itoa(n)
}

// partitionNames returns the kernel names of a disk's partitions by number.
func partitionNames(s sysfs.Root, disk string) (map[int]string, error) {
	dir := s.Sys("class/block", kernelName(disk))
	prefix, suffix := "", ""
	if uuid := MapUUID(s, disk); uuid != "" {
		dir, prefix, suffix = filepath.Join(dir, "holders"), "part", "-"+uuid
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("partitions of %s: %w", disk, err)
	}
	found := map[int]string{}
	for _, entry := range entries {
		text := readText(s, filepath.Join(dir, entry.Name(), "partition"))
		if suffix != "" {
			text = readText(s, s.Sys("class/block", entry.Name(), "dm/uuid"))
		}
		text, isPrefix := strings.CutPrefix(text, prefix)
		text, isSuffix := strings.CutSuffix(text, suffix)
		if n, err := strconv.Atoi(text); err == nil && n > 0 && isPrefix && isSuffix {
			found[n] = entry.Name()
		}
	}
	return found, nil
}

// Partitions lists the partitions of disk (a kernel name or device path) that the kernel knows, by number.
func Partitions(ctx context.Context, s sysfs.Root, disk string) ([]Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	names, err := partitionNames(s, disk)
	if err != nil {
		return nil, err
	}
	var parts []Device
	for _, n := range slices.Sorted(maps.Keys(names)) {
		part, err := Find(s, names[n])
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		part.Number, part.Start = n, readNumber(s, s.Sys("class/block", names[n], "start"), 0)*512
		parts = append(parts, part)
	}
	return parts, nil
}

// partitionNode returns the path of partition n, "" while it has no device node.
func partitionNode(s sysfs.Root, disk string, n int) string {
	names, err := partitionNames(s, disk)
	if err != nil || names[n] == "" {
		return ""
	}
	path := nodePath(names[n])
	if !exists(s.Dev(path[len("/dev/"):])) {
		return ""
	}
	return path
}

// DiskOf returns the device path of the disk that a partition (a kernel name or device path) belongs to.
func DiskOf(s sysfs.Root, partition string) (string, error) {
	name, err := diskOf(s, kernelName(partition))
	if err != nil {
		return "", fmt.Errorf("disk of %s: %w", partition, err)
	}
	return nodePath(name), nil
}

// diskOf returns the kernel name of the disk that a partition belongs to.
func diskOf(s sysfs.Root, partition string) (string, error) {
	// A partition's directory is below its disk's; a map has links to the devices below it.
	dir := s.Sys("class/block", partition)
	if below := names(filepath.Join(dir, "slaves")); len(below) > 0 {
		return below[0], nil
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	return filepath.Base(filepath.Dir(real)), nil
}
