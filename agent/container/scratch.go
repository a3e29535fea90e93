package container

import (
	"fmt"

	"ironroot/storage/sysfs"
)

// Sizes of scratch space in bytes.
const (
	// memoryMargin is the memory that stays free for the agent and the programs of the image.
	memoryMargin = 384 << 20
	// inodeMemory is the memory that the kernel needs for a file in memory besides its content (BOGO_INODE_SIZE in
	// mm/shmem.c of Linux). A file system in memory limits it only by the number of files.
	inodeMemory = 1 << 10
	// tailGap is left at the end of a disk, for the backup of its partition table.
	tailGap = 1 << 20
	// diskOverhead is added to the space on a disk, for the file system's own structures.
	diskOverhead = 64 << 20
	// installMinimum is the space that an installation needs beside its root file system: partitions for booting and
	// for a config drive.
	installMinimum = 1 << 30
)

// availableMemory returns the number of bytes that scratch space in memory may have.
func availableMemory(s sysfs.Root) (int64, error) {
	available, err := s.AvailableMemory()
	if err != nil {
		return 0, err
	}
	return max(0, available-memoryMargin), nil
}

// splitMemory splits memory into that for contents and a number of files, which get a ninth of it: enough for files of
// 8 KiB on average.
func splitMemory(available int64) (size, files int64) {
	files = available / 9 / inodeMemory
	return available - files*inodeMemory, files
}

// tail returns the range at the end of a disk of size bytes for the files that d demands: for d.want bytes or, if the
// disk is too small for that, as many as it can spare, but at least d.least.
func tail(disk string, size int64, d demand) (start, length int64, err error) {
	const mib = 1 << 20
	lengthFor := func(files int64) int64 { return (files+files/8+diskOverhead+mib-1)/mib*mib + mib }
	// The root file system gets at least as much as the image unpacks to.
	if least := lengthFor(d.least) + d.least + installMinimum; size < least {
		return 0, 0, fmt.Errorf("%w on %s: it has %d bytes, want %d for the image and its installation",
			ErrNoSpace, disk, size, least)
	}
	// The largest for which this holds, or a bit less (length + files = 17/8 files).
	spare := (size - installMinimum - diskOverhead - 2*mib) / 17 * 8
	length = lengthFor(max(d.least, min(d.want, spare)))
	end := (size - tailGap) / mib * mib
	return end - length, length, nil
}
