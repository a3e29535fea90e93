package erase

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

const mib = 1 << 20

// patient waits for at most a minute: another process, such as udev or losetup, can have a loop device open for a
// moment.
var patient = Wait{Interval: 20 * time.Millisecond, Retries: 3000}

func device(t *testing.T, path string) block.Device {
	t.Helper()
	d, err := block.Find(sysfs.Root{}, path)
	if err != nil {
		t.Fatal(err)
	}
	d.Type = "disk" // a loop device plays it
	return d
}

func writeAt(t *testing.T, path string, offset int64, data []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, offset); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	if err := block.Flush(context.Background(), path); err != nil {
		t.Fatal(err)
	}
	return testenv.Content(t, path)
}

// wipefs returns the signatures that remain, as listed by wipefs.
func wipefs(t *testing.T, path string) string {
	t.Helper()
	return testenv.Run(t, "wipefs", "-n", path)
}

// lvmLabel returns the label of an LVM physical volume, for the second sector of 512 bytes.
func lvmLabel() []byte {
	label := make([]byte, 512)
	copy(label, "LABELONE")
	binary.LittleEndian.PutUint64(label[8:], 1)   // its own sector
	binary.LittleEndian.PutUint32(label[20:], 32) // offset of the header
	copy(label[24:], "LVM2 001")
	const initial = 0xf597a6cf
	binary.LittleEndian.PutUint32(label[16:], ^crc32.Update(^uint32(initial), crc32.IEEETable, label[20:]))
	return label
}

// luksHeader returns a header of LUKS 2 at an offset, of which wipefs reads magic, version, label and offset (LUKS2
// on-disk format specification, section "LUKS2 binary header").
func luksHeader(magic string, offset int64) []byte {
	header := make([]byte, 4096)
	copy(header, magic+"\xba\xbe\x00\x02")
	binary.BigEndian.PutUint64(header[8:], 4<<20) // bytes from the first header to the second
	copy(header[168:], "12345678-1234-1234-1234-123456789abc")
	binary.BigEndian.PutUint64(header[256:], uint64(offset))
	return header
}

// zfsLabel returns a label of ZFS with four uberblocks, the least that wipefs recognizes (ZFS On-Disk Specification,
// sections 1.2 and 1.3).
func zfsLabel() []byte {
	label := make([]byte, 256<<10)
	for at := 128 << 10; at < 132<<10; at += 1 << 10 {
		binary.LittleEndian.PutUint64(label[at:], 0x00bab10c)
		binary.LittleEndian.PutUint64(label[at+8:], 5000) // version
	}
	return label
}

// Parity: P4
func TestMetadata(t *testing.T) {
	testenv.Programs(t, "sgdisk", "wipefs", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mkswap", "mkfs.vfat")
	makers := [][]string{ // one for each partition
		{"mkfs.ext4", "-q", "-F"},
		{"mkfs.xfs", "-q", "-f"},
		{"mkfs.btrfs", "-q", "-f"},
		{"mkswap", "-q"},
		{"mkfs.vfat"},
	}
	for _, sector := range []int{512, 4096} {
		path := testenv.Loop(t, testenv.SparseFile(t, 1000*mib), sector)
		table := func() {
			t.Helper()
			testenv.Run(t, "sgdisk", "-n", "1:0:+64M", "-n", "2:0:+320M", "-n", "3:0:+320M", "-n", "4:0:+64M",
				"-n", "5:0:+64M", "-n", "6:0:+32M", "-n", "7:0:+32M", "-n", "8:0:0", path)
			if err := partition.Sync(context.Background(), sysfs.Root{}, path); err != nil {
				t.Fatal(err)
			}
		}
		table()
		for i, maker := range makers {
			testenv.Run(t, maker[0], append(maker[1:], block.PartitionPath(sysfs.Root{}, path, i+1))...)
			if wipefs(t, block.PartitionPath(sysfs.Root{}, path, i+1)) == "" {
				t.Fatalf("%s left no signature", maker[0])
			}
		}
		last := len(makers)
		made := func(signature string, want int, contents map[int64][]byte) {
			t.Helper()
			last++
			part := block.PartitionPath(sysfs.Root{}, path, last)
			for at, content := range contents {
				writeAt(t, part, at, content)
			}
			if out := wipefs(t, part); strings.Count(out, signature) < want {
				t.Fatalf("got %q, want at least %d signatures of %s", out, want, signature)
			}
		}
		made("LVM2_member", 1, map[int64][]byte{512: lvmLabel()})
		made("crypto_LUKS", 2, map[int64][]byte{0: luksHeader("LUKS", 0), 4 << 20: luksHeader("SKUL", 4<<20)})
		end := partitionSize(t, path, last+1) &^ (256<<10 - 1)
		// wipefs ignores the last three uberblocks, so that 13 of 16 are in all four labels.
		made("zfs_member", 13, map[int64][]byte{
			0: zfsLabel(), 256 << 10: zfsLabel(), end - 512<<10: zfsLabel(), end - 256<<10: zfsLabel(),
		})
		if err := Metadata(context.Background(), sysfs.Root{}, path, patient); err != nil {
			t.Fatalf("sectors of %d bytes: %v", sector, err)
		}
		if out := wipefs(t, path); out != "" {
			t.Errorf("sectors of %d bytes: still there:\n%s", sector, out)
		}
		if parts, err := block.Partitions(context.Background(), sysfs.Root{}, path); err != nil || len(parts) != 0 {
			t.Errorf("the kernel still has %d partitions, %v", len(parts), err)
		}
		table() // the same once more: nothing may show through
		for i := range last {
			if out := wipefs(t, block.PartitionPath(sysfs.Root{}, path, i+1)); out != "" {
				t.Errorf("partition %d, sectors of %d bytes: still there:\n%s", i+1, sector, out)
			}
		}
	}
}

// partitionSize returns the size of a partition in bytes.
func partitionSize(t *testing.T, path string, number int) int64 {
	t.Helper()
	d, err := block.Find(sysfs.Root{}, block.PartitionPath(sysfs.Root{}, path, number))
	if err != nil {
		t.Fatal(err)
	}
	return d.Size
}

// The copies of the labels of BlueStore are removed from a disk and from its partition, whether or not the label at the
// start is left. Other content at their places stays.
func TestMetadataOfBlueStore(t *testing.T) {
	testenv.Programs(t, "sgdisk")
	const size, start = 11 << 30, 3 * mib
	label := make([]byte, 4096)
	copy(label, "bluestore block device\n12345678-1234-1234-1234-123456789abc\n")
	label[4095] = 1
	for _, sector := range []int{512, 4096} {
		for name, base := range map[string]int64{"disk": 0, "partition": start} {
			path := testenv.Loop(t, testenv.SparseFile(t, size), sector)
			if base != 0 {
				testenv.Run(t, "sgdisk", "-n", fmt.Sprintf("1:%d:0", base/int64(sector)), path)
				if err := partition.Sync(t.Context(), sysfs.Root{}, path); err != nil {
					t.Fatal(err)
				}
			}
			labels := []int64{base + 1<<30, base + 10<<30}
			for _, at := range labels {
				writeAt(t, path, at, slices.Concat(label, []byte("behind")))
			}
			other := []int64{base + 1<<30 + start, start - base + 1<<30, start - base + 10<<30}
			for _, at := range other {
				writeAt(t, path, at, []byte("bluestore, block, device"))
			}
			if err := Metadata(t.Context(), sysfs.Root{}, path, patient); err != nil {
				t.Fatalf("%s, sectors of %d bytes: %v", name, sector, err)
			}
			for _, at := range labels {
				if got := string(readAt(t, path, at, len(label))); strings.Trim(got, "\x00") != "" {
					t.Errorf("%s, sectors of %d bytes: the label at byte %d is left", name, sector, at)
				}
				if got := string(readAt(t, path, at+int64(len(label)), 6)); got != "behind" {
					t.Errorf("%s, sectors of %d bytes: got %q behind the label at byte %d", name, sector, got, at)
				}
			}
			for _, at := range other {
				if got := string(readAt(t, path, at, 24)); got != "bluestore, block, device" {
					t.Errorf("%s, sectors of %d bytes: got %q at byte %d, want what was there", name, sector, got, at)
				}
			}
		}
	}
}

// unreadable is a device with a place that cannot be read.
type unreadable struct {
	io.ReaderAt
	at int64
}

func (u unreadable) ReadAt(p []byte, offset int64) (int, error) {
	if offset == u.at {
		return 0, unix.EIO
	}
	return u.ReaderAt.ReadAt(p, offset)
}

// A label is only looked for where all of it is inside the range. A block that cannot be read may be one. The
// search ends with the device and with the context.
func TestLabels(t *testing.T) {
	file := testenv.SparseFile(t, 10<<30+3*mib)
	writeAt(t, file, 1<<30+mib, []byte(bluestoreText))
	writeAt(t, file, 10<<30+mib, []byte(bluestoreText))
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	for end, want := range map[int64][]span{
		mib + 1<<30 + 4095:  nil,
		mib + 1<<30 + 4096:  {{mib + 1<<30, mib + 1<<30 + 4096}},
		mib + 10<<30 + 4096: {{mib + 1<<30, mib + 1<<30 + 4096}, {mib + 10<<30, mib + 10<<30 + 4096}},
	} {
		if got, err := (span{mib, end}).labels(t.Context(), f); err != nil || !slices.Equal(got, want) {
			t.Errorf("up to byte %d: got %v and %v, want %v", end, got, err, want)
		}
	}
	bad := unreadable{f, mib + 10<<30}
	want := []span{{mib + 1<<30, mib + 1<<30 + 4096}, {mib + 10<<30, mib + 10<<30 + 4096}}
	writeAt(t, file, bad.at, make([]byte, len(bluestoreText)))
	if got, err := (span{mib, 10<<30 + 3*mib}).labels(t.Context(), bad); err != nil || !slices.Equal(got, want) {
		t.Errorf("unreadable block: got %v and %v, want %v", got, err, want)
	}
	if _, err := (span{mib, 200 << 30}).labels(t.Context(), f); !errors.Is(err, io.EOF) ||
		!strings.Contains(err.Error(), strconv.Itoa(mib+100<<30)) {
		t.Errorf("got %v, want the place that cannot be read", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (span{mib, 20 << 30}).labels(cancelled, f); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// readAt reads from a device, past the kernel's cache of what was written before.
func readAt(t *testing.T, path string, offset int64, length int) []byte {
	t.Helper()
	if err := block.Flush(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	data := make([]byte, length)
	if _, err := f.ReadAt(data, offset); err != nil {
		t.Fatal(err)
	}
	return data
}

// The sectors that name logical partitions are wiped, and so are the file systems in these partitions: none reappears
// if the same table is written again.
func TestMetadataOfLogicalPartitions(t *testing.T) {
	testenv.Programs(t, "sfdisk", "wipefs", "mkfs.ext4")
	for _, sector := range []int{512, 4096} {
		path := testenv.Loop(t, testenv.SparseFile(t, 200*mib), sector)
		const mark = "content between the ends"
		table := func() {
			t.Helper()
			in := "label: dos\nstart=1MiB, size=20MiB, type=83\nstart=24MiB, size=170MiB, type=5\n" +
				"start=26MiB, size=40MiB, type=83\nstart=70MiB, size=40MiB, type=83\n" +
				"start=114MiB, size=40MiB, type=83\n"
			testenv.Run(t, "sh", "-c", `printf "$0" | PATH=$PATH:/usr/sbin sfdisk -q --wipe never "$1"`, in, path)
			if err := partition.Sync(t.Context(), sysfs.Root{}, path); err != nil {
				t.Fatal(err)
			}
		}
		table()
		before, err := partition.Read(t.Context(), path)
		if err != nil || len(before.LogicalTables) != 3 {
			t.Fatalf("got table %+v and %v, want three logical partitions", before, err)
		}
		logical := []int{5, 6, 7}
		for _, n := range logical {
			testenv.Run(t, "mkfs.ext4", "-q", "-F", block.PartitionPath(sysfs.Root{}, path, n))
		}
		writeAt(t, path, 90*mib, []byte(mark))
		if err := Metadata(t.Context(), sysfs.Root{}, path, patient); err != nil {
			t.Fatalf("sectors of %d bytes: %v", sector, err)
		}
		data := content(t, path)
		for _, at := range before.LogicalTables {
			if left := bytes.Trim(data[at:at+512], "\x00"); len(left) > 0 {
				t.Errorf("sectors of %d bytes: the table at byte %d is left", sector, at)
			}
		}
		if !bytes.Contains(data, []byte(mark)) {
			t.Errorf("sectors of %d bytes: content between the ends was erased", sector)
		}
		table()
		for _, n := range logical {
			if out := wipefs(t, block.PartitionPath(sysfs.Root{}, path, n)); out != "" {
				t.Errorf("partition %d, sectors of %d bytes: still there:\n%s", n, sector, out)
			}
		}
	}
}

// A file system in a partition that only the kernel knows is wiped, too: the kernel supports more kinds of tables.
func TestMetadataOfKernelPartitions(t *testing.T) {
	testenv.Programs(t, "mkfs.ext4", "wipefs")
	path := testenv.Loop(t, testenv.SparseFile(t, 80*mib), 512)
	add := func() string {
		t.Helper()
		if err := block.AddPartition(path, 3, 20*mib, 40*mib); err != nil {
			t.Fatal(err)
		}
		return block.PartitionPath(sysfs.Root{}, path, 3)
	}
	testenv.Run(t, "mkfs.ext4", "-q", "-F", add())
	if err := Metadata(t.Context(), sysfs.Root{}, path, patient); err != nil {
		t.Fatal(err)
	}
	if out := wipefs(t, add()); out != "" {
		t.Errorf("still there:\n%s", out)
	}
	if err := partition.Sync(t.Context(), sysfs.Root{}, path); err != nil { // no partition stays behind
		t.Error(err)
	}
}

func TestMetadataOfWholeDisk(t *testing.T) {
	testenv.Programs(t, "wipefs", "mkfs.ext4")
	path := testenv.Loop(t, testenv.SparseFile(t, 40*mib+512*3), 512)
	testenv.Run(t, "mkfs.ext4", "-q", "-F", path)
	size := int64(40*mib + 512*3)
	magic := []byte{0xfc, 0x4e, 0x2b, 0xa9}
	writeAt(t, path, size&^65535-65536, magic)        // md 0.90
	writeAt(t, path, (size/512-16)&^7*512, magic)     // md 1.0
	writeAt(t, path, 20*mib, []byte("in the middle")) // content stays
	if err := Metadata(context.Background(), sysfs.Root{}, path, patient); err != nil {
		t.Fatal(err)
	}
	if out := wipefs(t, path); out != "" {
		t.Errorf("still there:\n%s", out)
	}
	data := content(t, path)
	if bytes.Contains(data, magic) {
		t.Error("an md superblock is still there")
	}
	if !bytes.Contains(data, []byte("in the middle")) {
		t.Error("content between the ends was erased")
	}
}

func TestInUse(t *testing.T) {
	testenv.Programs(t, "mkfs.ext4")
	path := testenv.Loop(t, testenv.SparseFile(t, 40*mib), 512)
	testenv.Run(t, "mkfs.ext4", "-q", "-F", path)
	dir := t.TempDir()
	testenv.Mount(t, path, dir, "ext4", "")
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := Metadata(context.Background(), sysfs.Root{}, path, Wait{}); !errors.Is(err, ErrBusy) ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("Metadata: got %v, want an ErrBusy that names %s", err, dir)
	}
	if _, err := tryRun(context.Background(), sysfs.Root{}, device(t, path),
		Options{Zeroize: true}); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Run: got %v, want an ErrBusy that names %s", err, dir)
	}
}

// written returns the number of bytes that were written to a block device.
func written(t *testing.T, path string) int64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(path), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	sectors, err := strconv.ParseInt(strings.Fields(string(text))[6], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return sectors * 512
}

// Parity: P3 (passes)
func TestOverwrite(t *testing.T) {
	for _, sector := range []int{512, 4096} {
		size := int64(10*mib + 3*4096)
		path := testenv.Loop(t, testenv.SparseFile(t, size), sector)
		secret := bytes.Repeat([]byte("secret data "), int(size/12))
		writeAt(t, path, 0, secret)
		var last, total int64
		o := Options{Iterations: 2, Recorder: onProgress(func(done, all int64) {
			if done < last {
				t.Errorf("progress went from %d to %d", last, done)
			}
			last, total = done, all
		})}
		before := written(t, path)
		method, err := tryRun(context.Background(), sysfs.Root{}, device(t, path), o)
		if err != nil || method != Overwrite {
			t.Fatalf("got %q, %v", method, err)
		}
		if got := written(t, path) - before; got != 2*size {
			t.Errorf("two random passes: got %d bytes written, want %d", got, 2*size)
		}
		if last != 2*size || total != 2*size {
			t.Errorf("progress ended at %d of %d, want %d", last, total, 2*size)
		}
		data := content(t, path)
		if bytes.Contains(data, []byte("secret")) || bytes.Count(data, []byte{0}) > len(data)/100 {
			t.Error("the device was not filled with random bytes")
		}
		o = Options{Iterations: 2, Zeroize: true, NVMe: true, ATA: true}
		before = written(t, path)
		if method, err := tryRun(context.Background(), sysfs.Root{}, device(t, path), o); err != nil ||
			method != Overwrite {
			t.Fatalf("got %q, %v", method, err)
		}
		if got := written(t, path) - before; got != 3*size {
			t.Errorf("two random passes and zeros: got %d bytes written, want %d", got, 3*size)
		}
		if data := content(t, path); int64(len(data)) != size || bytes.Count(data, []byte{0}) != len(data) {
			t.Error("the last pass left something else than zeros")
		}
	}
}

func TestNoPass(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	method, err := tryRun(context.Background(), sysfs.Root{}, device(t, path), Options{})
	if !errors.Is(err, ErrUnsupported) {
		t.Errorf("got %q, %v: nothing was written, nothing may be claimed", method, err)
	}
}

func TestCancel(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, 64*mib), 512)
	ctx, cancel := context.WithCancel(context.Background())
	o := Options{Zeroize: true, Recorder: onProgress(func(int64, int64) { cancel() })}
	_, err := tryRun(ctx, sysfs.Root{}, device(t, path), o)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "pass 1 of 1") {
		t.Errorf("got %v, want context.Canceled in pass 1 of 1", err)
	}
}

// A device that fails in the middle must never count as erased.
func TestWriteError(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	testenv.Mount(t, "tmpfs", dir, "tmpfs", "size=4m")
	t.Cleanup(func() { testenv.Detach(t, dir) })
	image := filepath.Join(dir, "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64*mib); err != nil {
		t.Fatal(err)
	}
	path := testenv.Loop(t, image, 512)
	if method, err := tryRun(context.Background(), sysfs.Root{}, device(t, path),
		Options{Iterations: 1, Zeroize: true}); err == nil {
		t.Errorf("got %q without an error", method)
	}
	if err := Metadata(context.Background(), sysfs.Root{}, path, Wait{}); err == nil {
		t.Error("metadata: no error")
	}
}

func TestReadOnly(t *testing.T) {
	testenv.Programs(t, "blockdev")
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	testenv.Run(t, "blockdev", "--setro", path)
	defer func() { testenv.Run(t, "blockdev", "--setrw", path) }() // the flag would outlive the loop device
	if readOnly, err := ReadOnly(sysfs.Root{}, path); err != nil || !readOnly {
		t.Errorf("got %v, %v", readOnly, err)
	}
	if _, err := tryRun(context.Background(), sysfs.Root{}, device(t, path),
		Options{Zeroize: true}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("got %v, want ErrReadOnly", err)
	}
}

// A zoned disk is not written at all: its first zones may accept writes that the others reject.
func TestZoned(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	if err := os.WriteFile(path, []byte("content"), 0); err != nil {
		t.Fatal(err)
	}
	d := device(t, path)
	d.Zoned = "host-managed"
	if _, err := tryRun(t.Context(), sysfs.Root{}, d, Options{Zeroize: true}); !errors.Is(err, ErrZoned) ||
		errors.Is(err, ErrUnsupported) {
		t.Errorf("got %v, want ErrZoned", err)
	}
	if data, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(data), "content") {
		t.Errorf("the disk holds %.10q, want what it held (%v)", data, err)
	}
}

// Superblocks of arrays are removed from every offset that a version has, on a disk and on its partition, and so is
// the partition table inside the array.
func TestMetadataOfRAIDMembers(t *testing.T) {
	testenv.Programs(t, "sgdisk", "mdadm", "wipefs")
	const size, part = 40 * mib, 30 * mib
	old := testenv.Data(t, "md/raid1-0.90")
	for _, version := range []string{"0.90", "1.0", "1.1", "1.2"} {
		superblock := func(size int64) (int64, []byte) {
			at := md.Offsets(size)[version]
			if version == "0.90" {
				return at, old
			}
			return at, testenv.RAID{Name: "tenant:data", Level: 1, Size: size}.Superblock(at)
		}
		onDisk := testenv.Loop(t, testenv.SparseFile(t, size), 512)
		onPartition := testenv.Loop(t, testenv.SparseFile(t, size), 512)
		testenv.Run(t, "sgdisk", "-n", "1:2048:+30M", onPartition)
		if err := partition.Sync(t.Context(), sysfs.Root{}, onPartition); err != nil {
			t.Fatal(err)
		}
		for path, size := range map[string]int64{onDisk: size, onPartition + "p1": part} {
			at, content := superblock(size)
			writeAt(t, path, at, content)
			if out := testenv.Run(t, "mdadm", "--examine", path); !strings.Contains(out, "- correct") {
				t.Fatalf("version %s on %s: mdadm finds no superblock:\n%s", version, path, out)
			}
		}
		for _, path := range []string{onDisk, onPartition} {
			if err := Metadata(t.Context(), sysfs.Root{}, path, patient); err != nil {
				t.Errorf("version %s on %s: %v", version, path, err)
			}
			if out := wipefs(t, path); out != "" {
				t.Errorf("version %s: on %s is left:\n%s", version, path, out)
			}
			if data := content(t, path); bytes.Contains(data, []byte{0xfc, 0x4e, 0x2b, 0xa9}) {
				t.Errorf("version %s on %s: a superblock is left", version, path)
			}
		}
	}
}

func TestMetadataInsideArray(t *testing.T) {
	testenv.Programs(t, "sgdisk")
	const size, inside = 60 * mib, 24 * mib // the array's data begin after the margin of the disk
	superblock := testenv.RAID{Name: "data", Level: 1, Size: size, DataOffset: inside}.Superblock(4096)
	array := testenv.SparseFile(t, size-inside)
	testenv.Run(t, "sgdisk", "-n", "1:2048:+8M", array)
	path := testenv.Loop(t, testenv.SparseFile(t, size), 512)
	writeAt(t, path, inside, content(t, array))
	writeAt(t, path, 4096, superblock)
	if err := Metadata(t.Context(), sysfs.Root{}, path, patient); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(content(t, path), []byte("EFI PART")) {
		t.Error("the partition table inside the array is left")
	}
}

func TestParametersFloppy(t *testing.T) {
	testenv.Programs(t, "mkfs.vfat")
	for _, c := range []struct {
		bus, label string
		sectors    int64
		removable  bool
		want       bool
	}{
		{"usb1/1-1", "ir-vfd-dev", 2048, true, true},
		{"usb1/1-1", "IR-VFD-DEV", 2048, true, true},
		{"usb1/1-1", "ir-vfd-dev", 64 << 20 / 512, true, true},
		{"usb1/1-1", "OTHER", 2048, true, false},
		{"usb1/1-1", "ir-vfd-dev", 64<<20/512 + 1, true, false}, // too large for a floppy of Ironic
		{"usb1/1-1", "ir-vfd-dev", 2048, false, false},          // a built-in USB disk
		{"pci0000:00/ata1", "ir-vfd-dev", 2048, true, false},    // a disk that a tenant labelled
	} {
		image := testenv.SparseFile(t, mib)
		testenv.Run(t, "mkfs.vfat", "-n", c.label, image)
		sys := scsiDisk(t, "sdz", c.bus, c.sectors)
		if c.removable {
			makeRemovable(t, sys, "sdz")
		}
		disk := block.Device{Name: "sdz", Path: image, Size: c.sectors * 512}
		if got, err := ParametersFloppy(t.Context(), sys, disk); err != nil || got != c.want {
			t.Errorf("%+v: got %v, %v", c, got, err)
		}
	}
}

func makeRemovable(t *testing.T, sys sysfs.Root, name string) {
	t.Helper()
	if err := os.WriteFile(sys.Sys("class/block", name, "removable"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// scsiDisk is a machine with one SCSI disk behind a bus.
func scsiDisk(t *testing.T, name, bus string, sectors int64) sysfs.Root {
	t.Helper()
	root := t.TempDir()
	node := filepath.Join(root, "sys/devices", bus, "host0/target0:0:0/0:0:0:0")
	class := filepath.Join(root, "sys/class/block", name)
	for _, dir := range []string{node, class} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(class, "size"), fmt.Appendln(nil, sectors), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(node, filepath.Join(class, "device")); err != nil {
		t.Fatal(err)
	}
	return sysfs.Root{Path: root}
}

// invalidEntry returns an entry of an MBR that starts beyond the end of a disk.
func invalidEntry() []byte {
	return []byte{0, 0, 0, 0, 0x83, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 8, 0, 0, 0}
}

// An invalid entry of an MBR hides neither the superblocks of the other partitions nor the tables of logical ones.
func TestMetadataOfInvalidTable(t *testing.T) {
	testenv.Programs(t, "sfdisk")
	array := testenv.RAID{Name: "data", Level: 1, Size: 8 * mib}
	for name, change := range map[string]func(path string){
		"entry behind the disk": func(path string) { writeAt(t, path, 446+3*16, invalidEntry()) },
		"status":                func(path string) { writeAt(t, path, 446, []byte{1}) },
		"FAT":                   func(path string) { writeAt(t, path, 54, []byte("FAT16   ")) },
	} {
		path := testenv.Loop(t, testenv.SparseFile(t, 128*mib), 512)
		testenv.Run(t, "sh", "-c",
			`printf 'label: dos\nstart=20MiB, size=8MiB, type=83\nstart=40MiB, size=70MiB, type=5\n`+
				`start=60MiB, size=8MiB\nstart=90MiB, size=8MiB\n' | PATH=$PATH:/usr/sbin sfdisk -q "$0"`, path)
		table, err := partition.Read(t.Context(), path)
		if err != nil || len(table.LogicalTables) != 2 {
			t.Fatalf("got %+v and %v, want two logical partitions", table, err)
		}
		superblocks := []int64{20*mib + 4096, 60*mib + 4096, 90*mib + 4096}
		for _, at := range superblocks {
			writeAt(t, path, at, array.Superblock(4096))
		}
		change(path)
		if err := Metadata(t.Context(), sysfs.Root{}, path, patient); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data := content(t, path)
		for _, at := range append(superblocks, table.LogicalTables...) {
			if left := bytes.Trim(data[at:at+512], "\x00"); len(left) > 0 {
				t.Errorf("%s: %d bytes are left at byte %d", name, len(left), at)
			}
		}
	}
}

// Parity: P7
func TestGuard(t *testing.T) {
	testenv.Programs(t, "sgdisk", "sfdisk")
	gpt := func(kind string) func(string) {
		return func(path string) { testenv.Run(t, "sgdisk", "-n", "1:0:+4M", "-n", "2:0:+4M", "-t", "2:"+kind, path) }
	}
	mbr := func(kind string) func(string) {
		return func(path string) {
			testenv.Run(t, "sh", "-c",
				`printf 'label: dos\nsize=2048, type=`+kind+`\n' | PATH=$PATH:/usr/sbin sfdisk -q "$0"`, path)
		}
	}
	cases := []struct {
		name    string
		prepare func(string)
		want    bool
	}{
		{"gpfs", gpt("37affc90-ef7d-4e96-91c3-2d7ae055b174"), true},
		{"vmfs", gpt("AA31E02A-400F-11DB-9590-000C2911D1B8"), true},
		{"vmfs on mbr", mbr("fb"), true},
		{"gfs2 on the disk", func(path string) { writeAt(t, path, 65536, []byte{0x01, 0x16, 0x19, 0x70}) }, true},
		{"gfs2 in a partition", func(path string) {
			gpt("8300")(path)
			writeAt(t, path, 5*mib+65536, []byte{0x01, 0x16, 0x19, 0x70})
			if err := partition.Sync(context.Background(), sysfs.Root{}, path); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"gfs2 in a partition of the backup table", func(path string) {
			gpt("8300")(path)
			writeAt(t, path, 512, make([]byte, 512))
			writeAt(t, path, 5*mib+65536, []byte{0x01, 0x16, 0x19, 0x70})
			if err := partition.Forget(t.Context(), sysfs.Root{}, path); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"gfs2 in a partition beside the table", func(path string) {
			gpt("8300")(path)
			writeAt(t, path, 12*mib+65536, []byte{0x01, 0x16, 0x19, 0x70})
			if err := block.AddPartition(path, 9, 12*mib, 4*mib); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"vmfs beside an invalid entry", func(path string) {
			mbr("fb")(path)
			writeAt(t, path, 446+3*16, invalidEntry())
		}, true},
		{"linux", gpt("8300"), false},
		{"gfs2 in a member of an array", func(path string) {
			gpt("8300")(path)
			writeAt(t, path, 5*mib+65536, []byte{0x01, 0x16, 0x19, 0x70})
			writeAt(t, path, 5*mib, []byte{0xfc, 0x4e, 0x2b, 0xa9})
		}, true},
		{"gfs2 on a former member of an array", func(path string) {
			writeAt(t, path, 65536, []byte{0x01, 0x16, 0x19, 0x70})
			writeAt(t, path, 4096, testenv.RAID{Name: "old", Level: 1, Size: 20 * mib}.Superblock(4096))
		}, true},
		{"gfs2 in a hidden former member of an array", func(path string) {
			gpt("8300")(path)
			writeAt(t, path, 5*mib+65536, []byte{0x01, 0x16, 0x19, 0x70})
			writeAt(t, path, 5*mib+4096, testenv.RAID{Name: "old", Level: 1, Size: 4 * mib}.Superblock(4096))
			if err := partition.Forget(t.Context(), sysfs.Root{}, path); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"linux on mbr", mbr("83"), false},
		{"empty", func(string) {}, false},
	}
	for _, c := range cases {
		path := testenv.Loop(t, testenv.SparseFile(t, 20*mib), 512)
		c.prepare(path)
		err := Guard(context.Background(), sysfs.Root{}, path)
		if errors.Is(err, ErrProtected) != c.want || (err != nil) != c.want {
			t.Errorf("%s: got %v, want an error: %v", c.name, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error that names %s", c.name, err, path)
		}
	}
}

// Nothing is written twice, even if many partitions of a table overlap.
func TestMerge(t *testing.T) {
	var spans []span
	for i := range int64(10_000) {
		spans = append(spans, span{i % 7, 100 << 20}.ends()...)
	}
	spans = append(spans, span{200 << 20, 300 << 20}.ends()...)
	spans = append(spans, span{50 << 20, 50<<20 + 1}.ends()...)
	want := []span{
		{0, margin + 6},
		{50 << 20, 50<<20 + 1},
		{100<<20 - margin, 100 << 20},
		{200 << 20, 200<<20 + margin},
		{300<<20 - margin, 300 << 20},
	}
	if got := merge(spans); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The data of an array that start within a sector of the disk do not make the erase fail.
func TestMetadataOfUnalignedArray(t *testing.T) {
	const size = 64 << 20
	array := testenv.RAID{Name: "tenant:data", Level: 1, Size: size, DataOffset: 20<<20 + 512, Data: 30<<20 + 1024}
	loop := testenv.Loop(t, testenv.SparseFile(t, size), 4096)
	writeAt(t, loop, 4096, array.Superblock(4096))
	writeAt(t, loop, 20<<20+512, []byte("file system"))
	if err := Metadata(t.Context(), sysfs.Root{}, loop, patient); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(content(t, loop), []byte("file system")) {
		t.Error("the beginning of the array's data is left")
	}
}
