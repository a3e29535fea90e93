package configdrive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/fat"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// Label is the file system label by which an instance finds its config drive, regardless of case.
const Label = "config-2"

// step is the number of bytes of a write or read.
const step = 1 << 20

// nodeTimeout is the time limit for the device node of a new partition.
const nodeTimeout = 30 * time.Second

// Errors of Write.
var (
	ErrDuplicate  = errors.New("more than one partition is labelled " + Label)
	ErrUnreadable = errors.New("config drive cannot be copied into a new file system")
)

// Options are the options of Write.
type Options struct {
	// Rebuild copies the drive's files to a new FAT file system, for any sector size of the disk.
	Rebuild bool
}

// Write writes the drive to the disk's partition labelled config-2, reads it back, and returns the partition's device
// path. If there is no such partition, Write creates one in the last 64 MiB of the disk. If the disk's sectors are
// larger than the blocks of the drive's file system, no system could mount it, so its files are copied to a new FAT
// file system.
func Write(
	ctx context.Context, sys sysfs.Root, disk string, drive []byte, o Options,
) (partitionPath string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("config drive on %s: %w", disk, err)
		}
	}()
	if len(drive) == 0 || len(drive) > MaxSize {
		return "", fmt.Errorf("%w: it has %d", ErrTooLarge, len(drive))
	}
	device, err := block.Find(sys, disk)
	if err != nil {
		return "", err
	}
	files, err := rebuilt(drive, device.LogicalSector, o) // before the disk is changed
	if err != nil {
		return "", err
	}
	if _, err := partition.RepairBackup(ctx, disk); err != nil {
		return "", err
	}
	// The kernel's partitions may be older than the image that was just written.
	if err := partition.Sync(ctx, sys, disk); err != nil {
		return "", err
	}
	path, err := find(ctx, sys, disk)
	if err != nil {
		return "", err
	}
	if path == "" {
		if path, err = create(ctx, sys, disk); err != nil {
			return "", err
		}
	}
	return path, put(ctx, path, device.LogicalSector, drive, files)
}

// WritePartition writes the drive to a partition of its own, by the same rules as Write, and reads it back. The
// partition must have the size that [Size] returns.
func WritePartition(ctx context.Context, sys sysfs.Root, path string, drive []byte, o Options) error {
	device, err := block.Find(sys, path)
	if err != nil {
		return fmt.Errorf("config drive on %s: %w", path, err)
	}
	files, err := rebuilt(drive, device.LogicalSector, o)
	if err != nil {
		return fmt.Errorf("config drive on %s: %w", path, err)
	}
	if err := put(ctx, path, device.LogicalSector, drive, files); err != nil {
		return fmt.Errorf("config drive on %s: %w", path, err)
	}
	return nil
}

// Size returns the size in bytes of a partition for the drive on a disk with the given sector size. The error wraps
// ErrUnreadable if the drive cannot be written there.
func Size(drive []byte, sector int64, o Options) (int64, error) {
	files, err := rebuilt(drive, sector, o)
	if err != nil {
		return 0, fmt.Errorf("config drive: %w", err)
	}
	if files == nil {
		return int64(len(drive)), nil
	}
	// Clusters are larger than the drive's own blocks: every file and every directory may need nearly one more.
	return 2*int64(len(drive)) + 1<<20, nil
}

// rebuilt returns the files of a drive that must be copied to a new file system, nil if it is written unchanged.
func rebuilt(drive []byte, sector int64, o Options) ([]fat.Node, error) {
	if !o.Rebuild && sector <= blockSize(drive) {
		return nil, nil
	}
	files, err := readFiles(drive)
	if smallest := blockSize(drive); err != nil && sector > smallest {
		err = fmt.Errorf("got blocks of %d bytes, want at least the sector size %d: %w", smallest, sector, err)
	}
	if files == nil {
		files = []fat.Node{} // an empty drive is copied too
	}
	return files, err
}

// put writes the files to a new file system on the partition, or the drive unchanged if files is nil.
func put(ctx context.Context, path string, sector int64, drive []byte, files []fat.Node) error {
	if files != nil {
		return rewrite(ctx, path, sector, files)
	}
	if err := write(ctx, path, drive); err != nil {
		return err
	}
	return verify(ctx, path, drive)
}

// find returns the partition with the label, "" if there is none.
func find(ctx context.Context, sys sysfs.Root, disk string) (string, error) {
	parts, err := block.Partitions(ctx, sys, disk)
	if err != nil {
		return "", err
	}
	var found []string
	for _, part := range parts {
		fs, err := block.Probe(ctx, part.Path)
		if err != nil {
			return "", err
		}
		if strings.EqualFold(fs.Label, Label) {
			found = append(found, part.Path)
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%w: %s", ErrDuplicate, strings.Join(found, ", "))
}

func create(ctx context.Context, sys sysfs.Root, disk string) (string, error) {
	table, err := partition.Read(ctx, disk)
	if err != nil {
		return "", err
	}
	want := partition.Partition{Size: MaxSize}
	if table.Scheme == partition.MBR {
		want.Type = partition.TypeMBRFAT32
	}
	added, err := partition.Add(ctx, sys, disk, want)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	return block.WaitPartition(ctx, sys, disk, added.Number)
}

// openExclusive opens a partition and returns its size in bytes. It fails if the partition is mounted or otherwise in
// use.
func openExclusive(path string, access int) (f *os.File, size int64, err error) {
	if f, err = os.OpenFile(path, access|unix.O_EXCL, 0); err != nil {
		return nil, 0, err
	}
	if size, _, err = block.Geometry(f); err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

func write(ctx context.Context, path string, drive []byte) (err error) {
	f, size, err := openExclusive(path, os.O_WRONLY)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if int64(len(drive)) > size {
		return fmt.Errorf("partition %s of %d bytes is too small for the drive of %d bytes", path, size, len(drive))
	}
	for offset := 0; offset < len(drive); offset += step {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := f.WriteAt(drive[offset:min(offset+step, len(drive))], int64(offset)); err != nil {
			return fmt.Errorf("write at byte %d: %w", offset, err)
		}
	}
	return f.Sync()
}

// verify reads the drive back from the medium and compares it.
func verify(ctx context.Context, path string, drive []byte) error {
	if err := block.Flush(ctx, path); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	got := make([]byte, min(step, len(drive)))
	for offset := 0; offset < len(drive); offset += step {
		want := drive[offset:min(offset+step, len(drive))]
		if _, err := io.ReadFull(f, got[:len(want)]); err != nil {
			return fmt.Errorf("read back: %w", err)
		}
		if !bytes.Equal(got[:len(want)], want) {
			return fmt.Errorf("read back: %s differs from what was written at byte %d or after", path, offset)
		}
	}
	return nil
}

// blockSize returns the smallest block size of the drive's file system in bytes, [math.MaxInt64] if the file system is
// unknown.
func blockSize(drive []byte) int64 {
	const iso = 32768
	if len(drive) > iso+6 && string(drive[iso+1:iso+6]) == "CD001" {
		return 2048
	}
	if len(drive) >= 512 && drive[510] == 0x55 && drive[511] == 0xaa && (drive[0] == 0xeb || drive[0] == 0xe9) {
		return int64(drive[11]) | int64(drive[12])<<8
	}
	// The superblock of ext2, ext3 and ext4, its s_magic and its s_log_block_size.
	const super, magic, logBlockSize = 1024, 1024 + 56, 1024 + 24
	if len(drive) >= 2*super && drive[magic] == 0x53 && drive[magic+1] == 0xef && drive[logBlockSize] < 7 {
		return 1024 << drive[logBlockSize]
	}
	return math.MaxInt64
}
