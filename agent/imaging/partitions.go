package imaging

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"time"

	"ironroot/agent/fault"
	"ironroot/storage/block"
	"ironroot/storage/bootloader"
	"ironroot/storage/configdrive"
	"ironroot/storage/erase"
	"ironroot/storage/image"
	"ironroot/storage/image/device"
	"ironroot/storage/mkfs"
	"ironroot/storage/partition"
)

// Labels of the file systems that are created for a partition image.
const (
	labelESP       = "efi-part"
	labelSwap      = "swap1"
	labelEphemeral = "ephemeral0"
)

// partitionNames maps roles to the protocol's names of partitions.
var partitionNames = map[partition.Role]string{
	partition.RoleESP:         "efi system partition",
	partition.RoleBIOSBoot:    "BIOS Boot partition",
	partition.RolePReP:        "PReP Boot partition",
	partition.RoleEphemeral:   "ephemeral",
	partition.RoleSwap:        "swap",
	partition.RoleConfigDrive: "configdrive",
	partition.RoleRoot:        "root",
}

// partitioned is a disk laid out for a partition image.
type partitioned struct {
	disk   string
	layout partition.Layout
	paths  map[partition.Role]string
}

// preparePartitions creates the partition table and file systems, writes the config drive, and streams the image to
// the root partition. All checks precede the first write to the disk. If the image is already on the disk in the same
// layout and is not streamed, only the config drive is written again.
func (i *Imager) preparePartitions(
	ctx context.Context, disk block.Device, info ImageInfo, src image.Source, drive []byte,
) (outcome, error) {
	layout, err := i.plan(disk, info.Partition, drive)
	if err != nil {
		return outcome{}, err
	}
	now := written{id: info.ID, device: disk.Path, checksum: src.Checksum, partition: *info.Partition, layout: layout}
	d, err := i.present(ctx, now)
	if err != nil {
		return outcome{}, err
	}
	if d != nil {
		i.o.Log.Info("image is already on the disk, not written again", "image", info.ID, "device", disk.Path)
		if err := i.fillConfigDrive(ctx, d, drive); err != nil {
			i.forget()
			return outcome{}, err
		}
		o, err := i.finishPartitions(ctx, info, d, now)
		o.present = true
		return o, err
	}
	if err := image.Check(ctx, "the root partition", info.Partition.Root, src, i.imageOptions()); err != nil {
		return outcome{}, rootFault(disk.Path, info, err)
	}
	i.forget()
	if info.Partition.PreserveEphemeral {
		d, err = i.adopt(ctx, disk.Path, layout)
	} else {
		d, err = i.layOut(ctx, disk.Path, layout)
	}
	if err != nil {
		return outcome{}, err
	}
	if err := i.fill(ctx, d, info.Partition, drive); err != nil {
		return outcome{}, err
	}
	if err := i.stream(ctx, d.paths[partition.RoleRoot], info, src, i.imageOptions()); err != nil {
		return outcome{}, rootFault(disk.Path, info, err)
	}
	return i.finishPartitions(ctx, info, d, now)
}

// present returns the partitions of an image that is already on the disk. It returns nil if the image must be written:
// if another image was written last, or if the table or the file system of root or ESP has changed.
func (i *Imager) present(ctx context.Context, now written) (*partitioned, error) {
	if !i.isWritten(ctx, now) {
		return nil, nil //nolint:nilnil // documented
	}
	table, err := partition.Read(ctx, now.device)
	if err != nil {
		return nil, fault.Deployment("%w", err)
	}
	layout, err := now.layout.Adopt(table)
	if err != nil {
		return nil, fault.Deployment("%w", err)
	}
	d, err := i.locate(ctx, now.device, layout)
	if err != nil {
		return nil, err
	}
	uuids, err := d.uuids(ctx)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(uuids, i.PartitionUUIDs()) {
		i.o.Log.Info("file systems changed, image is written again", "device", now.device)
		return nil, nil //nolint:nilnil // documented
	}
	return d, nil
}

// plan computes the layout of the disk and checks that it and its file systems can be created.
func (i *Imager) plan(disk block.Device, p *PartitionInfo, drive []byte) (partition.Layout, error) {
	c, n := i.o.Config.Get(), i.o.Node.Get()
	uefi := BootsUEFI(n, bootloader.FirmwareIsUEFI(i.o.System))
	needs := partition.Needs{
		Scheme: TableScheme(n, uefi), UEFI: uefi, POWER: strings.HasPrefix(runtime.GOARCH, "ppc64"),
		ESP: c.DiskUtils.EFISystemPartitionSize, BIOSBoot: c.DiskUtils.BIOSBootPartitionSize,
		Ephemeral: p.Ephemeral, Swap: p.Swap, Root: p.Root,
	}
	sector := max(disk.LogicalSector, 512)
	if drive != nil {
		size, err := configdrive.Size(drive, sector, i.driveOptions())
		if err != nil {
			return partition.Layout{}, fault.Deployment("%w", err)
		}
		needs.ConfigDrive = size
	}
	for _, fs := range fileSystems(p, uefi) {
		if err := mkfs.Check(fs.kind, mkfs.Options{Label: fs.label}); errors.Is(err, mkfs.ErrUnsupported) {
			return partition.Layout{}, fault.FileSystemNotSupported(fs.kind, err)
		} else if err != nil {
			return partition.Layout{}, fault.Deployment("%s partition: %w", fs.role, err)
		}
	}
	layout, err := partition.Plan(needs)
	if err == nil && !p.PreserveEphemeral {
		err = layout.Fits(disk.Size, sector)
	}
	if err != nil {
		return partition.Layout{}, fault.Deployment("lay out %s for a partition image: %w", disk.Path, err)
	}
	return layout, nil
}

func (i *Imager) driveOptions() configdrive.Options {
	return configdrive.Options{Rebuild: i.o.Config.Get().ConfigDriveRebuild}
}

// layOut erases all metadata of partitions, RAID, volumes and file systems and creates the partition table.
func (i *Imager) layOut(ctx context.Context, disk string, layout partition.Layout) (*partitioned, error) {
	c := i.o.Config.Get().DiskPartitioner
	wait := erase.Wait{Interval: c.CheckDeviceInterval, Retries: c.CheckDeviceMaxRetries}
	if err := erase.Metadata(ctx, i.o.System, disk, wait); err != nil {
		return nil, fault.Deployment("%w", err)
	}
	table, err := partition.Create(ctx, disk, layout)
	if err != nil {
		return nil, fault.Deployment("%w", err)
	}
	if layout, err = layout.Adopt(table); err != nil { // fills in the UUIDs
		return nil, fault.Deployment("partition table of %s differs from what was written: %w", disk, err)
	}
	i.o.Log.Info("disk laid out", "device", disk, "scheme", layout.Scheme, "partitions", len(layout.Partitions))
	return i.locate(ctx, disk, layout)
}

// adopt returns the partitions of a disk that already has the layout. It does not write.
func (i *Imager) adopt(ctx context.Context, disk string, layout partition.Layout) (*partitioned, error) {
	table, err := partition.Read(ctx, disk)
	if err != nil {
		return nil, fault.Deployment("read layout for preserve_ephemeral, nothing was written: %w", err)
	}
	if layout, err = layout.Adopt(table); err != nil {
		return nil, fault.Deployment(
			"existing layout of %s does not match for preserve_ephemeral, nothing was written: %w", disk, err)
	}
	i.o.Log.Info("existing layout kept, ephemeral partition preserved", "device", disk, "scheme", layout.Scheme)
	return i.locate(ctx, disk, layout)
}

// locate makes the kernel read the partition table and waits for the partitions' device nodes.
func (i *Imager) locate(ctx context.Context, disk string, layout partition.Layout) (*partitioned, error) {
	if err := partition.Sync(ctx, i.o.System, disk); err != nil {
		return nil, fault.Deployment("%w", err)
	}
	attempts := max(1, i.o.Config.Get().DiskUtils.PartitionDetectionAttempts)
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(attempts)*time.Second, errNoNode)
	defer cancel()
	d := &partitioned{disk: disk, layout: layout, paths: map[partition.Role]string{}}
	for _, p := range layout.Partitions {
		path, err := block.WaitPartition(ctx, i.o.System, disk, p.Number)
		if err != nil {
			return nil, fault.Deployment("%s partition of %s: %w", p.Role, disk, err)
		}
		d.paths[p.Role] = path
	}
	return d, nil
}

var errNoNode = errors.New("no device node within disk_utils.partition_detection_attempts seconds")

// fileSystem describes a file system to create.
type fileSystem struct {
	role        partition.Role
	kind, label string
}

// fileSystems lists the file systems to create in addition to the image's.
func fileSystems(p *PartitionInfo, uefi bool) []fileSystem {
	var list []fileSystem
	if uefi {
		list = append(list, fileSystem{partition.RoleESP, "vfat", labelESP})
	}
	if p.Swap > 0 {
		list = append(list, fileSystem{partition.RoleSwap, "swap", labelSwap})
	}
	if p.Ephemeral > 0 && !p.PreserveEphemeral {
		list = append(list, fileSystem{partition.RoleEphemeral, p.EphemeralFormat, labelEphemeral})
	}
	return list
}

// fill creates the file systems and writes the config drive: the content of all partitions but root.
func (i *Imager) fill(ctx context.Context, d *partitioned, p *PartitionInfo, drive []byte) error {
	for _, fs := range fileSystems(p, d.layout.Find(partition.RoleESP) != nil) {
		path := d.paths[fs.role]
		if err := mkfs.Make(ctx, path, fs.kind, mkfs.Options{Label: fs.label}); err != nil {
			return fault.Deployment("%s partition: %w", fs.role, err)
		}
		i.o.Log.Info("file system made", "device", path, "format", fs.kind, "label", fs.label)
	}
	return i.fillConfigDrive(ctx, d, drive)
}

func (i *Imager) fillConfigDrive(ctx context.Context, d *partitioned, drive []byte) error {
	if drive == nil {
		return nil
	}
	path := d.paths[partition.RoleConfigDrive]
	if err := configdrive.WritePartition(ctx, i.o.System, path, drive, i.driveOptions()); err != nil {
		return fault.Deployment("%w", err)
	}
	i.o.Log.Info("config drive written", "device", path, "bytes", len(drive))
	return nil
}

// uuids returns the protocol's partition UUIDs (of root, ESP and PReP partition) and the paths of all partitions.
func (d *partitioned) uuids(ctx context.Context) (map[string]any, error) {
	paths, uuids := map[string]string{}, map[string]any{"efi system partition uuid": nil}
	for _, p := range d.layout.Partitions {
		path := d.paths[p.Role]
		paths[partitionNames[p.Role]] = path
		key := map[partition.Role]string{
			partition.RoleRoot: "root uuid", partition.RoleESP: "efi system partition uuid",
			partition.RolePReP: "PReP Boot partition uuid",
		}[p.Role]
		if key == "" {
			continue
		}
		found, err := block.Probe(ctx, path)
		if err != nil {
			return nil, fault.Deployment("UUID of the %s partition: %w", p.Role, err)
		}
		uuids[key] = p.UUID
		if found.UUID != "" {
			uuids[key] = found.UUID
		}
	}
	uuids["partitions"] = paths
	return uuids, nil
}

// finishPartitions records what was written and returns the result.
func (i *Imager) finishPartitions(ctx context.Context, info ImageInfo, d *partitioned, now written) (outcome, error) {
	uuids, err := d.uuids(ctx)
	if err != nil {
		return outcome{}, err
	}
	if now.table, err = partition.Read(ctx, d.disk); err != nil {
		return outcome{}, fault.Deployment("%w", err)
	}
	i.mu.Lock()
	i.uuids = uuids
	if !streams(info) {
		i.written = now
	}
	i.mu.Unlock()
	text := fmt.Sprintf("root_uuid=%s", uuids["root uuid"])
	if esp := uuids["efi system partition uuid"]; esp != nil && info.Partition.BootMode == "uefi" {
		text += fmt.Sprintf(" efi_system_partition_uuid=%s", esp)
	}
	return outcome{device: d.disk, uuids: text}, nil
}

// rootFault is imageFault for an image on the root partition. If the partition is too small, the request is wrong.
func rootFault(disk string, info ImageInfo, err error) error {
	var small *device.TooSmallError
	if errors.As(err, &small) {
		return fault.InvalidCommandParams(
			"root partition is too small for image %s: its virtual size is at least %d MB, root_mb is %d",
			info.ID, (small.Need+mebibyte-1)/mebibyte, info.Partition.Root/mebibyte)
	}
	return imageFault(info.ID, disk, err)
}
