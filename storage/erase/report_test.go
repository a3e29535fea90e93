package erase

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/sysfs"
)

// An overwrite says of which passes it consisted, and what the read-back of the last one shows: zeros can come from a
// device that ignores writes, random data cannot. If zeros were replaced by random data, it says so.
func TestOverwritten(t *testing.T) {
	const zeros = "all zeros, which a device that ignores writes can return, too"
	const random = "all as written, which proves that the device stores what is written"
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Zeroize: true}, "passes: 1, the last of zeros; read back: %d of %d bytes, " + zeros},
		{Options{Iterations: 2, Zeroize: true}, "passes: 3, the last of zeros; read back: %d of %d bytes, " + zeros},
		{Options{Iterations: 2}, "passes: 2, the last of random data; read back: %d of %d bytes, " + random},
		{
			Options{Iterations: 1, prove: true},
			"passes: 1, the last of random data; read back: %d of %d bytes, " + random,
		},
		{
			Options{Iterations: 1, Zeroize: true, prove: true},
			"passes: 2, the last of random data instead of zeros, because it is not known whether the drive is " +
				"locked; read back: %d of %d bytes, " + random,
		},
	} {
		path := testenv.Loop(t, testenv.SparseFile(t, ataSize), 512)
		record := &Recorder{}
		c.o.Recorder = record
		if err := overwrite(t.Context(), path, c.o); err != nil {
			t.Fatal(err)
		}
		o := record.Report()
		o.ReadBack.Direct = true // a loop device need not have it
		want := fmt.Sprintf(c.want, o.ReadBack.Read, int64(ataSize))
		if got := o.Overwritten(); got != want {
			t.Errorf("%+v: got %q, want %q", c.o, got, want)
		}
	}
	// Without a read-back nothing is claimed; through the cache nothing is shown.
	o := Report{Passes: []evidence.Pass{{Pattern: evidence.PatternRandom}}}
	if got := o.Overwritten(); got != "" {
		t.Errorf("not read back: got %q", got)
	}
	o.ReadBack = &evidence.ReadBack{Read: 1, Size: 2}
	const cached = "passes: 1, the last of random data; read back: 1 of 2 bytes, through the kernel's cache, which " +
		"does not show what the device stores"
	if got := o.Overwritten(); got != cached {
		t.Errorf("through the cache: got %q, want %q", got, cached)
	}
}

// The report of an erase that the kernel does not return from has what is known until then, and no technique.
func TestReportOfStuckErase(t *testing.T) {
	disk := ataMedium(t)
	synctest.Test(t, func(t *testing.T) {
		drive := fakeATA{path: disk.Path, native: ataSize/512 + 7, takes: 1000 * time.Hour}
		record, ended := &Recorder{}, make(chan struct{})
		_, err := timelimit.Do(t.Context(), timelimit.Limits{NoProgress: time.Hour, Grace: time.Minute},
			func(ctx context.Context) (Technique, error) {
				defer close(ended)
				return eraseATA(ctx, sysfs.Root{}, disk, Options{ATA: true, Recorder: record}, drive.open)
			})
		if !errors.Is(err, timelimit.ErrStuck) {
			t.Errorf("got %v, want %v", err, timelimit.ErrStuck)
		}
		r := record.Report()
		if r.Firmware != "AB12CD34" || r.Hidden.Bytes() == 0 || len(r.Reported) != 1 || r.Technique != "" {
			t.Errorf("got %+v, want the firmware, the hidden sectors and no technique", r)
		}
		if target := r.Target(); target.Hidden != r.Hidden || len(target.Reported) != 1 || target.Limits != nil {
			t.Errorf("got evidence %+v, want what is known", target)
		}
		<-ended
	})
}

// A drive is a hard disk in the evidence only if it says that its media rotate. The kernel does not ask for that. The
// firmware is the one that the drive reported, if it was asked.
func TestReportDisk(t *testing.T) {
	for _, tt := range []struct{ kernel, silent, want bool }{
		{true, false, true}, {true, true, false}, {false, false, false}, {false, true, false},
	} {
		got := Report{NoRotationRate: tt.silent}.Disk(evidence.Disk{Rotational: tt.kernel, Firmware: "short"})
		if got.Rotational != tt.want || got.Firmware != "short" {
			t.Errorf("%+v: got %+v", tt, got)
		}
	}
	if got := (Report{Firmware: "FW42"}).Disk(evidence.Disk{Firmware: "42"}).Firmware; got != "FW42" {
		t.Errorf("got firmware %q, want FW42", got)
	}
}
