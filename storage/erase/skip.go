package erase

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// ReadOnly reports whether the kernel rejects writes to a device. name is its kernel name or path.
func ReadOnly(sys sysfs.Root, name string) (bool, error) {
	device, err := block.Find(sys, name)
	if err != nil {
		return false, err
	}
	return device.ReadOnly, nil
}

// floppyLabel is the label of the conductor's virtual floppy with the agent's parameters.
const floppyLabel = "ir-vfd-dev"

// maxFloppySize is the largest size in bytes of the conductor's floppy. Ironic makes floppies of 100 KiB.
const maxFloppySize = 64 << 20

// ParametersFloppy reports whether the device is the conductor's virtual floppy: a virtual medium of at most 64 MiB
// with the file system label ir-vfd-dev. The label alone does not suffice: a previous tenant could label a disk, or a
// USB stick that stays in the machine, to prevent its erasure.
func ParametersFloppy(ctx context.Context, sys sysfs.Root, device block.Device) (bool, error) {
	if medium, err := block.IsVirtualMedia(sys, device.Name); err != nil || !medium || device.Size > maxFloppySize {
		return false, err
	}
	found, err := block.Probe(ctx, device.Path)
	if err != nil {
		return false, err
	}
	return strings.EqualFold(found.Label, floppyLabel), nil
}

// withPartitions returns the paths of a disk and of its partitions that the kernel knows.
func withPartitions(ctx context.Context, sys sysfs.Root, device string) ([]string, error) {
	paths := []string{device}
	parts, err := block.Partitions(ctx, sys, device)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		paths = append(paths, part.Path)
	}
	return paths, nil
}

// sharedTypes are the partition types of file systems that other machines can have mounted.
var sharedTypes = map[string]string{
	"37AFFC90-EF7D-4E96-91C3-2D7AE055B174": "GPFS",
	"AA31E02A-400F-11DB-9590-000C2911D1B8": "VMFS",
	"0xfb":                                 "VMFS",
}

// Guard returns an error that wraps ErrProtected and names the finding if a shared file system (GPFS, VMFS, gfs2) is
// on a disk or on a partition that its table names or the kernel knows. GPFS and VMFS are recognised by partition
// types, which only GPT and MBR have. In partitions of other tables, which the kernel knows, Guard looks for gfs2. A
// disk that cannot be read is another error. Callers check all disks before they erase the first.
func Guard(ctx context.Context, sys sysfs.Root, device string) error {
	if err := guard(ctx, sys, device); err != nil {
		return fmt.Errorf("%s: %w", device, err)
	}
	return nil
}

func guard(ctx context.Context, sys sysfs.Root, device string) error {
	paths, err := withPartitions(ctx, sys, device)
	if err != nil {
		return err
	}
	table, err := partition.ReadAll(ctx, device)
	if errors.Is(err, partition.ErrNoTable) {
		table = &partition.Table{}
	} else if err != nil {
		return err
	}
	for _, p := range table.Partitions {
		for kind, name := range sharedTypes {
			if strings.EqualFold(p.Type, kind) {
				return fmt.Errorf("%w: partition %d is of type %s", ErrProtected, p.Number, name)
			}
		}
	}
	for _, path := range paths {
		if err := guardDevice(ctx, path); err != nil {
			return err
		}
	}
	return guardTable(ctx, device, table)
}

// guardDevice looks for a shared file system on a disk or partition.
func guardDevice(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	kind, err := block.SharedFileSystem(f)
	if err != nil {
		return fmt.Errorf("probe %s: %w", path, err)
	}
	if kind != "" {
		return fmt.Errorf("%w: %s on %s", ErrProtected, kind, path)
	}
	return nil
}

// guardTable looks for shared file systems in all partitions that the table names: the kernel does not show them if
// only the backup of a GPT is intact.
func guardTable(ctx context.Context, device string, table *partition.Table) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	for _, p := range table.Partitions {
		if err := ctx.Err(); err != nil {
			return err
		}
		kind, err := block.SharedFileSystem(io.NewSectionReader(f, p.Start, p.Size))
		if err != nil {
			return fmt.Errorf("probe partition %d: %w", p.Number, err)
		}
		if kind != "" {
			return fmt.Errorf("%w: %s on partition %d", ErrProtected, kind, p.Number)
		}
		timelimit.Progress(ctx)
	}
	return nil
}
