// Package partition reads partition tables, moves a GPT's backup to the end of a grown disk, and adds one partition.
//
// GPT follows UEFI 2.10 section 5.3, for any logical sector size from 512 bytes; a broken primary is read from the
// backup. MBR: primary partitions, and logical ones read-only. Nothing is written that need not change.
package partition

import (
	"context"
	"errors"
)

// ErrNoTable says that the device has no partition table, or none that is sound.
var ErrNoTable = errors.New("no partition table")

// Schemes of partition tables.
const (
	GPT = "gpt"
	MBR = "mbr"
)

// Partition is one entry of a table.
type Partition struct {
	Number     int
	Type       string // GPT: type GUID in capitals; MBR: "0x0c"
	UUID       string // GPT: lower-case GUID; MBR: disk id and number, "deadbeef-01", as the kernel names it
	Name       string // GPT only
	Attributes uint64 // GPT only: the attribute bits of the entry
	Boot       bool   // MBR: active flag; GPT: legacy BIOS bootable (attribute bit 2)
	Start      int64  // bytes from the start of the disk
	Size       int64  // bytes
}

// Table is a partition table.
type Table struct {
	Scheme          string // GPT or MBR
	DiskID          uint32 // MBR: bytes 440 to 443; GPT: that of the protective MBR
	GUID            string // GPT: disk GUID, lower-case
	SectorSize      int64  // bytes
	DiskSize        int64  // bytes
	Damaged         bool   // GPT: the primary or the backup is broken; the other one was read
	BackupMisplaced bool   // GPT: the backup header does not lie in the disk's last sector
	Partitions      []Partition
}

// Read reads the partition table of a device. The error wraps ErrNoTable where there is none.
func Read(ctx context.Context, device string) (*Table, error) {
	return nil, errors.New("partition: not yet")
}

// RepairBackup moves the backup header and table of a GPT to the end of the disk, as sgdisk -e does, when they do not
// lie there: the last usable LBA, both headers and the protective MBR's size are brought up to date. It reports
// whether anything was written. A device without a GPT is left alone without an error.
func RepairBackup(ctx context.Context, device string) (moved bool, err error) {
	return false, errors.New("partition: not yet")
}

// Add writes one more partition into the table and makes the kernel see it. Start 0 with a Size means the last Size
// bytes that are usable. Number 0 means the first free one. An empty UUID on a GPT becomes a random one. The entry is
// returned as it was written.
func Add(ctx context.Context, device string, p Partition) (Partition, error) {
	return Partition{}, errors.New("partition: not yet")
}
