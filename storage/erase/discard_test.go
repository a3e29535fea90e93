package erase

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/ata"
	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/sysfs"
)

// fakeDiscard is a device that can be discarded.
type fakeDiscard struct {
	secure error // of secure discards
	plain  error // of other discards
	from   int64 // byte at which they begin to fail
	keeps  bool  // discards change nothing
	ones   bool  // discarded blocks are ones
	remain int64 // one byte that no discard changes; 0 for none
	after  func(offset int64)

	offsets []int64 // of the plain discards
}

func (d *fakeDiscard) discard(f *os.File, offset, length int64, secure bool) error {
	if secure && d.secure != nil {
		return d.secure
	}
	if !secure {
		d.offsets = append(d.offsets, offset)
		if d.plain != nil && offset >= d.from {
			return d.plain
		}
	}
	if d.after != nil {
		d.after(offset)
	}
	if d.keeps {
		return nil
	}
	w, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	data := make([]byte, length)
	if d.ones {
		data = bytes.Repeat([]byte{0xff}, len(data))
	}
	if at := d.remain - offset; d.remain > 0 && at >= 0 && at < length {
		data[at] = 'x'
	}
	_, err = w.WriteAt(data, offset)
	return errors.Join(err, w.Sync(), w.Close())
}

const (
	frozenText = "ATA security is frozen by the firmware (the drive has no sanitize command): switch the drive off " +
		"and on, or disable the freeze lock in the firmware's settings"
	insteadText = "; secure erase failed: " + frozenText
)

// discardSize is not a multiple of the block size of loop devices, nor of the size of a sample.
const discardSize = 9*mib + 512

// frozenDisk returns an SSD whose firmware has frozen its own erase, with data in every sector.
func frozenDisk(t *testing.T, size int64) (block.Device, openers) {
	t.Helper()
	path := testenv.Loop(t, testenv.SparseFile(t, size), 512)
	writeAt(t, path, 0, bytes.Repeat([]byte("secret  "), int(size/8)))
	drive := &fakeATA{path: path, frozen: true}
	d := device(t, path)
	d.Transport, d.Rotational = "sata", false
	return d, sgOpeners(drive.open)
}

// A disk whose own erase is possible, but failed, is discarded if the option is set: as ironic-python-agent does, never
// instead of an overwrite of a disk without an erase of its own. If not every byte is zero afterwards, the rules of
// a failed secure erase apply.
//
// Parity: U1
func TestDiscard(t *testing.T) {
	ask := Options{ATA: true, Zeroize: true, Discard: true}
	both := ask
	both.ContinueOnFailure = true
	only := []string{"BLKSECDISCARD: not supported by the disk", "BLKDISCARD: completed"}
	failed := []string{only[0], "BLKDISCARD: 9437696 bytes at byte 0: input/output error"}
	for _, c := range []struct {
		name     string
		o        Options
		disk     func(d *block.Device, drive *fakeATA)
		device   *fakeDiscard // nil for the kernel
		method   Technique
		texts    []string // of the error
		reported []string
	}{
		{name: "kernel", o: ask, method: "discard" + insteadText, reported: only},
		{name: "kernel, may overwrite", o: both, method: "discard" + insteadText, reported: only},
		{name: "off", o: Options{ATA: true, Zeroize: true}, texts: []string{frozenText}},
		{
			name: "off, may overwrite", o: Options{ATA: true, Zeroize: true, ContinueOnFailure: true},
			method: "overwrite" + insteadText,
		},
		{
			name: "secure discard", o: ask, device: &fakeDiscard{}, method: "discard" + insteadText,
			reported: []string{"BLKSECDISCARD: completed"},
		},
		{
			name: "secure discard fails", o: ask, device: &fakeDiscard{secure: unix.EIO},
			method: "discard" + insteadText, reported: []string{
				"BLKSECDISCARD: 9437696 bytes at byte 0: input/output error", "BLKDISCARD: completed",
			},
		},
		{
			name: "content kept", o: ask, device: &fakeDiscard{secure: unix.EOPNOTSUPP, keeps: true},
			texts: []string{
				frozenText, "discard: drive reported success but still holds data: 256 of 256 samples",
			}, reported: only,
		},
		{
			name: "content kept, may overwrite", o: both, device: &fakeDiscard{secure: unix.EOPNOTSUPP, keeps: true},
			method: "overwrite" + insteadText + "; discard: drive reported success but still holds data: 256 of 256 " +
				"samples, the first at byte 0", reported: only,
		},
		{
			name: "one byte kept", o: ask, device: &fakeDiscard{secure: unix.EOPNOTSUPP, remain: 5*mib + 4095},
			texts: []string{
				"discard: drive reported success but still holds data: 4096 of 9437696 bytes are in blocks that are " +
					"not zeros, the first at byte 5242880",
			}, reported: only,
		},
		{
			name: "last byte kept", o: ask, device: &fakeDiscard{secure: unix.EOPNOTSUPP, remain: discardSize - 1},
			texts:    []string{"512 of 9437696 bytes are in blocks that are not zeros, the first at byte 9437184"},
			reported: only,
		},
		{
			name: "ones", o: ask, device: &fakeDiscard{secure: unix.EOPNOTSUPP, ones: true},
			texts: []string{"9437696 of 9437696 bytes are in blocks that are not zeros"}, reported: only,
		},
		{
			name: "failure", o: ask, device: &fakeDiscard{secure: unix.EOPNOTSUPP, plain: unix.EIO},
			texts: []string{
				"discard: BLKSECDISCARD: not supported by the disk",
				"BLKDISCARD: 9437696 bytes at byte 0: input/output error",
			}, reported: failed,
		},
		{
			name: "failure, may overwrite", o: both,
			device: &fakeDiscard{secure: unix.EOPNOTSUPP, plain: unix.EIO},
			method: "overwrite" + insteadText + "; discard: BLKSECDISCARD: not supported by the disk; " +
				"BLKDISCARD: 9437696 bytes at byte 0: input/output error", reported: failed,
		},
		{
			name: "rotates", o: ask, disk: func(d *block.Device, _ *fakeATA) { d.Rotational = true },
			texts: []string{frozenText, "discard: rotational disk"},
		},
		{
			name: "rotates, may overwrite", o: both, disk: func(d *block.Device, _ *fakeATA) { d.Rotational = true },
			method: "overwrite" + insteadText + "; discard: rotational disk",
		},
		{
			name: "without erase", o: ask, disk: func(_ *block.Device, drive *fakeATA) { drive.noSecurity = true },
			method: "overwrite",
		},
		{
			name: "secure erase off", o: Options{Zeroize: true, Discard: true}, method: "overwrite",
		},
		{
			name: "secure erase", o: ask, disk: func(_ *block.Device, drive *fakeATA) { drive.frozen = false },
			method: "ata-secure-erase",
		},
		{
			name: "password stays", o: both,
			disk:  func(_ *block.Device, drive *fakeATA) { drive.password = &ata.Password{'t'} },
			texts: []string{ErrLocked.Error()},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, _ := frozenDisk(t, discardSize)
			drive := &fakeATA{path: d.Path, frozen: true}
			if c.disk != nil {
				c.disk(&d, drive)
			}
			if c.device != nil {
				c.o.discarder = c.device
			}
			c.o.Recorder = &Recorder{}
			method, err := decidedRun(
				t.Context(), t, sysfs.Root{}, d, c.o, sgOpeners(drive.open))
			if method != c.method || (err == nil) != (c.method != "") {
				t.Fatalf("got %q, %v, want %q", method, err, c.method)
			}
			for _, text := range c.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("got error %v, want one with %q", err, text)
				}
			}
			report := c.o.Recorder.Report()
			var reported []string
			for _, s := range report.Reported {
				if strings.HasPrefix(s.Source, "BLK") {
					reported = append(reported, s.Source+": "+s.Text)
					if s.Completed != (s.Text == "completed") {
						t.Errorf("got %+v", s)
					}
				}
			}
			if !slices.Equal(reported, c.reported) {
				t.Errorf("got reported %q, want %q", reported, c.reported)
			}
			if left := bytes.Trim(content(t, d.Path), "\x00"); c.method != "" && len(left) > 0 {
				t.Errorf("got %d bytes from %q, want zeros", len(left), left[:min(len(left), 16)])
			}
			b := report.ReadBack
			if report.Technique == Discard && (b == nil || !b.Whole || b.Read != discardSize || !b.Direct ||
				b.Zeros != b.Read || b.Expected != evidence.ExpectZeros || report.Samples.Blocks != 256 ||
				!report.Samples.Written || report.Samples.Unchanged != 0) {
				t.Errorf("got read-back %+v and samples %+v", b, report.Samples)
			}
		})
	}
}

// A SCSI disk whose sanitize failed is discarded. An NVMe drive is not, nor a disk that accepts no data.
//
// Parity: U1 (disks)
func TestDiscardsAfter(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"sda", errors.New("any"), true},
		{"sda", ErrNotErased, true},
		{"nvme0n1", errors.New("any"), false},
		{"sda", nil, false},
		{"sda", ErrUnsupported, false},
		{"sda", ErrLocked, false},
		{"sda", ErrTCGLocked, false},
		{"sda", errRejects, false},
	} {
		for _, enabled := range []bool{true, false} {
			want := c.want && enabled
			if got := (Options{Discard: enabled}).discardsAfter(block.Device{Name: c.name}, c.err); got != want {
				t.Errorf("%s, %v, enabled %t: got %t, want %t", c.name, c.err, enabled, got, want)
			}
		}
	}
	d, _ := frozenDisk(t, discardSize)
	disk := &fakeSCSI{path: d.Path, actions: []byte{2}, mlu: 1, rejects: true}
	d.Transport, d.HCTL = "sas", "0:0:0:0"
	o := Options{SCSI: true, Zeroize: true, Discard: true}
	method, err := decidedRun(t.Context(), t, sysfs.Root{}, d, o, sgOpeners(disk.open))
	if !strings.HasPrefix(string(method), "discard; secure erase failed: SANITIZE BLOCK ERASE") {
		t.Errorf("got %q, %v, want a discard", method, err)
	}
}

// A device is discarded in parts, which end at multiples of its granularity.
//
// Parity: U1 (parts)
func TestDiscardUnit(t *testing.T) {
	for _, c := range []struct {
		max, granularity string
		want             int64
		text             string
	}{
		{"2147450880", "4096", 1 << 30, ""},
		{"2147450880", "0", 1 << 30, ""},
		{"2147450880", "3145728", 341 * 3 << 20, ""},
		{"4294967296", "2147483648", 2 << 30, ""},
		{"0", "0", 0, "not supported by the disk"},
		{"many", "0", 0, "invalid syntax"},
		{"", "0", 0, "no such file"},
		{"1", "", 0, "no such file"},
	} {
		sys := sysfs.Root{Path: t.TempDir()}
		for name, text := range map[string]string{
			"discard_max_bytes": c.max, "discard_granularity": c.granularity,
		} {
			if text != "" {
				put(t, sys.Sys("class/block/sda/queue", name), text+"\n")
			}
		}
		got, err := discardUnit(sys, block.Device{Name: "sda"})
		if got != c.want || (err == nil) != (c.text == "") || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: got %d, %v", c, got, err)
		}
	}
	_, err := discardUnit(sysfs.Root{}, block.Device{Zoned: "host-managed"})
	if err == nil || err.Error() != "zoned disk" {
		t.Errorf("zoned: got %v", err)
	}
	d := &fakeDiscard{secure: unix.EOPNOTSUPP, keeps: true}
	var seen []int64
	o := Options{discarder: d, Recorder: &Recorder{Observer: observe(func(p Progress) {
		if p.Phase == Discarding && p.Total == 2500 {
			seen = append(seen, p.Done)
		}
	})}}
	if err := discardAll(t.Context(), nil, 2500, 1000, o); err != nil {
		t.Fatal(err)
	}
	if want := []int64{0, 1000, 2000}; !slices.Equal(d.offsets, want) || !slices.Equal(seen[1:], want) {
		t.Errorf("got discards at %d and progress %d, want %d", d.offsets, seen, want)
	}
	d = &fakeDiscard{secure: unix.EOPNOTSUPP, plain: unix.EIO, from: 1000, keeps: true}
	o.discarder = d
	want := "BLKSECDISCARD: not supported by the disk\nBLKDISCARD: 1000 bytes at byte 1000: input/output error"
	if err := discardAll(t.Context(), nil, 2500, 1000, o); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A cancelled erase discards no further part, does not try the other discard, and is not continued by an overwrite.
func TestDiscardCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := &fakeDiscard{keeps: true, after: func(int64) { cancel() }}
	if err := discardAll(ctx, nil, 2500, 1000, Options{discarder: d}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it cancelled", err)
	}
	if len(d.offsets) > 0 {
		t.Errorf("got discards at %d after a secure one was cancelled", d.offsets)
	}
	disk, open := frozenDisk(t, discardSize)
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	d = &fakeDiscard{keeps: true, after: func(int64) { cancel() }}
	o := Options{ATA: true, Zeroize: true, Discard: true, ContinueOnFailure: true, discarder: d}
	if method, err := tryRunWith(ctx, sysfs.Root{}, disk, o, open); method != "" || !errors.Is(err, context.Canceled) {
		t.Errorf("got %q, %v, want it cancelled", method, err)
	}
	if !bytes.Contains(content(t, disk.Path), []byte("secret")) {
		t.Error("the disk was overwritten")
	}
}

// Decide returns that the disk will be discarded, and writes nothing.
//
// Parity: U1 (decision)
func TestDecideDiscard(t *testing.T) {
	d, open := frozenDisk(t, discardSize)
	before := content(t, d.Path)
	o := Options{ATA: true, Zeroize: true, Discard: true, decideOnly: true}
	if method, err := tryRunWith(t.Context(), sysfs.Root{}, d, o, open); method != "discard"+insteadText {
		t.Errorf("got %q, %v, want a discard", method, err)
	}
	if !bytes.Equal(content(t, d.Path), before) {
		t.Error("the decision changed the disk")
	}
}

// A device that ignores writes, and would return zeros after a discard, is not discarded.
func TestDiscardIgnoredWrites(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, ataSize), 512)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := &fakeDiscard{secure: unix.EOPNOTSUPP}
	err = discardFile(&forgetting{Context: t.Context(), path: path}, f, ataSize, ataSize,
		Options{discarder: d, Recorder: &Recorder{}})
	if err == nil || !strings.Contains(err.Error(), "the drive ignores writes") || len(d.offsets) > 0 {
		t.Errorf("got %v and discards at %d, want an error before the first discard", err, d.offsets)
	}
}

// A discard that takes longer than the time limit without progress does not end, as long as parts of it do.
func TestDiscardProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDiscard{keeps: true, after: func(int64) { time.Sleep(50 * time.Second) }}
		limits := timelimit.Limits{NoProgress: time.Minute, Grace: time.Second}
		err := timelimit.Run(t.Context(), limits, func(ctx context.Context) error {
			return discardAll(ctx, nil, 2500, 1000, Options{discarder: d})
		})
		if err != nil {
			t.Error(err)
		}
	})
}
