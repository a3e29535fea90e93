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
)

// MapUUID returns the device mapper's UUID of a multipath map (a kernel name or device path), "" for any other device. The
// kernel makes no partitions of a map: they are maps of their own, whose UUID has "part" and their number in front, and
// which hold it as long as they are there.
func (s System) MapUUID(device string) string {
	uuid := s.text(s.Sys("class/block", kernelName(device), "dm/uuid"))
	if !strings.HasPrefix(strings.ToLower(uuid), "mpath-") {
		return ""
	}
	return uuid
}

// PartitionPath returns the device node of partition n of disk (a device path): the one the kernel knows, or where it
// knows none the one it would have. A "p" stands between disk and number where the disk's name ends in a digit (sda1,
// nvme0n1p1); the partitions of a multipath map are called after nothing at all (dm-7).
func (s System) PartitionPath(disk string, n int) string {
	if s.MapUUID(disk) != "" {
		if names, err := s.partitionNames(disk); err == nil && names[n] != "" {
			return nodePath(names[n])
		}
	}
	if last := len(disk) - 1; last >= 0 && strings.ContainsRune("0123456789", rune(disk[last])) {
		disk += "p"
	}
	return disk + strconv.Itoa(n)
}

// partitionNames returns the kernel's names of a disk's partitions by their numbers.
func (s System) partitionNames(disk string) (map[int]string, error) {
	dir := s.Sys("class/block", kernelName(disk))
	prefix, suffix := "", ""
	if uuid := s.MapUUID(disk); uuid != "" {
		dir, prefix, suffix = filepath.Join(dir, "holders"), "part", "-"+uuid
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("partitions of %s: %w", disk, err)
	}
	found := map[int]string{}
	for _, entry := range entries {
		text := s.text(filepath.Join(dir, entry.Name(), "partition"))
		if suffix != "" {
			text = s.text(s.Sys("class/block", entry.Name(), "dm/uuid"))
		}
		text, isPrefix := strings.CutPrefix(text, prefix)
		text, isSuffix := strings.CutSuffix(text, suffix)
		if n, err := strconv.Atoi(text); err == nil && n > 0 && isPrefix && isSuffix {
			found[n] = entry.Name()
		}
	}
	return found, nil
}

// Partitions lists the partitions the kernel knows of disk (a kernel name or device path), in the order of their
// numbers.
func (s System) Partitions(ctx context.Context, disk string) ([]Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	names, err := s.partitionNames(disk)
	if err != nil {
		return nil, err
	}
	var parts []Device
	for _, n := range slices.Sorted(maps.Keys(names)) {
		part, err := s.Device(names[n])
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		part.Number, part.Start = n, s.number(s.Sys("class/block", names[n], "start"), 0)*512
		parts = append(parts, part)
	}
	return parts, nil
}

// partitionNode returns the path of partition n, "" as long as there is no device node.
func (s System) partitionNode(disk string, n int) string {
	names, err := s.partitionNames(disk)
	if err != nil || names[n] == "" {
		return ""
	}
	path := nodePath(names[n])
	if !exists(s.Dev(path[len("/dev/"):])) {
		return ""
	}
	return path
}

// diskOf returns the kernel's name of the disk that a partition belongs to.
func (s System) diskOf(partition string) (string, error) {
	// A partition's folder lies below its disk's, a map is linked to what it is made of.
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
