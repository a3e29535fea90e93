package bootloader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// ESPName is the name of the array with the EFI system partition, without the host.
const ESPName = "esp"

const (
	espPrefix  = "uefi-holder-"    // of the partitions' names on a GPT
	biosPrefix = "bios-boot-part-" // of the partitions' names on a GPT
	espSize    = 550 << 20
	biosSize   = 2 << 20
	alignment  = 1 << 20
	// The mirror has its superblocks at the end.
	mirrorLevel   = "raid1"
	mirrorVersion = "1.0"
)

// ArrayDisks are the disks of the members of a running array, for firmware that cannot read the array. Each disk gets a
// partition of its own to boot from, beside the array's member:
//
//   - for UEFI a member of a mirror with the EFI system partition. Its superblock is at the end (version 1.0), so that
//     the firmware reads each member alone as a FAT file system.
//   - for BIOS, on a disk with a GPT, a BIOS boot partition, in which GRUB keeps its core image.
//
// Names, sizes and types are the same as in ironic-python-agent, so that each can use the partitions of the other.
type ArrayDisks struct {
	Path  string   // device path of the array
	UUID  string   // of the array
	Disks []string // device paths of the disks, in the order of the members' roles, each of which gets GRUB for BIOS
	// Mirror is the device path of the mirror with the ESP while [ArrayDisks.UseESP] runs; "" otherwise.
	Mirror string

	sys sysfs.Root
	log *slog.Logger
}

// OpenArray finds the disks of a running array. It must be complete, and its members partitions of at least two disks.
// The error wraps [ErrArray] otherwise.
func OpenArray(ctx context.Context, sys sysfs.Root, array block.Device, log *slog.Logger) (*ArrayDisks, error) {
	a := &ArrayDisks{Path: array.Path, sys: sys, log: log}
	if err := a.findDisks(ctx); err != nil {
		return nil, fmt.Errorf("boot from array %s: %w", array.Path, err)
	}
	return a, nil
}

func (a *ArrayDisks) findDisks(ctx context.Context) error {
	arrays, err := raid.List(ctx, a.sys)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(arrays, func(other raid.Status) bool { return other.Path == a.Path })
	if at < 0 {
		return fmt.Errorf("%w: array not running", ErrArray)
	}
	found := arrays[at]
	members := slices.Clone(found.Slots)
	slices.SortFunc(members, func(a, b raid.Slot) int { return a.Role - b.Role })
	if found.Degraded > 0 || len(members) != found.Devices || len(members) > 0 && members[0].Role < 0 {
		return fmt.Errorf("%w: got %d of %d members in use", ErrArray,
			len(members)-max(0, found.Degraded), found.Devices)
	}
	for _, m := range members {
		d, err := block.Find(a.sys, m.Path)
		if err != nil {
			return err
		}
		if d.Type != "part" {
			return fmt.Errorf("%w: its member %s is not a partition", ErrArray, m.Path)
		}
		disk, err := block.DiskOf(a.sys, m.Path)
		if err != nil {
			return err
		}
		if !slices.Contains(a.Disks, disk) {
			a.Disks = append(a.Disks, disk)
		}
	}
	if len(a.Disks) < 2 {
		return fmt.Errorf("%w: its members are on one disk: %s", ErrArray, strings.Join(a.Disks, ", "))
	}
	superblocks, err := raid.Read(ctx, members[0].Path)
	if err != nil {
		return err
	}
	if len(superblocks) != 1 || superblocks[0].Problem != nil {
		return fmt.Errorf("%s has %d superblocks, want a valid one", members[0].Path, len(superblocks))
	}
	a.UUID = superblocks[0].UUID
	return nil
}

// CheckSpace returns an error that wraps [ErrArray] unless each disk has the partition to boot from, or the
// space for it. It only reads.
func (a *ArrayDisks) CheckSpace(ctx context.Context, uefi bool) error {
	for i := range a.Disks {
		var err error
		if uefi {
			_, err = a.place(ctx, i, espPartition(i))
		} else {
			_, err = a.placeBIOS(ctx, i)
		}
		if err != nil {
			return fmt.Errorf("boot from array %s: %w", a.Path, err)
		}
	}
	return nil
}

// espPartition is the partition of the ESP's mirror on a disk.
func espPartition(disk int) partition.Partition {
	return partition.Partition{Type: partition.TypeESP, Name: fmt.Sprint(espPrefix, disk), Size: espSize}
}

// place returns the partition of a disk that has the type of p and the first part of its name. If there is none, it
// returns p with the start of the first free space, and the number 0.
func (a *ArrayDisks) place(ctx context.Context, disk int, p partition.Partition) (partition.Partition, error) {
	table, err := partition.Read(ctx, a.Disks[disk])
	switch {
	case err != nil:
		return partition.Partition{}, err
	case table.Scheme != partition.GPT:
		return partition.Partition{}, fmt.Errorf("%w: %s: got partition table %s, want %s",
			ErrArray, a.Disks[disk], table.Scheme, partition.GPT)
	case table.Damaged:
		return partition.Partition{}, fmt.Errorf("%w: %s: the partition table is damaged",
			ErrArray, a.Disks[disk])
	}
	for _, other := range table.Partitions {
		// GRUB finds its partition by the type alone.
		if other.Type == p.Type && (p.Type == partition.TypeBIOSBoot || strings.HasPrefix(other.Name, espPrefix)) {
			return other, nil
		}
	}
	starts := []int64{alignment}
	for _, other := range table.Partitions {
		starts = append(starts, (other.Start+other.Size+alignment-1)/alignment*alignment)
	}
	slices.Sort(starts)
	for _, start := range starts {
		p.Start = start
		if p.Start+p.Size <= table.DiskSize-alignment &&
			!slices.ContainsFunc(table.Partitions, func(other partition.Partition) bool {
				return other.Start < p.Start+p.Size && p.Start < other.Start+other.Size
			}) {
			return p, nil
		}
	}
	return partition.Partition{}, fmt.Errorf("%w: %s has no free space of %d bytes for partition %s",
		ErrArray, a.Disks[disk], p.Size, p.Name)
}

// placeBIOS is place for a BIOS boot partition. A disk with an MBR needs none: GRUB uses the space before the first
// partition.
func (a *ArrayDisks) placeBIOS(ctx context.Context, disk int) (partition.Partition, error) {
	p := partition.Partition{Type: partition.TypeBIOSBoot, Name: fmt.Sprint(biosPrefix, disk), Size: biosSize}
	table, err := partition.Read(ctx, a.Disks[disk])
	if err == nil && table.Scheme == partition.MBR {
		return partition.Partition{}, nil
	}
	if err != nil {
		return partition.Partition{}, err
	}
	return a.place(ctx, disk, p)
}

// AddBIOSBoot adds a BIOS boot partition to each disk with a GPT that has none.
func (a *ArrayDisks) AddBIOSBoot(ctx context.Context) error {
	for i, disk := range a.Disks {
		p, err := a.placeBIOS(ctx, i)
		if err == nil && p.Start > 0 && p.Number == 0 {
			_, err = a.add(ctx, disk, p)
		}
		if err != nil {
			return fmt.Errorf("boot from array %s: %w", a.Path, err)
		}
	}
	return nil
}

// add adds a partition to a disk, waits for its device and removes what its space held.
func (a *ArrayDisks) add(ctx context.Context, disk string, p partition.Partition) (partition.Partition, error) {
	added, err := partition.Add(ctx, a.sys, disk, p)
	if err != nil {
		return partition.Partition{}, err
	}
	path, err := a.wait(ctx, disk, added.Number)
	if err != nil {
		return partition.Partition{}, err
	}
	if err := wipe(ctx, path); err != nil {
		return partition.Partition{}, err
	}
	a.log.Info("partition to boot from added", "device", path, "name", added.Name, "bytes", added.Size)
	return added, nil
}

// wait waits until the kernel shows a partition, and returns its path.
func (a *ArrayDisks) wait(ctx context.Context, disk string, number int) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, nodeTimeout, errors.New("partition did not appear"))
	defer cancel()
	return block.WaitPartition(ctx, a.sys, disk, number)
}
