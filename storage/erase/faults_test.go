package erase

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/nvme"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// hooked is a context whose Err calls a function. Erasing calls Err before each write.
type hooked struct {
	context.Context
	err func() error
}

func (h hooked) Err() error { return h.err() }

// whenZero returns a context that calls the function as soon as the first MiB of a device is zero.
func whenZero(t *testing.T, path string, do func() error) context.Context {
	t.Helper()
	return hooked{t.Context(), func() error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		data := make([]byte, mib)
		if _, err := f.ReadAt(data, 0); err != nil {
			return err
		}
		if len(bytes.Trim(data, "\x00")) > 0 {
			return nil
		}
		return do()
	}}
}

// put writes a file of a machine's directory.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// secretDisk makes a disk full of data.
func secretDisk(t *testing.T, size int) string {
	t.Helper()
	path := testenv.Loop(t, testenv.SparseFile(t, int64(size)), 512)
	testenv.Fill(t, path, 0, int64(size), "secret  ")
	return path
}

// unchanged fails the test if a secretDisk was written.
func unchanged(t *testing.T, path string) {
	t.Helper()
	if data := content(t, path); bytes.Count(data, []byte("secret  ")) != len(data)/8 {
		t.Errorf("%s was written to", path)
	}
}

// A device that the kernel does not list, a cancelled erase and a map whose partitions cannot be dropped are errors
// before anything is written.
func TestErrorsBeforeWriting(t *testing.T) {
	path := secretDisk(t, mib)
	name := filepath.Base(path)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	broken := nvmeTree(t, name)
	put(t, broken.Sys("class/block", name, "dm/uuid"), "mpath-broken\n")
	if err := os.Mkdir(broken.Sys("class/block", name, "holders"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		ctx  context.Context
		sys  sysfs.Root
		want error // nil stands for any
	}{
		{"cancelled", cancelled, sysfs.Root{}, context.Canceled},
		{"multipath map", t.Context(), broken, nil},
	} {
		if err := Metadata(c.ctx, c.sys, path, Wait{}); err == nil || !errors.Is(err, c.want) && c.want != nil {
			t.Errorf("%s: Metadata: got %v, want an error", c.name, err)
		}
		unchanged(t, path)
		d := device(t, path)
		d.Type = "part" // its partitions are not looked at afterwards, which would fail too
		if method, err := tryRun(c.ctx, c.sys, d, Options{Zeroize: true}); err == nil ||
			!errors.Is(err, c.want) && c.want != nil {
			t.Errorf("%s: Run: got %q and %v, want an error", c.name, method, err)
		}
		unchanged(t, path)
	}
	d := block.Device{Name: "missing", Path: path, Type: "disk"}
	method, err := tryRun(t.Context(), nvmeTree(t, name), d, Options{Zeroize: true})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not listed: got %q and %v, want %v", method, err, fs.ErrNotExist)
	}
	unchanged(t, path)
	read := 0
	late := hooked{t.Context(), func() error { // after the holders were looked for
		if read++; read > 1 {
			return context.Canceled
		}
		return nil
	}}
	if err := Metadata(late, nvmeTree(t, name), path, Wait{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before the table was read: got %v, want %v", err, context.Canceled)
	}
	unchanged(t, path)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := (span{0, mib}).zero(cancelled, f, alignedZeros()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before a write: got %v, want %v", err, context.Canceled)
	}
	unchanged(t, path)
}

// A device that the kernel has claimed for an invisible holder is not written.
func TestClaimed(t *testing.T) {
	path := secretDisk(t, mib)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sys := nvmeTree(t, filepath.Base(path)) // without processes
	if err := Metadata(t.Context(), sys, path, Wait{}); !errors.Is(err, ErrBusy) || !errors.Is(err, unix.EBUSY) {
		t.Errorf("Metadata: got %v, want %v and %v", err, ErrBusy, unix.EBUSY)
	}
	if _, err := tryRun(t.Context(), sys, device(t, path), Options{Zeroize: true}); !errors.Is(err, ErrBusy) ||
		!errors.Is(err, unix.EBUSY) {
		t.Errorf("Run: got %v, want %v and %v", err, ErrBusy, unix.EBUSY)
	}
	unchanged(t, path)
}

// An erase that is cancelled after the last write is not reported as done: the data may not be on the medium yet.
func TestCancelledBeforeFlush(t *testing.T) {
	path := secretDisk(t, mib)
	cancelled := func() error { return context.Canceled }
	sys := nvmeTree(t, filepath.Base(path))
	if err := Metadata(whenZero(t, path, cancelled), sys, path, Wait{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Metadata: got %v, want %v", err, context.Canceled)
	}
	writeAt(t, path, 0, []byte("secret"))
	d := device(t, path)
	d.Type = "part"
	sys = partitionTree(t, "md127", d.Name)
	if method, err := tryRun(whenZero(t, path, cancelled), sys, d,
		Options{Zeroize: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: got %q and %v, want %v", method, err, context.Canceled)
	}
	d.Name, d.Path = "nvme0n1", "/dev/missing" // a drive that vanishes after the format
	open := func(string) (adminDevice, error) {
		return &fakeNVMe{oacs: 2, fakeSanitize: fakeSanitize{path: path}}, nil
	}
	method, err := tryRunWith(t.Context(), nvmeTree(t, "nvme0n1"), d, Options{NVMe: true}, nvmeOpeners(open))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("NVMe format: got %q and %v, want %v", method, err, fs.ErrNotExist)
	}
}

// A signature that another process writes during the erase is an error.
func TestMetadataChecked(t *testing.T) {
	testenv.Programs(t, "mkfs.ext4")
	image := testenv.SparseFile(t, 24*mib)
	testenv.Run(t, "mkfs.ext4", "-q", image)
	path := testenv.Loop(t, testenv.SparseFile(t, 24*mib), 512)
	ctx := whenZero(t, path, func() error { writeAt(t, path, 0, content(t, image)[:8192]); return nil })
	err := Metadata(ctx, nvmeTree(t, filepath.Base(path)), path, Wait{})
	if want := "a signature of ext4 is left"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
	path = testenv.Loop(t, testenv.SparseFile(t, 24*mib), 512)
	writeAt(t, path, 8*mib+4096, testenv.RAID{Name: "data", Level: 1, Size: 8 * mib}.Superblock(4096))
	if err := checkWiped(t.Context(), path, []span{{0, 24 * mib}}, nil); err != nil {
		t.Errorf("without the partition: got %v, want no error", err)
	}
	err = checkWiped(t.Context(), path, []span{{0, 24 * mib}, {8 * mib, 16 * mib}}, nil)
	if want := "an md superblock 1.2 is left at byte 8392704"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
	path = testenv.Loop(t, testenv.SparseFile(t, 24*mib), 512)
	writeAt(t, path, 3*mib+5, []byte("written by another"))
	err = checkWiped(t.Context(), path, []span{{0, 24 * mib}}, []span{{0, 2 * mib}, {2 * mib, 8 * mib}})
	if want := "not all 1048576 bytes at byte 3145728 read as zeros"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
	if err := checkWiped(t.Context(), "/dev/missing", nil, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing device: got %v, want %v", err, fs.ErrNotExist)
	}
	if _, err := readLayout(t.Context(), "/dev/missing", mib, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ranges of a missing device: got %v, want %v", err, fs.ErrNotExist)
	}
}

// A partition that the kernel cannot drop after the erase is an error: the kernel would keep a partition that no
// longer exists.
func TestPartitionOpened(t *testing.T) {
	testenv.Programs(t, "sgdisk")
	for name, erase := range map[string]func(path string, open func()) error{
		"metadata": func(path string, open func()) error {
			return Metadata(whenZero(t, path, func() error { open(); return nil }), sysfs.Root{}, path, Wait{})
		},
		"full": func(path string, open func()) error {
			_, err := tryRun(t.Context(), sysfs.Root{}, device(t, path),
				Options{Zeroize: true, Recorder: onProgress(func(int64, int64) { open() })})
			return err
		},
	} {
		path := testenv.Loop(t, testenv.SparseFile(t, 10*mib), 512)
		testenv.Run(t, "sgdisk", "-n", "1:2048:+1M", path)
		if err := partition.Sync(t.Context(), sysfs.Root{}, path); err != nil {
			t.Fatal(err)
		}
		var held *os.File
		err := erase(path, func() {
			var err error
			if held == nil {
				if held, err = os.Open(path + "p1"); err != nil {
					t.Error(err)
				}
			}
		})
		if !errors.Is(err, ErrBusy) {
			t.Errorf("%s: got %v, want %v", name, err, ErrBusy)
		}
		if held != nil {
			_ = held.Close() // only held
		}
		if err := partition.Sync(t.Context(), sysfs.Root{}, path); err != nil {
			t.Error(err)
		}
	}
}

// An erase fails if sysfs does not describe the device, because its partitions were not dropped. A device that the
// kernel does not list has none.
func TestPartitionsUnknown(t *testing.T) {
	path := secretDisk(t, mib)
	name := filepath.Base(path)
	sys := nvmeTree(t, name)
	put(t, sys.Sys("class/block", name, "size"), "unknown\n")
	if err := Metadata(t.Context(), sys, path, Wait{}); !errors.Is(err, strconv.ErrSyntax) {
		t.Errorf("got %v, want %v of the size", err, strconv.ErrSyntax)
	}
	if err := Metadata(t.Context(), nvmeTree(t), path, Wait{}); err != nil {
		t.Errorf("not listed: %v", err)
	}
}

// Partitions are erased before the disk: after a failure, the table still names those that hold data.
func TestMetadataOrder(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "sgdisk")
	dir := t.TempDir()
	testenv.Mount(t, "tmpfs", dir, "tmpfs", "size=3m")
	t.Cleanup(func() { testenv.Detach(t, dir) })
	image := filepath.Join(dir, "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64*mib); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "sgdisk", "-n", "1:40M:+8M", image)
	path := testenv.Loop(t, image, 512)
	if err := Metadata(t.Context(), nvmeTree(t, filepath.Base(path)), path, Wait{}); err == nil {
		t.Error("got no error of a disk that cannot be written")
	}
	if table, err := partition.Read(t.Context(), path); err != nil || len(table.Partitions) != 1 {
		t.Errorf("got table %+v and %v, want the partition", table, err)
	}
}

// Both kinds of erase close the device.
func TestDeviceClosed(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector closes what nothing refers to
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	if err := Guard(t.Context(), sysfs.Root{}, path); err != nil {
		t.Error(err)
	}
	if names, err := holders(t.Context(), sysfs.Root{}, path); len(names) > 0 || err != nil {
		t.Errorf("after Guard: got holders %v and %v, want none", names, err)
	}
	if err := Metadata(t.Context(), sysfs.Root{}, path, patient); err != nil {
		t.Error(err)
	}
	if names, err := holders(t.Context(), sysfs.Root{}, path); len(names) > 0 || err != nil {
		t.Errorf("after Metadata: got holders %v and %v, want none", names, err)
	}
	if _, err := tryRun(t.Context(), sysfs.Root{}, device(t, path), Options{Zeroize: true}); err != nil {
		t.Error(err)
	}
	if names, err := holders(t.Context(), sysfs.Root{}, path); len(names) > 0 || err != nil {
		t.Errorf("after Run: got holders %v and %v, want none", names, err)
	}
}

// The device is closed after a panic, so that the erase can be repeated.
func TestDeviceClosedAfterPanic(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector closes what nothing refers to
	for name, erase := range map[string]func(ctx context.Context, path string) error{
		"Metadata": func(ctx context.Context, path string) error { return Metadata(ctx, sysfs.Root{}, path, Wait{}) },
		"Run": func(ctx context.Context, path string) error {
			_, err := tryRun(ctx, sysfs.Root{}, device(t, path), Options{Zeroize: true})
			return err
		},
	} {
		path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
		ctx := hooked{t.Context(), func() error {
			f, err := os.OpenFile(path, os.O_RDONLY|unix.O_EXCL, 0)
			if errors.Is(err, unix.EBUSY) {
				panic("before a write")
			}
			return errors.Join(err, f.Close())
		}}
		var caught *goroutine.PanicError
		if err := goroutine.Catch(func() error { return erase(ctx, path) }); !errors.As(err, &caught) {
			t.Errorf("%s: got %v, want a panic", name, err)
		}
		if err := erase(t.Context(), path); err != nil {
			t.Errorf("%s: repeated: %v", name, err)
		}
	}
}

func TestOverwriteOpenErrors(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/dev/missing": "no such file", empty: "no size", "/dev/null": "size of /dev/null",
	} {
		err := overwrite(t.Context(), path, Options{Zeroize: true})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", path, err, want)
		}
	}
}

// Errors of the drive are errors of the erase.
func TestNVMeErrors(t *testing.T) {
	broken := errors.New("broken drive")
	disk := block.Device{Name: "nvme0n1", Path: "/dev/missing", Type: "part"}
	const management = 2 | oacsNamespaceManagement
	for _, c := range []struct {
		name  string
		drive fakeNVMe
		open  error
		want  error
		text  string
	}{
		{name: "cannot be opened", open: broken, want: broken},
		{name: "list of allocated namespaces", drive: fakeNVMe{oacs: management, allocatedError: broken}, want: broken},
		{
			name: "NVMe 1.1, too many", drive: fakeNVMe{oacs: 2, old: true, highest: 4097},
			text: "got 4097 namespaces, want at most 4096",
		},
		{
			name: "NVMe 1.1, identify", drive: fakeNVMe{oacs: 2, old: true, highest: 33}, want: unix.EINVAL,
			text: "namespace 33: ",
		},
		{
			name:  "others' namespaces in order",
			drive: fakeNVMe{oacs: management, fna: 1, active: []uint32{7, 9}, allocated: []uint32{2, 9}},
			want:  ErrUnsupported, text: "NVMe Format would also erase namespaces 2, 9\n",
		},
	} {
		method, err := tryRunWith(t.Context(), nvmeTree(t, "nvme0n1"), disk, Options{NVMe: true},
			nvmeOpeners(func(string) (adminDevice, error) { return &c.drive, c.open }))
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) ||
			len(c.drive.formats) > 0 {
			t.Errorf("%s: got %q, %v and formats %x, want %v with %q",
				c.name, method, err, c.drive.formats, c.want, c.text)
		}
	}
}

// A block device that is not an NVMe namespace fails every command.
func TestNVMeFile(t *testing.T) {
	if _, err := (exclusive{}).nvme("/dev/missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: got %v, want %v", err, fs.ErrNotExist)
	}
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	d, err := exclusive{}.nvme(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (exclusive{}).nvme(path); !errors.Is(err, unix.EBUSY) {
		t.Errorf("opened again: got %v, want %v", err, unix.EBUSY)
	}
	if _, err := d.namespace(); err == nil {
		t.Error("namespace: got no error")
	}
	f, size, err := d.medium()
	if err != nil || size != mib {
		t.Errorf("medium: got %d bytes and %v, want %d", size, err, mib)
	}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || flags&directIO == 0 {
		t.Errorf("medium: got flags 0x%x and %v, want direct I/O", flags, err)
	}
	if !d.readable() {
		t.Error("got unreadable, want readable")
	}
	gone, err := readOnly{}.nvme(os.DevNull)
	if err != nil || gone.readable() {
		t.Errorf("a device without a first block: got readable (%v), want unreadable", err)
	}
	if _, _, err := gone.medium(); err == nil {
		t.Error("a device without a size: got no error")
	}
	if err := gone.close(); err != nil {
		t.Error(err)
	}
	backing := testenv.SparseFile(t, mib)
	broken, err := readOnly{}.nvme(testenv.Loop(t, backing, 512))
	if err != nil || !broken.readable() {
		t.Errorf("got unreadable (%v), want readable", err)
	}
	if err := os.Truncate(backing, 0); err != nil || broken.readable() {
		t.Errorf("a device that returns errors: got readable (%v), want unreadable", err)
	}
	if err := broken.close(); err != nil {
		t.Error(err)
	}
	var errno unix.Errno
	if _, err := nvme.New(d).Identify(); !errors.As(err, &errno) {
		t.Errorf("command: got %v, want an error of the kernel", err)
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
	if err := d.close(); err == nil {
		t.Error("closed again: got no error")
	}
}

// Disks that cannot be read are errors and do not count as unprotected.
func TestSkipErrors(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	writeAt(t, path, 446, []byte{0, 0, 0, 0, 0x83, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0})
	writeAt(t, path, 510, []byte{0x55, 0xaa})
	name := filepath.Base(path)
	missing := nvmeTree(t, name) // a partition without a node
	put(t, missing.Sys("class/block", name, "missing1/partition"), "1\n")
	put(t, missing.Sys("class/block/missing1/size"), "8\n")
	for what, err := range map[string]error{
		"missing disk":      Guard(t.Context(), sysfs.Root{}, "/dev/missing"),
		"disk without node": Guard(t.Context(), nvmeTree(t, "missing"), "/dev/missing"),
		"no longer there":   guardTable(t.Context(), "/dev/missing", &partition.Table{}),
		"disk not listed":   Guard(t.Context(), nvmeTree(t), path),
		"missing partition": Guard(t.Context(), missing, path),
	} {
		if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrProtected) {
			t.Errorf("%s: got %v, want %v", what, err, fs.ErrNotExist)
		}
	}
	table := &partition.Table{Partitions: []partition.Partition{{Number: 4, Start: -mib, Size: mib}}}
	if err := guardTable(t.Context(), path, table); err == nil || !strings.Contains(err.Error(), "probe partition 4") {
		t.Errorf("unreadable partition: got %v, want an error", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := guardTable(cancelled, path, table); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
	if err := guardDevice(cancelled, path); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
	directory := t.TempDir()
	if err := guardDevice(t.Context(), directory); !errors.Is(err, unix.EISDIR) ||
		!strings.HasPrefix(err.Error(), "probe "+directory) {
		t.Errorf("unreadable disk: got %v, want %v", err, unix.EISDIR)
	}
	if _, err := ParametersFloppy(t.Context(), nvmeTree(t),
		block.Device{Name: "sdz", Path: path}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("disk not listed: got %v, want %v", err, fs.ErrNotExist)
	}
	stick := scsiDisk(t, "sdz", "usb1/1-1", 2048)
	makeRemovable(t, stick, "sdz")
	if _, err := ParametersFloppy(t.Context(), stick,
		block.Device{Name: "sdz", Path: "/dev/missing"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing medium: got %v, want %v", err, fs.ErrNotExist)
	}
}

// The partitions of a table that is neither a GPT nor an MBR have no type of a shared file system, but can contain
// one.
func TestGuardWithoutTable(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, 16*mib), 512)
	for n := 1; n < 3; n++ {
		if err := block.AddPartition(path, n, int64(n)*mib, mib); err != nil {
			t.Fatal(err)
		}
	}
	if err := Guard(t.Context(), sysfs.Root{}, path); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	writeAt(t, path, 2*mib+65536, []byte{0x01, 0x16, 0x19, 0x70})
	if err := Guard(t.Context(), sysfs.Root{}, path); !errors.Is(err, ErrProtected) {
		t.Errorf("gfs2: got %v, want %v", err, ErrProtected)
	}
}

// The partitions of a multipath map are maps. If the device mapper cannot list them, nothing is written: otherwise
// their superblocks would remain.
func TestMapPartitionsUnknown(t *testing.T) {
	path := secretDisk(t, mib)
	name := filepath.Base(path)
	sys := nvmeTree(t, name, "dm-9")
	put(t, sys.Sys("class/block", name, "dm/uuid"), "mpath-broken\n") // without a name
	put(t, sys.Sys("class/block", name, "holders/dm-9/dm/uuid"), "part1-mpath-broken\n")
	put(t, sys.Sys("class/block/dm-9/dm/uuid"), "part1-mpath-broken\n")
	if got, err := kernelRanges(t.Context(), sys, path); err == nil {
		t.Errorf("got %v, want an error", got)
	}
	if err := Metadata(t.Context(), sys, path, Wait{}); err == nil {
		t.Error("Metadata: got no error")
	}
	if err := Exclusive(t.Context(), sys, block.Device{Name: name, Path: path}, Wait{}, func(*os.File, int64) error {
		t.Error("Exclusive: the device was opened")
		return nil
	}); err == nil {
		t.Error("Exclusive: got no error")
	}
	unchanged(t, path)
}
