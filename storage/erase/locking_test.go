package erase

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/nvme"
	"ironroot/storage/scsi"
	"ironroot/storage/sysfs"
)

// tcgReply is the reply of a drive to Level 0 Discovery (Opal 2.01, tables "Level 0 Discovery Header", "Locking Feature
// Descriptor" and "Opal SSC V2.00 Feature Descriptor"), with the flags of the Locking feature.
func tcgReply(flags byte) []byte {
	return slices.Concat(
		[]byte{0, 0, 0, 80, 0, 0, 0, 1}, make([]byte, 40),
		[]byte{0x00, 0x02, 0x10, 12, flags, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		[]byte{0x02, 0x03, 0x10, 16, 0x10, 0, 0, 1, 0, 0, 4, 0, 9, 0, 0, 0, 0, 0, 0, 0},
	)
}

// Flags of the Locking feature.
const (
	tcgIdle     = 0b0000_1001 // supported, not enabled
	tcgUnlocked = 0b0000_1011
	tcgLocked   = 0b0000_1111
	tcgShadow   = 0b0001_1011 // the shadow MBR is shown
)

// lockedText is in the error of each locked drive.
const lockedText = "unlock the drive with its owner's credentials, or revert it with the PSID"

// A locked drive fails the erase before anything is written, whatever the options are. One that is not locked is erased
// as any other; the evidence has its state.
func TestTCGLocked(t *testing.T) {
	always := Options{ATA: true, SCSI: true, NVMe: true, NVMeSanitize: true, Zeroize: true, ContinueOnFailure: true}
	overwrites := Options{Zeroize: true, ContinueOnFailure: true}
	unlocked := "Opal 2, locking supported true, enabled true, locked false"
	for _, c := range []struct {
		name   string
		disk   block.Device // transport and vendor
		ata    *fakeATA
		scsi   *fakeSCSI
		nvme   *fakeNVMe
		o      Options
		method Technique // "" if the drive is locked
		reason string    // in the error
		state  string    // in the evidence; "" if there is none
	}{
		{
			name: "SATA", ata: &fakeATA{discovery: tcgReply(tcgLocked), translated: true}, o: always,
			reason: "Opal 2: at least one range of it is locked",
		},
		{
			name: "SATA, shadow MBR", ata: &fakeATA{discovery: tcgReply(tcgShadow), translated: true}, o: always,
			reason: "Opal 2: it shows its shadow MBR",
		},
		{
			name: "SATA, ATA commands switched off", o: overwrites, reason: "locked",
			ata: &fakeATA{discovery: tcgReply(tcgLocked), translated: true},
		},
		{
			name: "SATA, TRUSTED RECEIVE", ata: &fakeATA{discovery: tcgReply(tcgLocked), allowed: true}, o: always,
			reason: "locked",
		},
		{
			name: "SATA, truncated after the locking feature", o: always, reason: "an unknown Security Subsystem Class",
			ata: &fakeATA{discovery: append([]byte{0, 0, 0xff, 0xff}, tcgReply(tcgLocked)[4:64]...), allowed: true},
		},
		{
			name: "SATA, no command passes", ata: &fakeATA{discovery: tcgReply(tcgLocked)}, o: always, method: ATAErase,
			state: "state not known: TCG Level 0 Discovery: TRUSTED RECEIVE: rejected (sense key 0x5",
		},
		{
			name: "SATA, unlocked", ata: &fakeATA{discovery: tcgReply(tcgUnlocked), translated: true}, o: always,
			method: ATAErase, state: unlocked,
		},
		{
			name: "SATA, not enabled", ata: &fakeATA{discovery: tcgReply(tcgIdle), translated: true}, o: always,
			method: ATAErase, state: "enabled false",
		},
		{
			name: "SATA, garbage", ata: &fakeATA{discovery: bytes.Repeat([]byte{0xa5}, 2048), translated: true},
			o: always, method: ATAErase, state: "state not known: TCG Level 0 Discovery: feature 0xa5a5",
		},
		{
			name: "SATA, TRUSTED RECEIVE, ATA erase switched off", o: overwrites, reason: "locked",
			ata: &fakeATA{discovery: tcgReply(tcgLocked), allowed: true},
		},
		{name: "SATA, no feature", ata: &fakeATA{}, o: always, method: ATAErase},
		{
			name: "SAS", disk: block.Device{Transport: "sas", HCTL: "0:0:1:0"}, o: always, reason: "locked",
			scsi: &fakeSCSI{discovery: tcgReply(tcgLocked), actions: []byte{1, 2, 3}, mlu: 1},
		},
		{
			name: "SAS, sanitize switched off", disk: block.Device{Transport: "sas", HCTL: "0:0:1:0"}, o: overwrites,
			scsi: &fakeSCSI{discovery: tcgReply(tcgLocked)}, reason: "locked",
		},
		{
			name: "SATA behind SAS", disk: block.Device{Transport: "sas", HCTL: "0:0:1:0", Vendor: "ATA"}, o: always,
			scsi: &fakeSCSI{discovery: tcgReply(tcgLocked)}, reason: "locked",
		},
		{
			name: "SAS, unlocked", disk: block.Device{Transport: "sas", HCTL: "0:0:1:0"}, o: always,
			scsi:   &fakeSCSI{discovery: tcgReply(tcgUnlocked), actions: []byte{2}, mlu: 1},
			method: SCSISanitizeBlock, state: unlocked,
		},
		{
			name: "USB is not asked", disk: block.Device{Transport: "usb", HCTL: "0:0:1:0"}, o: always,
			scsi: &fakeSCSI{discovery: tcgReply(tcgLocked)}, method: Overwrite,
		},
		{name: "NVMe", nvme: &fakeNVMe{oacs: 3, discovery: tcgReply(tcgLocked)}, o: always, reason: "locked"},
		{
			name: "NVMe, switched off", nvme: &fakeNVMe{oacs: 3, discovery: tcgReply(tcgLocked)}, o: overwrites,
			reason: "locked",
		},
		{
			name: "NVMe, namespaces not listed", o: always, reason: "locked",
			nvme: &fakeNVMe{oacs: 3, discovery: tcgReply(tcgLocked), identifyError: errors.New("no list")},
		},
		{
			name: "NVMe, unlocked", nvme: &fakeNVMe{oacs: 3, discovery: tcgReply(tcgUnlocked)}, o: always,
			method: NVMeUser, state: unlocked,
		},
		{
			name: "NVMe, rejected", nvme: &fakeNVMe{oacs: 3}, o: always, method: NVMeUser,
			state: "state not known: TCG Level 0 Discovery: NVMe status 0x4001 (invalid command opcode)",
		},
		{
			name: "NVMe, no security commands", nvme: &fakeNVMe{oacs: 2, discovery: tcgReply(tcgLocked)}, o: always,
			method: NVMeUser,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := testenv.Loop(t, testenv.SparseFile(t, ataSize), 512)
			data := bytes.Repeat([]byte("secret  "), ataSize/8)
			put(t, path, string(data))
			d := device(t, path)
			d.Type, d.Transport, d.HCTL, d.Vendor = "disk", "sata", c.disk.HCTL, c.disk.Vendor
			if c.disk.Transport != "" {
				d.Transport = c.disk.Transport
			}
			var open openers
			sys := sysfs.Root{}
			switch {
			case c.ata != nil:
				c.ata.path, open = path, sgOpeners(c.ata.open)
			case c.scsi != nil:
				c.scsi.path, open = path, sgOpeners(c.scsi.open)
				sys = machineWithUnits(t, "0:0:1:0")
			default:
				sys = nvmeTree(t, "nvme0n1")
				d = block.Device{Name: "nvme0n1", Path: path, Type: "part"} // a loop device plays its node
				c.nvme.path, open = path, nvmeOpeners(func(string) (adminDevice, error) { return c.nvme, nil })
			}
			record := &Recorder{}
			c.o.Recorder = record
			method, err := decidedRun(t.Context(), t, sys, d, c.o, open)
			if method != c.method || (err == nil) != (c.method != "") {
				t.Fatalf("got %q, %v, want %q", method, err, c.method)
			}
			states := ""
			for _, s := range record.Report().Reported {
				if s.Source == "TCG Level 0 Discovery" {
					states += s.Text
					if s.Completed {
						t.Error("the discovery counts as the report of an erase")
					}
				}
			}
			if c.method != "" {
				if (states == "") != (c.state == "") || !strings.Contains(states, c.state) {
					t.Errorf("got state %q, want %q", states, c.state)
				}
				return
			}
			for _, part := range []string{c.reason, lockedText} {
				if !errors.Is(err, ErrTCGLocked) || !strings.Contains(err.Error(), part) {
					t.Errorf("got %v, want %v with %q", err, ErrTCGLocked, part)
				}
			}
			if states == "" {
				t.Error("got no state in the evidence")
			}
			if after := content(t, path); !bytes.Equal(after, data) {
				t.Error("the drive was written")
			}
			if c.ata != nil && len(c.ata.log) > 0 || c.scsi != nil && len(c.scsi.log) > 0 ||
				c.nvme != nil && len(c.nvme.formats)+len(c.nvme.sanitizes) > 0 {
				t.Error("the drive got other commands")
			}
		})
	}
}

// A locked NVMe drive is neither formatted by an express erase, nor are its metadata erased. A locked drive fails each
// step before it is read.
func TestTCGLockedOtherSteps(t *testing.T) {
	path := secretDisk(t, mib)
	drive := fakeNVMe{oacs: 3, discovery: tcgReply(tcgLocked)}
	drive.path = path
	disk := block.Device{Name: "nvme0n1", Path: path, Type: "part"} // a loop device plays its node
	open := func(string) (adminDevice, error) { return &drive, nil }
	called := func(err error) { t.Errorf("got %v to continue with", err) }
	method, err := tryExpressWith(t.Context(), nvmeTree(t, "nvme0n1"), disk, Options{NVMe: true}, called, open)
	if method != "" || !errors.Is(err, ErrTCGLocked) || len(drive.formats) > 0 {
		t.Errorf("got %q, %v and formats %x, want %v", method, err, drive.formats, ErrTCGLocked)
	}
	if err := recoverNVMe(t.Context(), disk, nil, open); !errors.Is(err, ErrTCGLocked) {
		t.Errorf("NVMe: got %v, want %v", err, ErrTCGLocked)
	}
	drive.discovery = tcgReply(tcgIdle)
	if err := recoverNVMe(t.Context(), disk, nil, open); err != nil {
		t.Errorf("NVMe, not locked: got %v", err)
	}
	unchanged(t, path)

	for state, want := range map[byte]error{tcgLocked: ErrTCGLocked, tcgUnlocked: nil} {
		sata := fakeATA{discovery: tcgReply(state), translated: true}
		d := block.Device{Name: "sda", Path: path, Type: "disk", Transport: "sata"}
		if unknown, err := checkLocked(t.Context(), d, sata.open, nil); unknown || !errors.Is(err, want) {
			t.Errorf("SATA: got %t and %v, want %v", unknown, err, want)
		}
	}
}

// The erase of a drive that may be locked proves its writes: the last pass of an overwrite is random data, and samples
// are compared before the drive erases itself. A drive that does not return them is not erased.
func TestTCGUnknownProvesWrites(t *testing.T) {
	nvme := func(reply []byte) *fakeNVMe { return &fakeNVMe{oacs: 3, discovery: reply} }
	sas := func(key byte) *fakeSCSI { return &fakeSCSI{discovers: key} }
	for _, c := range []struct {
		name    string
		ata     *fakeATA
		scsi    *fakeSCSI
		nvme    *fakeNVMe
		pattern string
	}{
		{"SATA, not known", &fakeATA{discovery: tcgReply(tcgLocked), noSecurity: true}, nil, nil, "random"},
		{
			"SATA, unlocked", &fakeATA{discovery: tcgReply(tcgUnlocked), noSecurity: true, allowed: true}, nil, nil,
			"zeros",
		},
		{"SATA, not trusted", &fakeATA{noSecurity: true}, nil, nil, "zeros"},
		{"SATA, no answer to IDENTIFY", &fakeATA{unreachable: true}, nil, nil, "random"},
		{"SAS, no such command", nil, sas(0), nil, "zeros"},
		{"SAS, not ready", nil, sas(2), nil, "random"},
		{"SAS, aborted", nil, sas(0xb), nil, "random"},
		{"NVMe, not known", nil, nil, nvme(nil), "random"},
		{"NVMe, unlocked", nil, nil, nvme(tcgReply(tcgUnlocked)), "zeros"},
		{"NVMe, no answer to Identify", nil, nil, &fakeNVMe{controllerError: unix.EIO}, "random"},
	} {
		path := testenv.Loop(t, testenv.SparseFile(t, ataSize), 512)
		d, sys := device(t, path), sysfs.Root{}
		var open openers
		d.Type, d.Transport = "disk", "sata"
		switch {
		case c.ata != nil:
			c.ata.path, open = path, sgOpeners(c.ata.open)
		case c.scsi != nil:
			c.scsi.path, open = path, sgOpeners(c.scsi.open)
			d.Transport, d.HCTL = "sas", "0:0:1:0"
			sys = machineWithUnits(t, d.HCTL)
		default:
			sys = nvmeTree(t, "nvme0n1")
			d = block.Device{Name: "nvme0n1", Path: path, Type: "part"} // a loop device plays its node
			c.nvme.path, open = path, nvmeOpeners(func(string) (adminDevice, error) { return c.nvme, nil })
		}
		record := &Recorder{}
		o := Options{ATA: true, Iterations: 1, Zeroize: true, ContinueOnFailure: true, Recorder: record}
		method, err := decidedRun(t.Context(), t, sys, d, o, open)
		passes := record.Report().Passes
		name, _, _ := strings.Cut(string(method), ";")
		if err != nil || Technique(name) != Overwrite || len(passes) != 2 || passes[1].Pattern != c.pattern {
			t.Errorf("%s: got %q, %v and passes %v, want the last one of %s", c.name, method, err, passes, c.pattern)
		}
	}

	for name, unknown := range map[string]bool{"not known": true, "known": false} {
		path := testenv.Loop(t, testenv.SparseFile(t, ataSize), 512)
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close() //nolint:errcheck // a test
		ctx := t.Context()
		taken, err := takeSamples(ctx, file, ataSize, sampling{prove: unknown})
		if err != nil {
			t.Fatalf("%s: got %v", name, err)
		}
		taken.free()
		// The drive forgets what was written.
		ctx = &forgetting{Context: ctx, path: path}
		taken, err = takeSamples(ctx, file, ataSize, sampling{prove: unknown})
		if err == nil {
			taken.free()
		}
		if (err != nil) != unknown || unknown && !strings.Contains(err.Error(), "the drive ignores writes") {
			t.Errorf("%s: got %v, want an error: %t", name, err, unknown)
		}
	}
}

// forgetting is a context that zeroes a medium when it was asked a hundred times.
type forgetting struct {
	context.Context
	path  string
	asked int
}

func (f *forgetting) Err() error {
	if f.asked++; f.asked == 100 {
		wipeMedium(f.path, [2]int64{})
	}
	return f.Context.Err()
}

// Ranges of a locked drive are not written. Ranges of a drive that may be locked are proved.
func TestTCGRanges(t *testing.T) {
	for _, c := range []struct {
		name    string
		sata    *fakeATA
		nvme    *fakeNVMe
		pattern string // of the last pass; "" if the drive is locked
	}{
		{"SATA, locked", &fakeATA{discovery: tcgReply(tcgLocked), translated: true}, nil, ""},
		{"SATA, not known", &fakeATA{discovery: tcgReply(tcgLocked)}, nil, "random"},
		{"SATA", &fakeATA{}, nil, "zeros"},
		{"NVMe, locked", nil, &fakeNVMe{oacs: 1, discovery: tcgReply(tcgLocked)}, ""},
		{"NVMe, not known", nil, &fakeNVMe{oacs: 1}, "random"},
		{"NVMe, no answer to Identify", nil, &fakeNVMe{controllerError: unix.EIO}, "random"},
	} {
		path := secretDisk(t, mib)
		d, sys := device(t, path), sysfs.Root{}
		var open openers
		if c.sata != nil {
			d.Type, d.Transport = "disk", "sata"
			c.sata.path, open = path, sgOpeners(c.sata.open)
		} else {
			sys = nvmeTree(t, "nvme0n1")
			d = block.Device{Name: "nvme0n1", Path: path, Type: "part"} // a loop device plays its node
			open = nvmeOpeners(func(string) (adminDevice, error) { return c.nvme, nil })
		}
		record := &Recorder{}
		o := Options{Zeroize: true, Recorder: record}
		err := eraseRanges(t.Context(), sys, d, [][2]int64{{4096, mib}}, o, open.query)
		if c.pattern == "" {
			if !errors.Is(err, ErrTCGLocked) {
				t.Errorf("%s: got %v, want %v", c.name, err, ErrTCGLocked)
			}
			unchanged(t, path)
			continue
		}
		if passes := record.Report().Passes; err != nil || len(passes) != 1 || passes[0].Pattern != c.pattern {
			t.Errorf("%s: got %v and passes %v, want one of %s", c.name, err, passes, c.pattern)
		}
	}
}

// partitionTree is the sysfs of a disk with a partition. Its device is a SCSI disk.
func partitionTree(t *testing.T, disk, partition string) sysfs.Root {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, "sys", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(root, "sys", name)); err != nil {
			t.Fatal(err)
		}
	}
	const unit = "devices/0:0:1:0"
	top := filepath.Join(unit, "block", disk)
	for _, dir := range []string{top, filepath.Join(top, partition)} {
		write(filepath.Join(dir, "size"), "20480\n")
		write(filepath.Join(dir, "ro"), "0\n")
	}
	write(filepath.Join(top, partition, "partition"), "2\n")
	write("class/block/x", "")
	link("../..", filepath.Join(top, "device"))
	link(filepath.Join("../..", top), "class/block/"+disk)
	link(filepath.Join("../..", top, partition), "class/block/"+partition)
	return sysfs.Root{Path: root}
}

// Ranges of a partition, and a partition as a whole, are not written if its disk is locked, and proved if it may be.
func TestTCGPartition(t *testing.T) {
	locked, unknown := tcgReply(tcgLocked), []byte(nil)
	for _, c := range []struct {
		disk, partition string
		discovery       []byte
		pattern         string // of the last pass; "" if the drive is locked
	}{
		{"sda", "sda2", locked, ""},
		{"sda", "sda2", unknown, "random"},
		{"nvme0n1", "nvme0n1p2", locked, ""},
		{"nvme0n1", "nvme0n1p2", unknown, "random"},
	} {
		sys := partitionTree(t, c.disk, c.partition)
		for name, act := range map[string]func(*Recorder, block.Device, opener) error{
			"ranges": func(record *Recorder, d block.Device, open opener) error {
				o := Options{Zeroize: true, Recorder: record}
				return eraseRanges(t.Context(), sys, d, [][2]int64{{4096, mib}}, o, open)
			},
			"whole": func(record *Recorder, d block.Device, open opener) error {
				_, err := tryRunWith(t.Context(), sys, d, Options{Zeroize: true, Recorder: record}, openers{open, open})
				return err
			},
		} {
			path := secretDisk(t, mib) // plays the partition
			d := block.Device{Name: c.partition, Path: path, Type: "part"}
			asked := ""
			scsiDisk, nvmeDisk := &fakeSCSI{path: path, discovery: c.discovery, discovers: 2}, &fakeNVMe{oacs: 1}
			if c.discovery != nil {
				scsiDisk.discovers, nvmeDisk.discovery = 0, c.discovery
			}
			open := fakeOpener{
				openSG: func(disk string) (scsi.Transport, *os.File, int64, error) {
					asked = disk
					return scsiDisk.open(path)
				},
				openNVMe: func(disk string) (adminDevice, error) {
					asked = disk
					return nvmeDisk, nil
				},
			}
			record := &Recorder{}
			err := act(record, d, open)
			if asked != "/dev/"+c.disk {
				t.Errorf("%s, %s: asked %q, want /dev/%s", c.partition, name, asked, c.disk)
			}
			passes := record.Report().Passes
			switch {
			case c.pattern == "" && !errors.Is(err, ErrTCGLocked):
				t.Errorf("%s, %s: got %v, want %v", c.partition, name, err, ErrTCGLocked)
			case c.pattern == "":
				unchanged(t, path)
			case err != nil || len(passes) != 1 || passes[0].Pattern != c.pattern:
				t.Errorf("%s, %s: got %v and passes %v, want one of %s", c.partition, name, err, passes, c.pattern)
			}
		}
	}
}

// A disk that cannot be opened is no locked one. If the context ends, nothing is sent.
func TestTCGUnknown(t *testing.T) {
	d := block.Device{Name: "sda", Path: "/dev/missing", Type: "disk", Transport: "sata"}
	missing := func(string) (scsi.Transport, *os.File, int64, error) { return nil, nil, 0, os.ErrNotExist }
	record := &Recorder{}
	if unknown, err := checkLocked(t.Context(), d, missing, record); !unknown || err != nil ||
		len(record.Report().Reported) != 1 {
		t.Errorf("missing: got %t, %v and %v, want no error and one statement", unknown, err,
			record.Report().Reported)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := checkLocked(cancelled, d, missing, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	controller := nvme.Identity{SecurityCommands: true}
	if _, err := checkLockedNVMe(cancelled, controller, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("NVMe: got %v, want %v", err, context.Canceled)
	}
}
