package erase

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// margin is the number of bytes that are overwritten at both ends of a device, of each of its partitions, and of the
// data of each array that they are members of. This covers partition tables and their backups with every sector size,
// the superblocks of all common file systems (btrfs and gfs2 at 64 KiB, VMFS at 2 MiB), both headers of LUKS 2 (up to
// 4 MiB), the labels of ZFS (512 KiB at both ends), the superblocks of every version of md, and the metadata of BIOS
// RAID and DDF in the last 128 KiB.
const margin = 8 << 20

// Ceph's BlueStore has a label at the start of its device, and copies at bluestoreCopies (bdev_label_positions in its
// BlueStore.cc). A copy of an earlier device is found again if only the first label is removed.
const (
	bluestoreText  = "bluestore block device" // starts each label
	bluestoreLabel = 4 << 10                  // bytes of a label
)

// bluestoreCopies are the places of the copies, in bytes from the start of the device.
func bluestoreCopies() []int64 { return []int64{1 << 30, 10 << 30, 100 << 30, 1000 << 30} }

// Metadata erases partition tables and the signatures of file systems, RAID members and volumes on a device and its
// partitions. The error wraps ErrBusy for a device in use.
//
// It overwrites both ends of the device, of each partition that its table names or the kernel knows, and of the data of
// arrays on them. In each of them it overwrites the copies of a label of Ceph's BlueStore. It also overwrites the
// sectors that name logical partitions, as far as Linux follows their chain: to partition number 255, and over at most
// 100 of them in a row that name none. It then checks that all of these read as zeros, and that the device has no
// signature elsewhere. Afterwards the kernel has no partitions of the device.
//
// All other content stays, including the signatures of file systems in partitions of an earlier table.
func Metadata(ctx context.Context, sys sysfs.Root, device string, wait Wait) error {
	if err := metadata(ctx, sys, device, wait); err != nil {
		return fmt.Errorf("erase the metadata of %s: %w", device, err)
	}
	return nil
}

// RecordMetadata records the erase of a device by Metadata, with the namespaces of an NVMe subsystem that this host
// cannot see. It only reads. It returns an error if the record already has another erase, which it keeps.
func RecordMetadata(ctx context.Context, device block.Device, record *Recorder) error {
	if err := recordMetadata(ctx, device, record, readOnly{}.nvme); err != nil {
		return fmt.Errorf("record the erase of the metadata of %s: %w", device.Path, err)
	}
	return nil
}

func recordMetadata(
	ctx context.Context, device block.Device, record *Recorder, open func(string) (adminDevice, error),
) error {
	if err := record.start(device.Path); err != nil {
		return err
	}
	var scope nvmeScope
	if block.IsNVMeNamespace(device.Name) {
		scope = readScopeOf(ctx, device, open)
	}
	record.change(func(r *Report) {
		r.Technique, r.Namespaces = MetadataOnly, scope.namespaces()
		r.Namespaces.Attached = nil // they are disks of their own
	})
	return nil
}

// readScopeOf returns the scope of a namespace.
func readScopeOf(ctx context.Context, device block.Device, open func(string) (adminDevice, error)) nvmeScope {
	d, err := open(device.Path)
	if err != nil {
		return nvmeScope{unknown: err}
	}
	defer d.close() //nolint:errcheck // nothing was written
	_, _, scope := identifyAll(ctx, d)
	return scope
}

func metadata(ctx context.Context, sys sysfs.Root, device string, wait Wait) error {
	if err := wait.free(ctx, sys, device); err != nil {
		return err
	}
	known, err := kernelRanges(ctx, sys, device)
	if err != nil {
		return err
	}
	if err := partition.Release(ctx, sys, device); err != nil {
		return err
	}
	l, err := wipe(ctx, sys, device, known, wait)
	if err != nil {
		return err
	}
	if err := block.Flush(ctx, device); err != nil {
		return err
	}
	if info, err := block.Find(sys, device); err == nil {
		if err := forget(ctx, sys, info, wait); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) { // a device that the kernel does not list has no partitions
		return err
	}
	return checkWiped(ctx, device, l.ranges, l.wipes())
}

// wipe overwrites the metadata of a device and returns its layout. known are the ranges of the partitions that the
// kernel knows.
func wipe(ctx context.Context, sys sysfs.Root, device string, known []span, wait Wait) (l layout, err error) {
	var f *os.File
	var size int64
	if err := wait.until(ctx, sys, device, func() (err error) {
		f, size, err = openExclusive(device)
		return err
	}); err != nil {
		return layout{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if l, err = readLayout(ctx, device, size, known); err != nil {
		return layout{}, err
	}
	zeros := alignedZeros()
	for _, part := range l.wipes() {
		if err := part.zero(ctx, f, zeros); err != nil {
			return layout{}, err
		}
	}
	return l, f.Sync()
}

// kernelRanges returns the byte ranges of the partitions that the kernel knows: it reads more kinds of tables than
// package partition.
func kernelRanges(ctx context.Context, sys sysfs.Root, device string) ([]span, error) {
	parts, err := partition.Known(ctx, sys, device)
	if errors.Is(err, fs.ErrNotExist) && block.MapUUID(sys, device) == "" {
		return nil, nil // not a device that the kernel lists
	}
	var spans []span
	for _, part := range parts {
		spans = append(spans, span{part.Start, part.Start + part.Size})
	}
	return spans, err
}

// layout describes where a device has metadata.
type layout struct {
	device   span
	ranges   []span // the device, its partitions, and the data of arrays that they are members of
	extended []span // partitions that contain the logical ones, also in ranges
	tables   []span // sectors that name logical partitions, in the order of their chain
	labels   []span // copies of the labels of BlueStore in the ranges
}

// readLayout reads the layout of a device of size bytes. known are the ranges of the partitions that the kernel knows.
func readLayout(ctx context.Context, device string, size int64, known []span) (layout, error) {
	l := layout{device: span{0, size}}
	l.ranges = []span{l.device}
	table, err := partition.ReadAll(ctx, device)
	if errors.Is(err, partition.ErrNoTable) {
		table = &partition.Table{}
	} else if err != nil {
		return layout{}, err
	}
	for _, p := range table.Partitions {
		known = append(known, span{p.Start, p.Start + p.Size})
		if p.Extended() {
			l.extended = append(l.extended, span{p.Start, p.Start + p.Size})
		}
	}
	for _, offset := range table.LogicalTables {
		l.tables = append(l.tables, span{offset, min(offset+table.SectorSize, size)})
	}
	listed := map[span]bool{l.device: true}
	for _, r := range known {
		if r.end = min(r.end, size); r.start < r.end && !listed[r] {
			listed[r] = true
			l.ranges = append(l.ranges, r)
		}
	}
	f, err := os.Open(device)
	if err != nil {
		return layout{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	for _, r := range slices.Clone(l.ranges) {
		found, err := r.superblocks(ctx, f)
		if err != nil {
			return layout{}, err
		}
		for _, s := range found {
			if s.Problem == nil {
				l.ranges = append(l.ranges, r.dataOf(s))
			}
		}
	}
	for _, r := range l.ranges {
		labels, err := r.labels(ctx, f)
		if err != nil {
			return layout{}, err
		}
		l.labels = append(l.labels, labels...)
	}
	return l, nil
}

// wipes returns the ranges to overwrite, in order: the ends of all ranges and the labels in them, the chain of logical
// partitions from its end, and the ends of the device. If this is interrupted, the tables still name the partitions
// that are not wiped.
func (l layout) wipes() []span {
	var extended []span
	inside := slices.Clone(l.labels)
	for _, r := range l.ranges[1:] {
		if slices.ContainsFunc(l.extended, func(e span) bool { return e.start == r.start }) {
			extended = append(extended, r.ends()...)
		} else {
			inside = append(inside, r.ends()...)
		}
	}
	return slices.Concat(merge(inside), l.chain(), merge(extended), l.device.ends())
}

// chain returns the tables of logical partitions in reverse order. Adjacent ones are joined up to the size of one
// write: a tenant can create thousands of them.
func (l layout) chain() []span {
	var chain []span
	for _, s := range slices.Backward(l.tables) {
		if last := len(chain) - 1; last >= 0 && s.end == chain[last].start && chain[last].end-s.start <= zerosSize {
			chain[last].start = s.start
		} else {
			chain = append(chain, s)
		}
	}
	return chain
}

// checkWiped returns an error if a wiped range does not read as zeros, if the device has a signature, or if one of the
// ranges has a superblock of an array.
func checkWiped(ctx context.Context, device string, ranges, wiped []span) error {
	found, err := block.Probe(ctx, device)
	if err != nil {
		return err
	}
	if found.Type != "" {
		return fmt.Errorf("a signature of %s is left", found.Type)
	}
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	for _, r := range ranges {
		left, err := r.superblocks(ctx, f)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("an md superblock %s is left at byte %d", left[0].Version, r.start+left[0].Offset)
		}
	}
	for _, part := range wiped {
		if err := part.checkZero(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// span is a range of bytes from start to end.
type span struct{ start, end int64 }

// superblocks returns the superblocks of arrays of which the range is a member. A table can name thousands of ranges.
func (s span) superblocks(ctx context.Context, r io.ReaderAt) ([]md.Superblock, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	found, err := md.Find(io.NewSectionReader(r, s.start, s.end-s.start), s.end-s.start)
	timelimit.Progress(ctx)
	return found, err
}

// labels returns the copies of the label of BlueStore in the range, and the blocks for them that cannot be read.
func (s span) labels(ctx context.Context, r io.ReaderAt) ([]span, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var found []span
	text := make([]byte, len(bluestoreText))
	for _, offset := range bluestoreCopies() {
		label := span{s.start + offset, s.start + offset + bluestoreLabel}
		if label.end > s.end {
			break
		}
		_, err := r.ReadAt(text, label.start)
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read %d bytes at byte %d: %w", len(text), label.start, err)
		}
		timelimit.Progress(ctx)
		if err != nil || string(text) == bluestoreText {
			found = append(found, label)
		}
	}
	return found, nil
}

// dataOf returns the data of an array that the range is a member of. It is widened to blocks of 4 KiB within the
// range: a superblock can name any sector of 512 bytes, and direct writes to a device with larger sectors must be
// aligned.
func (s span) dataOf(array md.Superblock) span {
	const mask = 4<<10 - 1
	start := s.start + array.DataOffset
	end := start + array.DataSize
	return span{max(s.start, start&^mask), min(s.end, (end+mask)&^mask)}
}

// ends returns the parts of a range to overwrite: the margins at both ends.
func (s span) ends() []span {
	front := span{s.start, min(s.end, s.start+margin)}
	return []span{front, {max(front.end, s.end-margin), s.end}}
}

// merge joins ranges that overlap or touch, so that nothing is written twice: a table can name thousands of partitions
// at one place.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	var merged []span
	for _, s := range spans {
		if last := len(merged) - 1; last >= 0 && s.start <= merged[last].end {
			merged[last].end = max(merged[last].end, s.end)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// zero overwrites the range with zeros, a buffer from alignedZeros.
func (s span) zero(ctx context.Context, f *os.File, zeros []byte) error {
	for offset := s.start; offset < s.end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), s.end-offset)], offset)
		if err != nil {
			return fmt.Errorf("write zeros at byte %d: %w", offset, err)
		}
		timelimit.Progress(ctx)
		offset += int64(n)
	}
	return nil
}

// checkZero returns an error if a byte of the range is not zero.
func (s span) checkZero(ctx context.Context, f *os.File) error {
	size := max(0, min(s.end-s.start, zerosSize))
	data, zeros := make([]byte, size), make([]byte, size)
	for offset := s.start; offset < s.end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(int64(len(data)), s.end-offset)
		if _, err := f.ReadAt(data[:n], offset); err != nil {
			return fmt.Errorf("read %d bytes at byte %d: %w", n, offset, err)
		}
		timelimit.Progress(ctx)
		if !bytes.Equal(data[:n], zeros[:n]) {
			return fmt.Errorf("not all %d bytes at byte %d read as zeros after they were overwritten", n, offset)
		}
		offset += n
	}
	return nil
}
