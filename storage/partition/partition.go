package partition

import (
	"context"
	"errors"
	"fmt"
	"os"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// ErrNoTable is returned if a device has no valid partition table.
var ErrNoTable = errors.New("no partition table")

// Schemes of partition tables.
const (
	GPT = "gpt"
	MBR = "mbr"
)

// Partition types.
const (
	TypeESP        = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B" // GPT: EFI system partition
	TypeLinux      = "0FC63DAF-8483-4772-8E79-3D69D8477DE4" // GPT: Linux file system
	TypeBIOSBoot   = "21686148-6449-6E6F-744E-656564454649" // GPT: BIOS boot partition, for GRUB
	TypePReP       = "9E1A2D38-C612-4316-AA26-8B49521E5A8B" // GPT: PReP boot partition, for POWER machines
	TypeSwap       = "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F" // GPT: Linux swap
	TypeLVM        = "E6D6D379-F507-44C2-A23C-238F2A3DF928" // GPT: physical volume of Linux LVM
	TypeMBRESP     = "0xef"
	TypeMBRFAT32   = "0x0c"
	TypeMBRLinux   = "0x83"
	TypeMBRLVM     = "0x8e"
	typeProtective = 0xee
)

// Partition is an entry of a table.
type Partition struct {
	Number     int
	Type       string // GPT: upper-case type GUID; MBR: "0x0c"
	UUID       string // the kernel's PARTUUID: for GPT a lower-case GUID, for MBR disk id and number, "deadbeef-01"
	Name       string // GPT only
	Attributes uint64 // GPT only: the attribute bits of the entry
	Boot       bool   // MBR: active flag; GPT: legacy BIOS bootable (attribute bit 2)
	Start      int64  // bytes from the start of the disk
	Size       int64  // bytes
}

// Extended reports whether p is the entry of an MBR that contains the logical partitions.
func (p Partition) Extended() bool { return isExtended(p.Type) }

// Table is a partition table.
type Table struct {
	Scheme          string // GPT or MBR
	DiskID          uint32 // bytes 440 to 443 of the MBR or of the GPT's protective MBR
	GUID            string // GPT: disk GUID, lower-case
	SectorSize      int64  // bytes
	DiskSize        int64  // bytes
	Damaged         bool   // GPT: the primary or the backup is broken
	BackupMisplaced bool   // GPT: the backup header is not in the disk's last sector
	// Unusual is set if the entries of a GPT are not where partitioning tools put them: 16 KiB after the first header
	// and before the second.
	Unusual    bool
	Partitions []Partition
	// LogicalTables are the offsets in bytes of the sectors in extended partitions that name the logical ones (EBR),
	// in the order of their chain. Like Linux, Read stops after 100 of them in a row without a partition, and after
	// partition number 255.
	LogicalTables []int64
}

// Read reads the partition table of a device or image file. The error wraps ErrNoTable if there is none.
func Read(ctx context.Context, device string) (*Table, error) {
	return readBy(ctx, device, (*disk).read)
}

// ReadAll reads the partition table of a device or image file, even if it is not valid. It is for callers that must
// not miss a partition, and not for those that change the table.
//
// Unlike in Read, an invalid entry of an MBR does not hide the others. Each entry counts that has a size and starts on
// the disk, regardless of its status and type and of any text in the sector. A protective entry can start anywhere. If
// an MBR has one but neither GPT can be read, the other entries count. The error wraps ErrNoTable if no entry counts,
// or if a file system without partitions spans the device.
func ReadAll(ctx context.Context, device string) (*Table, error) {
	return readBy(ctx, device, (*disk).allEntries)
}

func readBy(ctx context.Context, device string, read func(*disk, context.Context) (*Table, error)) (*Table, error) {
	d, err := open(ctx, device, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer d.file.Close() //nolint:errcheck // only read
	table, err := read(d, ctx)
	if err != nil {
		return nil, fmt.Errorf("partition table of %s: %w", device, err)
	}
	return table, nil
}

// RepairBackup moves the backup header and table of a GPT to the end of the disk if they are not there, as sgdisk -e
// does. It updates the last usable LBA, both headers and the protective MBR's size. It reports whether it wrote
// anything.
//
// A device without a GPT is not changed and is not an error. Neither is a GPT whose primary is broken: moving the only
// valid copy could lose it.
func RepairBackup(ctx context.Context, device string) (moved bool, err error) {
	d, err := open(ctx, device, os.O_RDWR)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, d.file.Close()) }()
	table, err := d.read(ctx)
	if errors.Is(err, ErrNoTable) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("partition table of %s: %w", device, err)
	}
	if table.Scheme != GPT || !table.BackupMisplaced {
		return false, nil
	}
	g, err := d.primary()
	if err != nil {
		return false, nil //nolint:nilerr // a broken primary is not an error: documented above
	}
	if err := d.relocate(g); err != nil {
		return false, fmt.Errorf("move the backup GPT of %s: %w", device, err)
	}
	return true, nil
}

// Add adds a partition to the table and to the kernel's list, and returns the entry as written. Start 0 means the last
// Size usable bytes, on an MBR below 2^32 sectors. The start is rounded down to a MiB. Number 0 means the first free
// one. An empty Type means a Linux file system, an empty UUID on a GPT a random one. A misplaced backup GPT is moved
// first.
func Add(ctx context.Context, sys sysfs.Root, device string, p Partition) (added Partition, err error) {
	d, err := open(ctx, device, os.O_RDWR)
	if err != nil {
		return Partition{}, err
	}
	added, err = d.add(ctx, p)
	if err = errors.Join(err, d.file.Close()); err != nil {
		return Partition{}, fmt.Errorf("add a partition to %s: %w", device, err)
	}
	if !d.isDevice {
		return added, nil
	}
	if block.MapUUID(sys, device) != "" {
		return added, Sync(ctx, sys, device)
	}
	// Adding a single partition does not affect the others, which may be in use.
	if err := block.AddPartition(device, added.Number, added.Start, added.Size); err != nil {
		if err2 := block.Rescan(ctx, device); err2 != nil {
			return added, errors.Join(err, err2)
		}
	}
	return added, nil
}

// disk is an open device with its geometry.
type disk struct {
	file     *os.File
	size     int64 // bytes
	sector   int64 // bytes
	isDevice bool
}

func open(ctx context.Context, device string, flag int) (*disk, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(device, flag, 0)
	if err != nil {
		return nil, err
	}
	d := &disk{file: file}
	if d.size, d.sector, err = block.Geometry(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	d.isDevice = d.sector != 0
	if !d.isDevice {
		d.sector = d.guessSector()
	}
	if d.size < 4*d.sector {
		return nil, errors.Join(fmt.Errorf("%s: %w: %d bytes hold none", device, ErrNoTable, d.size), file.Close())
	}
	return d, nil
}

// guessSector determines the sector size of an image file from the position of its GPT header.
func (d *disk) guessSector() int64 {
	for _, sector := range []int64{512, 4096, 2048, 1024} {
		if d.hasSignature(sector) {
			return sector
		}
	}
	return 512
}

func (d *disk) hasSignature(offset int64) bool {
	signature := make([]byte, 8)
	_, err := d.file.ReadAt(signature, offset)
	return err == nil && string(signature) == gptSignature
}

// read reads the GPT or MBR of the disk.
func (d *disk) read(ctx context.Context) (*Table, error) {
	mbr, err := d.readMBR()
	if err != nil {
		return nil, err
	}
	if !mbr.protective() {
		return d.mbrTable(ctx, mbr)
	}
	if err := mbr.checkProtective(); err != nil {
		return nil, err
	}
	table, err := d.gptTable()
	if err != nil {
		return nil, err
	}
	table.DiskID = mbr.diskID
	return table, nil
}

// free reports whether no partition overlaps the range of bytes.
func free(partitions []Partition, start, end int64) bool {
	for _, p := range partitions {
		if start < p.Start+p.Size && p.Start < end {
			return false
		}
	}
	return true
}

func (d *disk) add(ctx context.Context, p Partition) (Partition, error) {
	table, err := d.read(ctx)
	if err != nil {
		return Partition{}, err
	}
	if p.Size <= 0 {
		return Partition{}, fmt.Errorf("size %d", p.Size)
	}
	if table.Scheme == GPT {
		return d.addGPT(p)
	}
	return d.addMBR(table, p)
}

// alignment is the alignment of new partitions in bytes.
const alignment = 1 << 20
