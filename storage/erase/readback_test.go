package erase

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/sysfs"
)

// fakeDisk is a disk of zeros with remnants of the same length, which need not be in order.
type fakeDisk struct {
	size     int64
	remnants []int64 // places
	length   int64
	read     map[int]bool // remnants of which a byte was read
}

func (d *fakeDisk) ReadAt(p []byte, offset int64) (int, error) {
	clear(p)
	end := offset + int64(len(p))
	for i, at := range d.remnants {
		if from, to := max(at, offset), min(at+d.length, end); from < to {
			d.read[i] = true
			for j := from; j < to; j++ {
				p[j-offset] = 'x'
			}
		}
	}
	return len(p), nil
}

func seedOf(n uint64) (s evidence.Seed) {
	binary.LittleEndian.PutUint64(s[:], n)
	return s
}

func probabilityOf(t *testing.T, b *evidence.ReadBack, length int64) float64 {
	t.Helper()
	for _, d := range b.Detection {
		if d.Bytes == length {
			return d.Probability
		}
	}
	t.Fatalf("got %v, want a probability for %d bytes", b.Detection, length)
	return 0
}

// 1 MiB at a random place is found with the probability that the evidence states.
func TestDetection(t *testing.T) {
	const size, length, seeds, remnants = 6<<30 + 512, 1 << 20, 12, 400
	random := rand.New(rand.NewPCG(7, 7))
	found, expected, variance := 0.0, 0.0, 0.0
	for n := range uint64(seeds) {
		disk := &fakeDisk{size: size, length: length, read: map[int]bool{}}
		for range remnants {
			disk.remnants = append(disk.remnants, random.Int64N(size-length+1))
		}
		result, err := readPlan(t.Context(), disk, size, seedOf(n), (&pattern{}).expected(), nil)
		if result == nil || !errors.Is(err, ErrNotErased) {
			t.Fatalf("got %v and %v, want ErrNotErased with a result", result, err)
		}
		p := probabilityOf(t, result, length)
		found += float64(len(disk.read))
		expected += p * remnants
		variance += p * (1 - p) * remnants
	}
	if deviation := math.Abs(found-expected) / math.Sqrt(variance); deviation > 4 {
		t.Errorf("found %v of %d, want about %.0f: %.1f standard deviations",
			found, seeds*remnants, expected, deviation)
	}
	if expected < 0.035*seeds*remnants || expected > 0.06*seeds*remnants {
		t.Errorf("got a probability of %v, want about 0.04", expected/seeds/remnants)
	}
	// A single remnant is an error exactly if a byte of it was read.
	hits := 0
	for n := range uint64(24) {
		disk := &fakeDisk{size: size, length: 16 << 20, read: map[int]bool{}}
		disk.remnants = []int64{random.Int64N(size - disk.length + 1)}
		result, err := readPlan(t.Context(), disk, size, seedOf(n), (&pattern{}).expected(), nil)
		if result == nil || errors.Is(err, ErrNotErased) != disk.read[0] || (result.Different > 0) != disk.read[0] ||
			err == nil && result.Zeros != result.Read {
			t.Errorf("place %d, read %v: got %+v and %v", disk.remnants[0], disk.read[0], result, err)
		}
		if disk.read[0] {
			hits++
		}
	}
	if hits == 0 || hits == 24 {
		t.Errorf("%d of 24 remnants were read, want some", hits)
	}
}

// The read-back of a disk that was overwritten is the last pass, of the whole disk.
func TestReadBack(t *testing.T) {
	const size = 9*mib + 512
	for name, c := range map[string]struct {
		o        Options
		expected string
		patterns []string
	}{
		"zeros":  {Options{Iterations: 1, Zeroize: true}, evidence.ExpectZeros, []string{"random", "zeros"}},
		"random": {Options{Iterations: 2}, evidence.ExpectWritten, []string{"random", "random"}},
	} {
		path := testenv.Loop(t, testenv.SparseFile(t, size), 512)
		writeAt(t, path, 0, bytes.Repeat([]byte("secret  "), size/8))
		var last, total int64
		record := onReadBack(func(done, all int64) { last, total = done, all })
		c.o.Recorder = record
		if _, err := tryRun(t.Context(), sysfs.Root{}, device(t, path), c.o); err != nil {
			t.Fatal(err)
		}
		o := record.Report()
		b := o.ReadBack
		if b == nil || b.Size != size || b.Read != size || !b.Direct || b.Expected != c.expected || b.Different != 0 ||
			probabilityOf(t, b, 4096) != 1 || b.Ended.Before(b.Started) || last != size || total != size {
			t.Errorf("%s: got %+v, progress %d of %d, want the whole disk", name, b, last, total)
		}
		if zeros := b.Zeros == size; zeros != (name == "zeros") {
			t.Errorf("%s: got %d zeros", name, b.Zeros)
		}
		var patterns []string
		for _, p := range o.Passes {
			patterns = append(patterns, p.Pattern)
			if p.Bytes != size || p.Ended.IsZero() {
				t.Errorf("%s: got pass %+v", name, p)
			}
		}
		if !slices.Equal(patterns, c.patterns) || o.Samples != nil || o.Reported != nil {
			t.Errorf("%s: got %+v, want passes %v only", name, o, c.patterns)
		}
	}
}

// A disk that does not keep what was written is not erased, whatever the last pass was.
func TestReadBackDiffers(t *testing.T) {
	const size = 16 * mib
	for _, zeroize := range []bool{true, false} {
		file := testenv.SparseFile(t, size)
		path := testenv.Loop(t, file, 512)
		place := rand.New(rand.NewPCG(3, 1)).Int64N(size/512) * 512
		record := onProgress(func(done, total int64) {
			if done == total {
				backing, err := os.OpenFile(file, os.O_RDWR, 0)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = backing.WriteAt([]byte(strings.Repeat("remnant ", 64)), place)
				if err := errors.Join(err, backing.Sync(), backing.Close()); err != nil {
					t.Error(err)
				}
			}
		})
		o := Options{Iterations: 1, Zeroize: zeroize, Recorder: record}
		method, err := tryRun(t.Context(), sysfs.Root{}, device(t, path), o)
		if !errors.Is(err, ErrNotErased) || method != "" ||
			!strings.Contains(err.Error(), "the first at byte "+strconv.FormatInt(place&^4095, 10)) {
			t.Errorf("zeroize %v: got %q and %v, want ErrNotErased at byte %d", zeroize, method, err, place)
		}
		if b := record.Report().ReadBack; b == nil || b.Different != 4096 || b.Read != size {
			t.Errorf("zeroize %v: got %+v, want one block that differs", zeroize, b)
		}
	}
}

// A read-back that fails or is cancelled has no result.
func TestReadBackFails(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, 16*mib), 512)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	record := onReadBack(func(int64, int64) { cancel() })
	o := Options{Zeroize: true, Recorder: record}
	if _, err := tryRun(ctx, sysfs.Root{}, device(t, path), o); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if b := record.Report().ReadBack; b != nil {
		t.Errorf("got %+v, want nothing", b)
	}
	// The plan of such a size would not fit into memory.
	huge := &fakeDisk{size: 1 << 60, read: map[int]bool{}}
	result, err := readPlan(t.Context(), huge, huge.size, seedOf(1), expectedAny, nil)
	if result != nil || err == nil || !strings.Contains(err.Error(), "1152921504606846976 bytes") {
		t.Errorf("1 EiB: got %v and %v, want an error with the size", result, err)
	}
	name := filepath.Join(t.TempDir(), "small")
	put(t, name, "short")
	small, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close() //nolint:errcheck // only read
	result, err = readPlan(t.Context(), small, mib, seedOf(1), (&pattern{}).expected(), nil)
	if result != nil || err == nil || !strings.Contains(err.Error(), "read back 1048576 bytes at byte 0") {
		t.Errorf("got %v and %v, want the place of the error", result, err)
	}
}

// Blocks of zeros, of ones and of other data are counted apart.
func TestReadBackClasses(t *testing.T) {
	ones := bytes.Repeat([]byte{0xff}, 8192)
	data := slices.Concat(ones[:4096], make([]byte, 4096), []byte("other"), make([]byte, 4091), ones, ones[:512])
	got, err := readPlan(t.Context(), bytes.NewReader(data), int64(len(data)), seedOf(1), expectedAny, nil)
	if err != nil || got.Ones != 3*4096+512 || got.Zeros != 4096 || got.Other != 4096 || got.Read != int64(len(data)) {
		t.Errorf("got %+v and %v, want 12800 bytes of ones, and 4096 each of zeros and other data", got, err)
	}
}

// A drive that is in use or cannot be read after its erase is an error. So is a read-back that is cancelled.
func TestReadBackDriveFails(t *testing.T) {
	backing := testenv.SparseFile(t, 16*mib)
	path := testenv.Loop(t, backing, 512)
	holder, err := os.OpenFile(path, os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := readBackDrive(t.Context(), sysfs.Root{}, device(t, path), Options{}, ATAErase); !errors.Is(err, ErrBusy) {
		t.Errorf("in use: got %v, want %v", err, ErrBusy)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(backing, 8*mib); err != nil {
		t.Fatal(err)
	}
	err = readBackDrive(t.Context(), sysfs.Root{}, device(t, path), Options{}, ATAErase)
	if !errors.Is(err, unix.EIO) {
		t.Errorf("unreadable: got %v, want %v", err, unix.EIO)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	disk := &fakeDisk{size: mib, read: map[int]bool{}}
	if result, err := readPlan(cancelled, disk, mib, seedOf(1), expectedAny, nil); result != nil ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %+v and %v, want %v", result, err, context.Canceled)
	}
}

// A report belongs to the caller. A nil recorder collects nothing.
func TestRecorderReport(t *testing.T) {
	record := &Recorder{}
	pass := func(r *Report) { r.Passes = append(r.Passes, evidence.Pass{Pattern: evidence.PatternZeros}) }
	record.change(pass)
	record.reported("Format NVM", "", true)
	first := record.Report()
	first.Passes[0].Pattern, first.Reported[0].Source = "", ""
	record.change(pass)
	record.AddLimit("a part")
	o := record.Report()
	if o.Restrictions[0] = ""; record.Report().Restrictions[0] != "a part" {
		t.Error("a report changed the recorder")
	}
	if len(o.Passes) != 2 || o.Passes[0].Pattern != evidence.PatternZeros || o.Reported[0].Source != "Format NVM" {
		t.Errorf("got %+v, want two passes of zeros and a Format", o)
	}
	var none *Recorder
	none.reported("Format NVM", "", true)
	none.observe(Progress{})
	if got := none.Report(); len(got.Reported) > 0 {
		t.Errorf("no recorder: got %+v", got)
	}
}

// The report of a drive, the samples and the read-back are traced, also if the drive keeps data.
func TestTraceATA(t *testing.T) {
	for name, c := range map[string]struct {
		drive     fakeATA
		source    string
		completed bool
		err       error
		unchanged int64
	}{
		"secure erase": {drive: fakeATA{}, source: "SECURITY ERASE UNIT", completed: true},
		"sanitize":     {fakeATA{noSecurity: true, sanitize: sanitizeBlock}, "SANITIZE STATUS EXT", true, nil, 0},
		"sanitize fails": {
			drive:  fakeATA{noSecurity: true, sanitize: sanitizeBlock, sanitizeFails: true},
			source: "SANITIZE STATUS EXT",
		},
		"keeps data": {fakeATA{keeps: [2]int64{0, ataSize}}, "SECURITY ERASE UNIT", true, ErrNotErased, 256},
	} {
		t.Run(name, func(t *testing.T) {
			path := testenv.Loop(t, testenv.SparseFile(t, ataSize), 512)
			put(t, path, string(bytes.Repeat([]byte("secret  "), ataSize/8)))
			drive := c.drive
			drive.path = path
			d := device(t, path)
			d.Transport = "sata"
			record := &Recorder{}
			_, err := tryRunWith(t.Context(), sysfs.Root{}, d, Options{ATA: true, Recorder: record},
				sgOpeners(drive.open))
			if c.err != nil && !errors.Is(err, c.err) || (err == nil) != (c.completed && c.err == nil) {
				t.Fatalf("got %v, want %v", err, c.err)
			}
			o := record.Report()
			if len(o.Reported) != 1 || o.Reported[0].Source != c.source || o.Reported[0].Completed != c.completed {
				t.Errorf("got %+v, want one statement of %s, completed %v", o.Reported, c.source, c.completed)
			}
			if o.Firmware != "AB12CD34" || !o.NoRotationRate {
				t.Errorf("got firmware %q, no rotation rate %t, want AB12CD34, true", o.Firmware, o.NoRotationRate)
			}
			if s := o.Samples; c.completed && (s == nil || s.Blocks != 256 || s.Comparable != 256 || !s.Written ||
				s.Unchanged != c.unchanged || len(s.Detection) == 0) {
				t.Errorf("got samples %+v, want 256, %d unchanged", s, c.unchanged)
			}
			if b := o.ReadBack; (b != nil) != (err == nil) ||
				b != nil && (b.Expected != evidence.ExpectUniform || b.Read != ataSize) {
				t.Errorf("got read-back %+v", b)
			}
		})
	}
}

// A Format that keeps data is an error, and the drive is overwritten if it may be. An express erase removes the
// metadata and fails.
func TestFormatKeepsData(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
		disk := block.Device{Name: "nvme0n1", Path: path, Type: "part"} // a loop device plays its node
		open := func(string) (adminDevice, error) {
			return &fakeNVMe{oacs: 2, formatKeeps: keeps, fakeSanitize: fakeSanitize{path: path}}, nil
		}
		want := map[bool]error{true: ErrNotErased}[keeps]
		record := &Recorder{}
		method, err := tryRunWith(t.Context(), nvmeTree(t, "nvme0n1"), disk, Options{NVMe: true, Recorder: record},
			nvmeOpeners(open))
		if !errors.Is(err, want) || (method == NVMeUser) != (want == nil) {
			t.Errorf("keeps %v: got %q and %v, want %v", keeps, method, err, want)
		}
		o := record.Report()
		unchanged := map[bool]int64{true: 256}[keeps]
		if s := o.Samples; s == nil || s.Comparable != 256 || s.Unchanged != unchanged {
			t.Errorf("keeps %v: got samples %+v", keeps, s)
		}
		if len(o.Reported) != 1 || o.Reported[0].Source != "Format NVM" || !o.Reported[0].Completed {
			t.Errorf("keeps %v: got %+v, want the completed command", keeps, o.Reported)
		}
		method, err = tryRunWith(t.Context(), nvmeTree(t, "nvme0n1"), disk,
			Options{NVMe: true, Zeroize: true, ContinueOnFailure: true}, nvmeOpeners(open))
		if err != nil || keeps != strings.HasPrefix(string(method), "overwrite; secure erase failed: drive reported") {
			t.Errorf("keeps %v, may overwrite: got %q and %v", keeps, method, err)
		}
		writeAt(t, path, 1024, []byte("signature"))
		method, err = tryExpressWith(t.Context(), nvmeTree(t, "nvme0n1"), disk, Options{NVMe: true}, func(error) {},
			open)
		if !errors.Is(err, want) || (method == NVMeUser) != (want == nil) {
			t.Errorf("keeps %v, express: got %q and %v, want %v", keeps, method, err, want)
		}
		if wiped := !bytes.Contains(content(t, path), []byte("signature")); wiped != keeps {
			t.Errorf("keeps %v, express: got metadata removed %v", keeps, wiped)
		}
	}
}

// The state of an NVMe sanitize is traced from the drive's log, also if the drive aborts it, which is an error.
func TestTraceNVMeSanitize(t *testing.T) {
	for _, fails := range []bool{false, true} {
		path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
		disk := block.Device{Name: "nvme0n1", Path: path, Type: "part"} // a loop device plays its node
		open := func(string) (adminDevice, error) {
			return &fakeNVMe{fakeSanitize: fakeSanitize{path: path, sanicap: sanicapBlock, fails: fails}}, nil
		}
		record := &Recorder{}
		method, err := tryRunWith(t.Context(), nvmeTree(t, "nvme0n1"), disk,
			Options{NVMe: true, NVMeSanitize: true, Recorder: record}, nvmeOpeners(open))
		if (err != nil) != fails || (method == NVMeSanitizeBlock) == fails {
			t.Errorf("fails %v: got %q and %v", fails, method, err)
		}
		o := record.Report()
		if len(o.Reported) != 1 || !strings.Contains(o.Reported[0].Text, "SSTAT 0x") ||
			o.Reported[0].Completed == fails {
			t.Errorf("fails %v: got %+v, want one state of the log", fails, o.Reported)
		}
		if (o.Samples == nil) != fails || (o.ReadBack == nil) != fails {
			t.Errorf("fails %v: got samples %+v and read-back %+v", fails, o.Samples, o.ReadBack)
		}
	}
}

// Namespaces that a Format does not erase are traced: the evidence of one namespace does not cover the drive.
func TestTraceOtherNamespaces(t *testing.T) {
	for _, c := range []struct {
		active []uint32
		want   string
	}{{nil, ""}, {[]uint32{3, 7, 9}, "the drive has namespaces 3, 9, too"}} {
		path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
		disk := block.Device{Name: "nvme0n1", Path: path, Type: "part"} // a loop device plays its node
		open := func(string) (adminDevice, error) {
			return &fakeNVMe{oacs: 2, active: c.active, fakeSanitize: fakeSanitize{path: path}}, nil
		}
		record := &Recorder{}
		method, err := tryRunWith(t.Context(), nvmeTree(t, "nvme0n1"), disk, Options{NVMe: true, Recorder: record},
			nvmeOpeners(open))
		if got := record.Report().Target().LimitText(); err != nil || method != NVMeUser || got != c.want {
			t.Errorf("namespaces %v: got %q, %v and %q, want %q", c.active, method, err, got, c.want)
		}
	}
}

// Only a disk that is known to be one physical drive is not virtual.
func TestDescribe(t *testing.T) {
	sys := sysfs.Root{Path: t.TempDir()}
	for name, text := range map[string]string{
		"sda/device/rev": "AB12\n", "nvme0n1/device/firmware_rev": "1.0 \n", "nvme0n1/device/transport": "pcie\n",
		"nvme1n1/device/transport": "tcp\n", "nvme2n1/device/nvme2/transport": "pcie\n",
		"nvme2n1/device/nvme3/transport": "pcie\n", "nvme4n1/device/nvme2/transport": "pcie\n",
		"nvme4n1/device/nvme3/transport": "tcp\n", "mmcblk0/device/fwrev": "0x5\n",
	} {
		file := sys.Sys("class/block", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, file, text)
	}
	for _, dir := range []string{
		"devices/host0/port-0:0/end_device-0:0/block/sdb", "devices/host0/target0:1:0/block/sdc",
	} {
		if err := os.MkdirAll(sys.Sys(dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(sys.Sys(dir), sys.Sys("class/block", filepath.Base(dir))); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		d       block.Device
		virtual string
	}{
		{block.Device{Name: "sda", Type: "disk", Transport: "sata", Model: "WDC WD40"}, ""},
		{block.Device{Name: "sda", Type: "disk", Transport: "sata", Model: "QEMU HARDDISK"}, "virtual disk"},
		{block.Device{Name: "sda", Type: "disk", Transport: "", Vendor: "ACME"}, "RAID volume"},
		{block.Device{Name: "sda", Type: "disk", Transport: "sas", Model: "PERC H730 Mini"}, "virtual disk"},
		{block.Device{Name: "sda", Type: "disk", Transport: "iscsi"}, "iscsi"},
		{block.Device{Name: "vda", Type: "disk", Transport: "virtio"}, "virtio"},
		{block.Device{Name: "sdb", Type: "disk", Transport: "sas", Model: "ST4000"}, ""},
		{block.Device{Name: "sdc", Type: "disk", Transport: "sas", Model: "ST4000"}, "SAS domain"},
		{block.Device{Name: "sdd", Type: "disk", Transport: "sas", Model: "ST4000"}, "SAS domain"},
		{block.Device{Name: "nvme0n1", Type: "disk", Transport: "nvme"}, ""},
		{block.Device{Name: "nvme0n1", Type: "disk", Transport: "nvme", Model: "Dell BOSS-N1"}, "virtual disk"},
		{
			block.Device{
				Name: "nvme0n1", Type: "disk", Transport: "nvme", Model: "HPE NS204i-p Gen10+ Boot Controller",
			},
			"virtual disk",
		},
		{ // as lsblk shows it
			block.Device{
				Name: "nvme0n1", Type: "disk", Transport: "nvme", Model: "Alibaba Cloud Elastic Block Storage",
			},
			"virtual disk",
		},
		{block.Device{Name: "nvme0n1", Type: "disk", Transport: "nvme", Model: "SPDK bdev Controller"}, "virtual disk"},
		{block.Device{Name: "sda", Type: "disk", Transport: "sata", Model: "ThinkSystem M.2 VD"}, "virtual disk"},
		{block.Device{Name: "nvme1n1", Type: "disk", Transport: "nvme"}, "tcp"},
		{block.Device{Name: "nvme2n1", Type: "disk", Transport: "nvme"}, ""},
		{block.Device{Name: "nvme3n1", Type: "disk", Transport: "nvme"}, `""`},
		{block.Device{Name: "nvme4n1", Type: "disk", Transport: "nvme"}, `""`},
		{block.Device{Name: "dm-0", Type: "mpath", Transport: "fc"}, "mpath"},
		{block.Device{Name: "md0", Type: "raid1"}, "raid1"},
	} {
		got := Describe(sys, c.d).Virtual
		if (got == "") != (c.virtual == "") || !strings.Contains(got, c.virtual) {
			t.Errorf("%s %s %s: got %q, want %q", c.d.Name, c.d.Transport, c.d.Model, got, c.virtual)
		}
	}
	for name, want := range map[string]string{"sda": "AB12", "nvme0n1": "1.0", "mmcblk0": "0x5", "missing": ""} {
		transport := ""
		for _, kind := range []string{"nvme", "mmc"} {
			if strings.HasPrefix(name, kind) {
				transport = kind
			}
		}
		if got := Describe(sys, block.Device{Name: name, Transport: transport}).Firmware; got != want {
			t.Errorf("%s: got firmware %q, want %q", name, got, want)
		}
	}
}
