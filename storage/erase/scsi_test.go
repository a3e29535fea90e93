package erase

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/scsi"
	"ironroot/storage/sysfs"
)

// fakeSCSI is the transport of a SCSI disk with the states of a sanitize in SBC-4. Its medium is a file.
type fakeSCSI struct {
	path string
	log  []string // names of the commands that change the disk

	actions   []byte // supported service actions of SANITIZE
	mlu       byte   // MLU of REPORT SUPPORTED OPERATION CODES
	usage     byte   // bits of byte 1 of SANITIZE that are supported, 0 stands for IMMED and AUSE
	noReport  bool   // the disk does not support REPORT SUPPORTED OPERATION CODES
	after     byte   // byte 7 of the Block Device Characteristics; 0 stands for a disk without the page
	hostError uint16 // of REPORT SUPPORTED OPERATION CODES

	sanitizing time.Duration // duration of a sanitize
	end        time.Time     // of the one in progress
	fails      bool          // the sanitize fails
	failed     bool          // the last one failed
	exitFails  bool
	rejects    bool     // SANITIZE is rejected
	ignored    bool     // SANITIZE succeeds without an effect
	lost       bool     // the result of SANITIZE is lost: the adapter is reset, and the sanitize runs
	dropped    bool     // SANITIZE is lost
	swings     bool     // the sanitize never ends, and its progress goes up and down
	stalled    bool     // the sanitize never ends
	resets     int      // queries that are lost in the second half of a sanitize
	unready    bool     // TEST UNIT READY reports that the disk is not started
	keeps      [2]int64 // range in bytes that a sanitize leaves
	unreadable bool     // blocks cannot be read after a sanitize
	queries    int
	discovery  []byte // reply to TCG Level 0 Discovery; nil for a disk without it
	discovers  byte   // sense key with which the disk rejects Level 0 Discovery; 0 is the one of a disk without it

	afterward func(command string)
}

var scsiActions = map[byte]string{1: "overwrite", 2: "block", 3: "crypto", 0x1f: "exit"}

// Send implements [scsi.Transport].
func (f *fakeSCSI) Send(r scsi.Request) (scsi.Reply, error) {
	name, reply := f.execute(r)
	if f.afterward != nil {
		f.afterward(name)
	}
	return reply, nil
}

func (f *fakeSCSI) execute(r scsi.Request) (string, scsi.Reply) {
	switch r.CDB[0] {
	case 0x00:
		return "ready", f.ready()
	case 0x12:
		if f.after == 0 {
			return "inquiry", senseReply(5, 0x24, 0)
		}
		copy(r.Data, []byte{0, 0xb1, 0, 0x3c, 0, 1, 0, f.after})
		return "inquiry", scsi.Reply{}
	case 0xa2:
		if f.discovers != 0 {
			return "security", senseReply(f.discovers, 0x04, 0)
		}
		return "security", discoveryReply(r, f.discovery, f.discovery != nil)
	case 0xa3:
		return "report", f.report(r)
	case 0x48:
		name := scsiActions[r.CDB[1]&0x1f]
		f.log = append(f.log, name)
		return name, f.sanitize(name)
	}
	return "other", senseReply(5, 0x20, 0)
}

func (f *fakeSCSI) report(r scsi.Request) scsi.Reply {
	switch action := byte(binary.BigEndian.Uint16(r.CDB[4:])); {
	case f.hostError != 0:
		return scsi.Reply{Host: f.hostError}
	case f.noReport:
		return senseReply(5, 0x20, 0)
	case bytes.IndexByte(f.actions, action) < 0:
		copy(r.Data, []byte{0, 1, 0, 0})
	default:
		usage := f.usage
		if usage == 0 {
			usage = 0xa0
		}
		copy(r.Data, []byte{0, 3 | f.mlu<<5, 0, 10, 0x48, usage | action, 0, 0, 0, 0, 0, 0xff, 0xff, 0})
	}
	return scsi.Reply{}
}

// sanitize answers SANITIZE.
func (f *fakeSCSI) sanitize(name string) scsi.Reply {
	switch {
	case name == "exit" && f.exitFails, f.rejects:
		return senseReply(5, 0x24, 0)
	case name == "exit":
		f.failed = false
		return scsi.Reply{}
	case f.dropped:
		return scsi.Reply{Host: 8}
	case f.ignored:
		return scsi.Reply{}
	}
	f.failed, f.end = false, time.Now().Add(f.sanitizing)
	if f.lost {
		return scsi.Reply{Host: 8}
	}
	return scsi.Reply{}
}

// ready answers TEST UNIT READY.
func (f *fakeSCSI) ready() scsi.Reply {
	f.queries++
	switch left := time.Until(f.end); {
	case f.unready:
		return senseReply(2, 4, 2)
	case f.end.IsZero():
	case left > 0 && f.resets > 0 && left < f.sanitizing/2:
		f.resets--
		return scsi.Reply{Host: 8}
	case f.swings:
		return senseReply(2, 4, 0x1b, 0x80, byte(f.queries%2), 0)
	case f.stalled:
		return senseReply(2, 4, 0x1b, 0x80, 0, 0)
	case left > 0:
		progress := uint16((f.sanitizing - left) * 0xffff / f.sanitizing)
		return senseReply(2, 4, 0x1b, 0x80, byte(progress>>8), byte(progress))
	default:
		f.end, f.failed = time.Time{}, f.fails
		if !f.fails {
			wipeMedium(f.path, f.keeps)
		}
		if f.unreadable && os.Truncate(f.path, 0) != nil {
			panic("medium not truncated")
		}
	}
	if f.failed {
		return senseReply(3, 0x31, 3)
	}
	return scsi.Reply{}
}

// senseReply is the reply of a command with sense data in the fixed format.
func senseReply(key, asc, ascq byte, specific ...byte) scsi.Reply {
	sense := []byte{0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0}
	copy(sense[15:], specific)
	return scsi.Reply{Status: 2, Driver: 8, Sense: sense}
}

// discoveryReply answers SECURITY PROTOCOL IN for TCG Level 0 Discovery.
func discoveryReply(r scsi.Request, discovery []byte, supported bool) scsi.Reply {
	want := []byte{0xa2, 1, 0, 1, 0, 0, 0, 0, 8, 0, 0, 0}
	if !supported || !bytes.Equal(r.CDB, want) {
		return senseReply(5, 0x20, 0)
	}
	return scsi.Reply{Residual: len(r.Data) - copy(r.Data, discovery)}
}

func (f *fakeSCSI) open(path string) (scsi.Transport, *os.File, int64, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, 0, err
	}
	size, err := file.Seek(0, io.SeekEnd)
	return f, file, size, err
}

// sasMedium returns a SAS disk whose medium is a file of random data, and a machine that lists logical units.
func sasMedium(t *testing.T, units ...string) (block.Device, sysfs.Root) {
	t.Helper()
	d := ataMedium(t)
	d.Transport, d.HCTL, d.Size = "sas", "0:0:1:0", ataSize
	root := t.TempDir()
	for _, unit := range units {
		if err := os.MkdirAll(filepath.Join(root, "sys/class/scsi_device", unit), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return d, sysfs.Root{Path: root}
}

// Disks in every state of a sanitize, and those that cannot be sanitized.
func TestSCSI(t *testing.T) {
	all := []byte{1, 2, 3}
	for _, c := range []struct {
		name   string
		disk   fakeSCSI
		units  []string // logical units of the machine
		method Technique
		err    error
		text   string   // contained in the error
		log    []string // commands that change the disk
	}{
		{name: "block erase", disk: fakeSCSI{actions: all, mlu: 1}, method: SCSISanitizeBlock, log: []string{"block"}},
		{
			name: "cryptographic erase", disk: fakeSCSI{actions: []byte{1, 3}, mlu: 1}, method: SCSISanitizeCrypto,
			log: []string{"crypto"},
		},
		{
			name: "overwrite of a day, with resets", log: []string{"overwrite"}, method: SCSISanitizeOverwrite,
			disk: fakeSCSI{actions: []byte{1}, mlu: 1, sanitizing: 24 * time.Hour, resets: 60},
		},
		{name: "none", err: ErrUnsupported},
		{name: "no report", disk: fakeSCSI{actions: all, noReport: true}, err: ErrUnsupported},
		{
			name: "report lost", disk: fakeSCSI{actions: all, hostError: 7}, err: ErrUnsupported,
			text: "REPORT SUPPORTED OPERATION CODES: host adapter result 0x07",
		},
		{
			name: "without AUSE", disk: fakeSCSI{actions: all, mlu: 1, usage: 0x80}, err: ErrUnsupported,
			text: "SANITIZE BLOCK ERASE: the disk does not support the bits IMMED and AUSE, SANITIZE CRYPTOGRAPHIC",
		},
		{
			name: "not readable after a block erase", disk: fakeSCSI{actions: all, mlu: 1, after: 0xd0},
			method: SCSISanitizeCrypto, log: []string{"crypto"},
		},
		{
			name: "readable after an overwrite only", disk: fakeSCSI{actions: all, mlu: 1, after: 0xa0},
			method: SCSISanitizeOverwrite, log: []string{"overwrite"},
		},
		{
			name: "not readable after any", disk: fakeSCSI{actions: []byte{2, 3}, mlu: 1, after: 0xf0},
			err: ErrUnsupported, text: "SANITIZE BLOCK ERASE: blocks cannot be read afterwards",
		},
		{
			name: "other units unknown, alone", disk: fakeSCSI{actions: all}, units: []string{"0:0:1:0", "0:0:11:0"},
			method: SCSISanitizeBlock, log: []string{"block"},
		},
		{
			name: "other units", disk: fakeSCSI{actions: all, mlu: 3}, units: []string{"0:0:1:0", "0:0:1:1"},
			err: ErrUnsupported, text: "it could erase logical unit 0:0:1:1, too",
		},
		{
			name: "other units, not affected", disk: fakeSCSI{actions: all, mlu: 1},
			units: []string{"0:0:1:0", "0:0:1:1"}, method: SCSISanitizeBlock, log: []string{"block"},
		},
		{
			name: "other units not listed", disk: fakeSCSI{actions: all, mlu: 2}, err: ErrUnsupported,
			text: "which cannot be listed",
		},
		{
			name: "rejected", disk: fakeSCSI{actions: all, mlu: 1, rejects: true}, log: []string{"block"},
			text: "SANITIZE BLOCK ERASE: rejected (sense key 0x5",
		},
		{
			name: "aborted", disk: fakeSCSI{actions: all, mlu: 1, sanitizing: time.Hour, fails: true},
			log: []string{"block", "exit"}, text: "SANITIZE BLOCK ERASE: the disk reports that the sanitize failed",
		},
		{
			name: "aborted, stays failed", disk: fakeSCSI{actions: all, mlu: 1, fails: true, exitFails: true},
			log: []string{"block", "exit"}, err: errRejects, text: "after a failed sanitize: sanitize it again",
		},
		{
			name: "failed before", disk: fakeSCSI{actions: all, mlu: 1, failed: true}, log: []string{"exit", "block"},
			method: SCSISanitizeBlock,
		},
		{
			name: "failed before, stays failed", disk: fakeSCSI{actions: all, mlu: 1, failed: true, exitFails: true},
			log: []string{"exit"}, err: errRejects, text: "sg_sanitize --block",
		},
		{
			name: "in progress before", log: []string{"block"}, method: SCSISanitizeBlock,
			disk: fakeSCSI{actions: all, mlu: 1, sanitizing: time.Hour, end: time.Unix(1<<40, 0)},
		},
		{
			name: "success without an erase", disk: fakeSCSI{actions: all, mlu: 1, ignored: true},
			err: ErrNotErased, text: "256 of 256 samples", log: []string{"block"},
		},
		{
			name: "part kept", disk: fakeSCSI{actions: all, mlu: 1, keeps: [2]int64{0, 1 << 20}}, err: ErrNotErased,
			log: []string{"block"},
		},
		{
			name: "not readable afterwards", disk: fakeSCSI{actions: all, mlu: 1, unreadable: true},
			err: ErrUnsupported, text: "SANITIZE BLOCK ERASE was completed, but cannot be verified: read sample",
			log: []string{"block"},
		},
		{
			name: "result lost", disk: fakeSCSI{actions: all, mlu: 1, sanitizing: time.Hour, lost: true},
			method: SCSISanitizeBlock, log: []string{"block"},
		},
		{
			name: "command lost", disk: fakeSCSI{actions: all, mlu: 1, dropped: true}, log: []string{"block"},
			text: "SANITIZE BLOCK ERASE: host adapter result 0x08 (reset)",
		},
		{
			name: "no progress", disk: fakeSCSI{actions: all, mlu: 1, sanitizing: time.Hour, stalled: true},
			err: errRejects, text: "SANITIZE BLOCK ERASE: drive rejects reads and writes, no progress for 2h0m0s",
			log: []string{"block"},
		},
		{
			name: "progress up and down", disk: fakeSCSI{actions: all, mlu: 1, sanitizing: time.Hour, swings: true},
			err: errRejects, text: "sanitize has not ended after 72h0m0s", log: []string{"block"},
		},
		{
			name: "no state before", disk: fakeSCSI{actions: all, mlu: 1, unready: true}, err: errRejects,
			text: "no state for 10m0s: TEST UNIT READY: rejected (sense key 0x2", log: []string{"block"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk, sys := sasMedium(t, c.units...)
			synctest.Test(t, func(t *testing.T) {
				drive := c.disk
				drive.path = disk.Path
				if !drive.end.IsZero() {
					drive.end = time.Now().Add(drive.sanitizing / 2)
				}
				method, err := eraseSCSI(t.Context(), sys, disk, Options{SCSI: true}, drive.open)
				if method != c.method || (err == nil) != (c.method != "") || c.err != nil && !errors.Is(err, c.err) ||
					err != nil && !strings.Contains(err.Error(), c.text) {
					t.Errorf("got %q, %v, want %q, %v with %q", method, err, c.method, c.err, c.text)
				}
				bare := c.text == "" && errors.Is(c.err, ErrUnsupported)
				if bare != (err == ErrUnsupported) { //nolint:errorlint // the bare error has no reason
					t.Errorf("got %v, want a reason %q", err, c.text)
				}
				if diff := cmp.Diff(c.log, drive.log); diff != "" {
					t.Errorf("commands: -want +got:\n%s", diff)
				}
			})
			if c.method != "" && bytes.Contains(content(t, disk.Path), []byte("secret")) {
				t.Error("data are left")
			}
		})
	}
}

// A disk that is ready has sanitized itself if that was seen in progress, or if samples have changed. The samples of a
// zoned disk are its content, which may be nothing that could change.
func TestSCSISanitizeShown(t *testing.T) {
	empty := strings.Repeat("\xff", ataSize)
	for _, c := range []struct {
		name      string
		content   string // "" is random data
		zoned     string
		disk      fakeSCSI
		err       error
		completed bool
	}{
		{name: "seen", disk: fakeSCSI{sanitizing: time.Hour}, completed: true},
		{name: "samples changed", completed: true},
		{name: "neither", disk: fakeSCSI{ignored: true}, err: ErrNotErased},
		{
			name: "zoned, seen", disk: fakeSCSI{sanitizing: time.Hour}, content: empty, zoned: "host-managed",
			completed: true,
		},
		{name: "zoned, samples changed", zoned: "host-managed", completed: true},
		{
			name: "zoned, neither", disk: fakeSCSI{ignored: true}, content: empty, zoned: "host-managed",
			err: errNotStarted,
		},
	} {
		disk, sys := sasMedium(t)
		disk.Zoned = c.zoned
		if c.content != "" {
			put(t, disk.Path, c.content)
		}
		synctest.Test(t, func(t *testing.T) {
			drive := c.disk
			drive.path, drive.actions, drive.mlu = disk.Path, []byte{2}, 1
			record := &Recorder{}
			method, err := eraseSCSI(t.Context(), sys, disk, Options{SCSI: true, Recorder: record}, drive.open)
			if !errors.Is(err, c.err) || (method == SCSISanitizeBlock) != c.completed {
				t.Errorf("%s: got %q and %v, want %v", c.name, method, err, c.err)
			}
			if r := record.Report().Reported; len(r) != 1 || r[0].Completed != c.completed {
				t.Errorf("%s: got %+v, want one statement, completed %v", c.name, r, c.completed)
			}
		})
	}
}

// A sanitize that was started continues if the context ends; before it, nothing is started.
func TestSCSICancelled(t *testing.T) {
	for after, want := range map[string]struct {
		log  []string
		text string
	}{
		"":      {},
		"ready": {}, "report": {}, "inquiry": {},
		"block": {[]string{"block"}, "SANITIZE BLOCK ERASE: " + sanitizeContinues},
	} {
		disk, sys := sasMedium(t)
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			drive := fakeSCSI{path: disk.Path, actions: []byte{2}, mlu: 1, after: 0x40, sanitizing: time.Hour}
			if after == "" {
				cancel()
			}
			drive.afterward = func(command string) {
				if command == after {
					cancel()
				}
			}
			method, err := eraseSCSI(ctx, sys, disk, Options{SCSI: true}, drive.open)
			if method != "" || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), want.text) {
				t.Errorf("after %q: got %q, %v, want it cancelled with %q", after, method, err, want.text)
			}
			if diff := cmp.Diff(want.log, drive.log); diff != "" {
				t.Errorf("after %q: -want +got:\n%s", after, diff)
			}
		})
	}
}

// If the context ends with the sanitize, the disk is not said to be unable to sanitize.
func TestSCSICancelledAfterwards(t *testing.T) {
	disk, sys := sasMedium(t)
	ctx, cancel := context.WithCancel(t.Context())
	drive := fakeSCSI{path: disk.Path, actions: []byte{2}, mlu: 1}
	drive.afterward = func(command string) {
		if command == "ready" && len(drive.log) > 0 {
			cancel()
		}
	}
	_, err := eraseSCSI(ctx, sys, disk, Options{SCSI: true}, drive.open)
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnsupported) {
		t.Errorf("got %v, want it cancelled", err)
	}
}

// The time limit of a sanitize follows from the size of the disk and from the estimate of the drive.
func TestSanitizeLimit(t *testing.T) {
	for _, c := range []struct {
		w    sanitizeWait
		want time.Duration
	}{
		{sanitizeWait{}, 72 * time.Hour},
		{sanitizeWait{size: 30 << 40}, 2 << 20 * time.Second},
		{sanitizeWait{stall: 100 * time.Hour}, 100 * time.Hour},
		{sanitizeWait{size: 1 << 62}, 2 << 30 * time.Second},
	} {
		if got := c.w.limit(); got != c.want {
			t.Errorf("%+v: got %v, want %v", c.w, got, c.want)
		}
	}
}

// A sanitize may take hours without the time limit of [timelimit.Do], and shows its progress.
func TestSCSITimeLimit(t *testing.T) {
	disk, sys := sasMedium(t)
	synctest.Test(t, func(t *testing.T) {
		var done []int64
		var started []Technique
		o := Options{SCSI: true, Recorder: &Recorder{Observer: observe(func(p Progress) {
			switch p.Phase {
			case Sanitizing:
				done = append(done, p.Done)
			case SanitizeStarted:
				if started = append(started, p.Technique); p.Estimate != 0 {
					t.Errorf("got an estimate of %v, want none", p.Estimate)
				}
			}
		})}}
		drive := fakeSCSI{path: disk.Path, actions: []byte{2}, mlu: 1, sanitizing: 4 * time.Hour}
		method, err := timelimit.Do(t.Context(), timelimit.Disk, func(ctx context.Context) (Technique, error) {
			return eraseSCSI(ctx, sys, disk, o, drive.open)
		})
		if method != SCSISanitizeBlock || err != nil || !cmp.Equal(started, []Technique{SCSISanitizeBlock}) {
			t.Errorf("got %q, %v, started %q", method, err, started)
		}
		if len(done) < 1000 || done[len(done)-1] < ataSize*99/100 || done[len(done)-1] > ataSize {
			t.Errorf("got %d reports of progress, want one each 5 s up to the size", len(done))
		}
	})
}

// Run overwrites a disk that cannot be sanitized, and one whose sanitize failed if it may. The evidence has what the
// disk reported. ATA drives behind a SAS adapter get no commands.
func TestSCSIFallback(t *testing.T) {
	all := []byte{1, 2, 3}
	for _, c := range []struct {
		name      string
		disk      fakeSCSI
		change    func(*block.Device)
		o         Options
		method    Technique
		err       error
		queries   bool // commands are sent
		statement bool // completed
	}{
		{
			name: "sanitized", disk: fakeSCSI{actions: all, mlu: 1}, o: Options{SCSI: true}, method: SCSISanitizeBlock,
			queries: true, statement: true,
		},
		{name: "unsupported", o: Options{SCSI: true, Zeroize: true}, method: Overwrite, queries: true},
		{name: "switched off", disk: fakeSCSI{actions: all}, o: Options{Zeroize: true}, method: Overwrite},
		{
			name: "ATA drive", disk: fakeSCSI{actions: all}, change: func(d *block.Device) { d.Vendor = "ATA" },
			o: Options{SCSI: true, Zeroize: true}, method: Overwrite,
		},
		{
			name: "NVMe drive", disk: fakeSCSI{actions: all}, change: func(d *block.Device) { d.Vendor = "NVMe" },
			o: Options{SCSI: true, Zeroize: true}, method: Overwrite,
		},
		{
			name: "fibre channel", disk: fakeSCSI{actions: all}, change: func(d *block.Device) { d.Transport = "fc" },
			o: Options{SCSI: true, Zeroize: true}, method: Overwrite,
		},
		{
			name: "unknown transport", disk: fakeSCSI{actions: all, mlu: 1},
			change: func(d *block.Device) { d.Transport = "" }, o: Options{SCSI: true}, method: SCSISanitizeBlock,
			queries: true, statement: true,
		},
		{
			name: "partition", disk: fakeSCSI{actions: all}, change: func(d *block.Device) { d.Type = "part" },
			o: Options{SCSI: true, Zeroize: true}, method: Overwrite,
		},
		{
			name: "failure", disk: fakeSCSI{actions: all, mlu: 1, fails: true}, o: Options{SCSI: true, Zeroize: true},
			err: errAny, queries: true,
		},
		{
			name: "failure, may overwrite", disk: fakeSCSI{actions: all, mlu: 1, fails: true},
			o: Options{SCSI: true, Zeroize: true, ContinueOnFailure: true}, queries: true,
			method: "overwrite; secure erase failed: SANITIZE BLOCK ERASE: the disk reports that the sanitize failed",
		},
		{
			name: "failure that stays", disk: fakeSCSI{actions: all, mlu: 1, fails: true, exitFails: true},
			o: Options{SCSI: true, Zeroize: true, ContinueOnFailure: true}, err: errRejects, queries: true,
		},
		{
			name: "still holds data", disk: fakeSCSI{actions: all, mlu: 1, ignored: true},
			o: Options{SCSI: true, Zeroize: true}, err: ErrNotErased, queries: true,
		},
		{
			name: "other units", disk: fakeSCSI{actions: []byte{2}, mlu: 3}, o: Options{SCSI: true, Zeroize: true},
			queries: true,
			method: "overwrite; secure erase failed: method not supported by the device: SANITIZE BLOCK " +
				"ERASE: it could erase logical unit 0:0:1:1, too",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := testenv.Loop(t, testenv.SparseFile(t, ataSize), 512)
			put(t, path, string(bytes.Repeat([]byte("secret  "), ataSize/8)))
			drive := c.disk
			drive.path = path
			d := device(t, path)
			d.Type, d.Transport, d.HCTL = "disk", "sas", "0:0:1:0"
			if c.change != nil {
				c.change(&d)
			}
			sys := machineWithUnits(t, "0:0:1:0", "0:0:1:1")
			record := &Recorder{}
			open := sgOpeners(drive.open)
			c.o.Recorder = record
			method, err := decidedRun(t.Context(), t, sys, d, c.o, open)
			if method != c.method || (err == nil) != (c.err == nil) ||
				c.err != nil && c.err != errAny && !errors.Is(err, c.err) { //nolint:errorlint // a value of this test
				t.Errorf("got %q, %v, want %q, %v", method, err, c.method, c.err)
			}
			if (drive.queries > 0) != c.queries {
				t.Errorf("got %d queries, want some %v", drive.queries, c.queries)
			}
			completed := false
			for _, s := range record.Report().Reported {
				completed = completed || s.Source == "TEST UNIT READY" && s.Completed
			}
			if completed != c.statement {
				t.Errorf("got %+v, want a completed erase %v", record.Report().Reported, c.statement)
			}
			if b := record.Report().ReadBack; err == nil && (b == nil || b.Read != ataSize ||
				(b.Expected == evidence.ExpectUniform) != (method == SCSISanitizeBlock)) {
				t.Errorf("got read-back %+v", b)
			}
			if bytes.Contains(content(t, path), []byte("secret")) != (c.err != nil) {
				t.Errorf("got data left %v, want %v", c.err == nil, c.err != nil)
			}
		})
	}
}

// errAny stands for any error.
var errAny = errors.New("any error")

// machineWithUnits returns the sysfs of this machine with a list of logical units of its own.
func machineWithUnits(t *testing.T, units ...string) sysfs.Root {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"sys/class/scsi_device", "proc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, unit := range units {
		if err := os.MkdirAll(filepath.Join(root, "sys/class/scsi_device", unit), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"class/block", "block", "dev", "devices"} {
		if err := os.Symlink("/sys/"+name, filepath.Join(root, "sys", name)); err != nil {
			t.Fatal(err)
		}
	}
	return sysfs.Root{Path: root}
}

// Recover waits for a sanitize in progress and ends a failure mode, and leaves all other disks alone.
func TestRecoverSCSI(t *testing.T) {
	for _, c := range []struct {
		name string
		disk fakeSCSI
		err  error
		log  []string
	}{
		{name: "ready", disk: fakeSCSI{}},
		{name: "not started", disk: fakeSCSI{unready: true}},
		{name: "failed", disk: fakeSCSI{failed: true}, log: []string{"exit"}, err: unix.ENOTTY},
		{name: "stays failed", disk: fakeSCSI{failed: true, exitFails: true}, log: []string{"exit"}, err: errRejects},
		{name: "in progress", disk: fakeSCSI{sanitizing: time.Hour}, err: unix.ENOTTY},
	} {
		disk, _ := sasMedium(t)
		synctest.Test(t, func(t *testing.T) {
			drive, reports := c.disk, 0
			drive.path = disk.Path
			if drive.sanitizing > 0 {
				drive.end = time.Now().Add(drive.sanitizing)
			}
			// ENOTTY is the error of the rescan of a file.
			err := recoverSCSI(t.Context(), disk, onProgress(func(_, total int64) {
				if reports++; total != ataSize {
					t.Errorf("%s: got a total of %d bytes, want %d", c.name, total, ataSize)
				}
			}), drive.open)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || !cmp.Equal(drive.log, c.log) {
				t.Errorf("%s: got %v and commands %q, want %v and %q", c.name, err, drive.log, c.err, c.log)
			}
			if (reports > 700) != (drive.sanitizing > 0) {
				t.Errorf("%s: got %d reports of progress", c.name, reports)
			}
		})
	}
	missing := block.Device{Path: "/dev/missing", Type: "disk", Transport: "sas", HCTL: "0:0:1:0"}
	if err := Recover(t.Context(), missing, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing disk: got %v, want an error", err)
	}
	missing.Vendor = "ATA"
	if err := Recover(t.Context(), missing, nil); err != nil {
		t.Errorf("ATA drive behind a SAS adapter: got %v", err)
	}
}
