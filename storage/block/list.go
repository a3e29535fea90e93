package block

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ironroot/internal/goroutine"
	"ironroot/storage/sysfs"
)

// ErrUnreadable is returned if the kernel's description of some disks could not be read. The list then contains the
// others.
var ErrUnreadable = errors.New("disk cannot be described")

// Lister lists disks. With an error that wraps [ErrUnreadable], the list contains the disks that could be read.
type Lister interface {
	Disks(ctx context.Context) ([]Device, error)
}

// MachineDisks is the [Lister] of all disks of a machine: see the function [Disks].
type MachineDisks struct {
	System sysfs.Root
}

// Disks implements [Lister].
func (m MachineDisks) Disks(ctx context.Context) ([]Device, error) { return Disks(ctx, m.System) }

// Disks lists the machine's disks sorted by device number, as lsblk does: devices of type disk, RAID arrays and
// multipath maps that have a size. It omits floppies, RAM disks of the kernel and of the firmware, optical drives, loop
// devices, partitions, logical volumes, encrypted mappings, the paths of a multipath map, and the boot and RPMB areas
// of an eMMC, which hold firmware of the board. With an error that wraps [ErrUnreadable], the list contains the disks
// that could be read.
func Disks(ctx context.Context, s sysfs.Root) ([]Device, error) {
	devices, err := describe(ctx, s, func(name string) bool { return isDisk(s, name) })
	paths := mapPaths(devices)
	return slices.DeleteFunc(devices, func(d Device) bool { return d.Size == 0 || paths[d.Name] }), err
}

// mapPaths returns the kernel names of the devices below the multipath maps in a list.
func mapPaths(devices []Device) map[string]bool {
	paths := map[string]bool{}
	for _, d := range devices {
		if d.Type == "mpath" && d.Size > 0 {
			for _, path := range d.Components {
				paths[path.Name] = true
			}
		}
	}
	return paths
}

// describe describes the block devices whose names are selected, sorted by device number. Root device hints select the
// first disk that matches. With an error that wraps [ErrUnreadable], the list contains those that could be described.
func describe(ctx context.Context, s sysfs.Root, selected func(name string) bool) ([]Device, error) {
	entries, err := os.ReadDir(s.Sys("block"))
	if err != nil {
		return nil, fmt.Errorf("list block devices: %w", err)
	}
	type result struct {
		device *Device // nil: not selected
		number [2]int64
		err    error
	}
	results := sysfs.Each(entries, func(entry fs.DirEntry) (r result) {
		name := entry.Name()
		err := goroutine.Catch(func() error { // a panic while one disk is described must not hide the others
			if !selected(name) {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			device, err := Find(s, name)
			r.device, r.number = &device, deviceNumber(s, name)
			return err
		})
		var caught *goroutine.PanicError
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return result{} // unplugged in the meantime
		case errors.As(err, &caught):
			err = fmt.Errorf("block device %s: %w", name, err)
		}
		r.err = err
		return r
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(results, func(a, b result) int { return slices.Compare(a.number[:], b.number[:]) })
	var devices []Device
	var unreadable []error
	for _, r := range results {
		switch {
		case r.err != nil:
			unreadable = append(unreadable, fmt.Errorf("%w: %w", ErrUnreadable, r.err))
		case r.device != nil:
			devices = append(devices, *r.device)
		}
	}
	return devices, errors.Join(unreadable...)
}

// deviceNumber returns the major and the minor number of a block device. One whose number cannot be read is the last.
func deviceNumber(s sysfs.Root, name string) (number [2]int64) {
	major, minor, _ := strings.Cut(readText(s, s.Sys("block", name, "dev")), ":")
	for i, text := range []string{major, minor} {
		var err error
		if number[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return [2]int64{math.MaxInt64}
		}
	}
	return number
}

// mmcArea matches the parts of an eMMC that hold no user data: two boot areas, and the replay protected memory block
// (JESD84-B51, 6.2). General purpose areas (mmcblk0gp0) are disks.
var mmcArea = regexp.MustCompile(`^mmcblk\d+(boot\d+|rpmb)$`)

func isDisk(s sysfs.Root, name string) bool {
	if mmcArea.MatchString(name) {
		return false
	}
	for _, prefix := range []string{"fd", "ram", "zram"} {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	// The paths below a native NVMe multipath device are hidden: they have no device node.
	if readText(s, s.Sys("block", name, "hidden")) == "1" {
		return false
	}
	kind := kindOf(s, name)
	return kind == "disk" || kind == "mpath" || isArray(kind)
}

// kindOf returns lsblk's name for the type of a block device, or RAMDisk.
func kindOf(s sysfs.Root, name string) string {
	dir := s.Sys("class/block", name)
	if exists(filepath.Join(dir, "partition")) {
		return "part"
	}
	switch {
	case strings.HasPrefix(name, "loop"):
		return "loop"
	case strings.HasPrefix(name, "dm-"):
		// The device mapper's UUID starts with its creator: "mpath-", "LVM-", "CRYPT-LUKS2-", "part1-mpath-".
		creator, _, _ := strings.Cut(strings.ToLower(readText(s, filepath.Join(dir, "dm/uuid"))), "-")
		if strings.HasPrefix(creator, "part") {
			return "part"
		}
		if creator == "" {
			return "dm"
		}
		return creator
	case strings.HasPrefix(name, "md"):
		if level := readText(s, filepath.Join(dir, "md/level")); level != "" {
			return strings.ToLower(level)
		}
		return "md"
	}
	if isFirmwareRAMDisk(s, name) {
		return RAMDisk
	}
	if kind, ok := scsiKinds[readText(s, filepath.Join(dir, "device/type"))]; ok {
		return kind
	}
	return "disk"
}

// scsiKinds are the peripheral device types of SPC-4, table 66, that have block devices but are not disks. As in
// lsblk, a host-managed zoned disk (20) is a disk.
var scsiKinds = map[string]string{"1": "tape", "4": "worm", "5": "rom", "7": "mo-disk", "14": "rbc"}

// Find describes a block device by its kernel name or device path. If the kernel does not know the device, the error
// wraps fs.ErrNotExist.
func Find(s sysfs.Root, name string) (Device, error) {
	name = kernelName(name)
	dir := s.Sys("class/block", name)
	sectors, err := s.Files.Read(filepath.Join(dir, "size"))
	if err != nil {
		return Device{}, fmt.Errorf("block device %s: %w", name, err)
	}
	count, err := strconv.ParseInt(strings.TrimSpace(string(sectors)), 10, 64)
	if err != nil {
		return Device{}, fmt.Errorf("block device %s: size: %w", name, err)
	}
	d := Device{
		Name: name, Path: nodePath(name), Type: kindOf(s, name),
		Size:      count * 512, // sysfs counts units of 512 bytes for every sector size
		ReadOnly:  readText(s, filepath.Join(dir, "ro")) == "1",
		Removable: readText(s, filepath.Join(dir, "removable")) == "1",
	}
	queue := filepath.Join(dir, "queue")
	if d.Type == "part" && !exists(queue) { // a partition of a map has a queue of its own
		queue = filepath.Join(dir, "..", "queue")
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			queue = filepath.Join(filepath.Dir(real), "queue")
		}
	}
	d.Rotational = readText(s, filepath.Join(queue, "rotational")) == "1"
	if zoned := readText(s, filepath.Join(queue, "zoned")); zoned != "none" {
		d.Zoned = zoned
	}
	d.LogicalSector = readNumber(s, filepath.Join(queue, "logical_block_size"), 512)
	d.PhysicalSector = readNumber(s, filepath.Join(queue, "physical_block_size"), d.LogicalSector)
	if d.Type != "part" {
		identify(s, &d)
	}
	return d, nil
}

// Components returns the device paths below an array or map (a kernel name or device path): disks and partitions, and
// the disks of these partitions.
func Components(s sysfs.Root, name string) ([]string, error) {
	name = kernelName(name)
	entries, err := os.ReadDir(s.Sys("class/block", name, "slaves"))
	if err != nil {
		return nil, fmt.Errorf("components of %s: %w", name, err)
	}
	var paths []string
	for _, entry := range entries {
		addUnique(&paths, nodePath(entry.Name()))
		if kindOf(s, entry.Name()) != "part" {
			continue
		}
		disk, err := diskOf(s, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("components of %s: %w", name, err)
		}
		addUnique(&paths, nodePath(disk))
	}
	return paths, nil
}

// kernelName converts a device path to a kernel name, with "!" for "/" as in sysfs (cciss!c0d0).
func kernelName(device string) string {
	return strings.ReplaceAll(strings.TrimPrefix(device, "/dev/"), "/", "!")
}

func nodePath(name string) string { return "/dev/" + strings.ReplaceAll(name, "!", "/") }

// readText reads a small sysfs attribute, "" if there is none or it cannot be read.
func readText(s sysfs.Root, file string) string {
	return trimText(readFile(s, file))
}

func trimText(data []byte) string { return strings.Trim(string(data), " \t\r\n\x00") }

func readNumber(s sysfs.Root, file string, fallback int64) int64 {
	n, err := strconv.ParseInt(readText(s, file), 10, 64)
	if err != nil {
		return fallback
	}
	return n
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// names returns the sorted names in a directory, nil if it cannot be read.
func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	return fileNames(entries)
}

func fileNames(entries []fs.DirEntry) []string {
	list := make([]string, 0, len(entries))
	for _, entry := range entries {
		list = append(list, entry.Name())
	}
	return list
}
