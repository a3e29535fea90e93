package erase

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/nvme"
	"ironroot/storage/sysfs"
)

// Operation codes and a capability (NVM Express base specification 2.0, figures "Opcodes for Admin Commands" and
// "Identify Controller Data Structure").
const (
	opGetLogPage = 0x02
	opIdentify   = 0x06
	opFormat     = 0x80
	opSanitize   = 0x84

	oacsNamespaceManagement = 1 << 3
)

// fakeNVMe replies to admin commands like a controller with the given identify data; namespace 7 is the device.
type fakeNVMe struct {
	oacs, fna, flbas, dps byte
	cmic, nmic            byte
	old                   bool     // NVMe 1.1: no version in the identify data, no lists
	active, allocated     []uint32 // nil stands for namespace 7 alone
	none                  bool     // namespace 7 is not allocated either
	highest               uint32   // number of a namespace; 0 stands for 32
	identifyError         error    // of the lists
	allocatedError        error    // of the list of allocated namespaces
	controllerError       error    // of the controller's data
	formatError           error
	formatKeeps           bool     // a format leaves the samples as they are; otherwise it removes them
	formats               []uint32 // command dword 10 of each format
	closed                bool
	afterIdentify         func() // may be nil
	formatTime, closeTime time.Duration
	discovery             []byte // reply to TCG Level 0 Discovery; nil for a drive that rejects Security Receive
	fakeSanitize
}

func (f *fakeNVMe) namespace() (uint32, error) { return 7, nil }

func (f *fakeNVMe) close() error {
	time.Sleep(f.closeTime)
	f.closed = true
	if f.file != nil {
		return f.file.Close()
	}
	return nil
}

func (f *fakeNVMe) Send(c nvme.Command) error {
	data := c.Data
	if c.Opcode == opIdentify && f.afterIdentify != nil {
		defer f.afterIdentify()
	}
	if f.afterward != nil {
		defer f.afterward(c.Opcode)
	}
	active := f.active
	if active == nil {
		active = []uint32{7}
	}
	switch {
	case c.Opcode == opIdentify && c.CDW10 == 0x01:
		data[256], data[524], data[76] = f.oacs, f.fna, f.cmic
		binary.LittleEndian.PutUint32(data[328:], f.sanicap)
		binary.LittleEndian.PutUint32(data[516:], cmp.Or(f.highest, 32))
		if !f.old {
			binary.LittleEndian.PutUint32(data[80:], 0x00010400)
		}
		return f.controllerError
	case c.Opcode == opIdentify && c.CDW10 == 0x00 && slices.Contains(active, c.Namespace):
		data[0], data[26], data[29], data[30] = 1, f.flbas, f.dps, f.nmic
	case c.Opcode == opIdentify && c.CDW10 == 0x00 && c.Namespace >= 1 && c.Namespace <= 32: // inactive: all zeros
	case c.Opcode == opIdentify && c.CDW10 == 0x02 && !f.old:
		fillList(data, active, c.Namespace)
		return f.identifyError
	case c.Opcode == opIdentify && c.CDW10 == 0x10 && f.oacs&oacsNamespaceManagement != 0:
		allocated := slices.Clone(f.allocated)
		if !f.none {
			allocated = append(allocated, 7)
		}
		fillList(data, slices.Sorted(slices.Values(allocated)), c.Namespace)
		return cmp.Or(f.identifyError, f.allocatedError)
	case c.Opcode == opFormat && c.Namespace == 7 && data == nil:
		f.formats = append(f.formats, c.CDW10)
		time.Sleep(f.formatTime)
		if !f.formatKeeps { // tests recognise an overwrite by the rest of the content
			if err := os.WriteFile(f.path, f.content, 0); err != nil {
				return err
			}
		}
		return f.formatError
	case c.Opcode == 0x82 && c.Namespace == 0 && c.CDW10 == 0x01_0001_00 && c.CDW11 == 2048 && len(data) == 2048:
		if f.discovery == nil || f.oacs&1 == 0 {
			return nvme.Status(0x4001)
		}
		copy(data, f.discovery)
	case c.Opcode == opSanitize && data == nil:
		return f.sanitize(c)
	case c.Opcode == opGetLogPage && c.Namespace == 0xffffffff && c.CDW10 == 0x007f0081 && len(data) == 512:
		return f.status(data)
	default:
		return unix.EINVAL
	}
	return nil
}

// fillList writes as many ids greater than after as fit on a page.
func fillList(page []byte, ids []uint32, after uint32) {
	for _, id := range ids {
		if id > after && len(page) > 0 {
			binary.LittleEndian.PutUint32(page, id)
			page = page[4:]
		}
	}
}

// nvmeTree is a machine with NVMe namespaces only.
func nvmeTree(t *testing.T, names ...string) sysfs.Root {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		for _, dir := range []string{"sys/block", "sys/class/block"} {
			path := filepath.Join(root, dir, name)
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{"size": "20480\n", "ro": "0\n"} {
				if err := os.WriteFile(filepath.Join(path, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return sysfs.Root{Path: root}
}

const sharedUnknown = "overwrite; the NVMe subsystem is shared, not erased: namespaces of other controllers, if any"

// Parity: P2, P3 (fallback)
func TestNVMe(t *testing.T) {
	failure := errors.New("format failed")
	unreadable := errors.New("no list")
	const management = 2 | oacsNamespaceManagement
	all := make([]uint32, 3000) // lists of three pages
	for i := range all {
		all[i] = uint32(i + 8)
	}
	cases := []struct {
		name   string
		drive  fakeNVMe
		o      Options
		off    bool // Format is switched off
		noPass bool // overwriting is not allowed, as for erase_devices_express
		method Technique
		word   uint32
		err    error
		text   string // part of the error
		zeros  bool   // the namespace was overwritten, with or without an error
	}{
		{name: "crypto", drive: fakeNVMe{oacs: 2, fna: 4}, method: NVMeCrypto, word: 2 << 9},
		{name: "user data", drive: fakeNVMe{oacs: 2}, method: NVMeUser, word: 1 << 9},
		{
			name: "format is kept", drive: fakeNVMe{oacs: 2, flbas: 0x53, dps: 0x09}, method: NVMeUser,
			word: 3 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 2<<12,
		},
		{name: "no format command", drive: fakeNVMe{oacs: 1}, method: Overwrite, zeros: true},
		{name: "failed", drive: fakeNVMe{oacs: 2, formatError: failure}, word: 1 << 9, err: failure},
		{
			name: "failed, overwritten", drive: fakeNVMe{oacs: 2, formatError: failure},
			o: Options{ContinueOnFailure: true}, word: 1 << 9, method: Overwrite, zeros: true,
		},
		{name: "switched off", drive: fakeNVMe{oacs: 2}, off: true, method: Overwrite, zeros: true},

		{name: "all namespaces, one there", drive: fakeNVMe{oacs: 2, fna: 7}, method: NVMeCrypto, word: 2 << 9},
		{
			name: "all namespaces, two there", drive: fakeNVMe{oacs: 2, fna: 7, active: []uint32{7, 9}},
			method: Overwrite, zeros: true,
		},
		{
			name: "format of all namespaces, two there", drive: fakeNVMe{oacs: 2, fna: 1, active: []uint32{3, 7}},
			method: Overwrite, zeros: true,
		},
		{
			name: "erase of all namespaces, two there", drive: fakeNVMe{oacs: 2, fna: 2, active: []uint32{3, 7}},
			method: Overwrite, zeros: true,
		},
		{
			name: "each namespace, two there", drive: fakeNVMe{oacs: 2, fna: 4, active: []uint32{7, 9}},
			method: NVMeCrypto, word: 2 << 9,
		},
		{name: "NVMe 1.1, one there", drive: fakeNVMe{oacs: 2, fna: 7, old: true}, method: NVMeCrypto, word: 2 << 9},
		{
			name: "NVMe 1.1, two there", drive: fakeNVMe{oacs: 2, fna: 7, old: true, active: []uint32{7, 32}},
			method: Overwrite, zeros: true,
		},
		{name: "nothing unattached", drive: fakeNVMe{oacs: management, fna: 7}, method: NVMeCrypto, word: 2 << 9},

		{
			name: "unattached", drive: fakeNVMe{oacs: management, allocated: []uint32{2, 5}}, word: 1 << 9,
			err:  ErrRemains,
			text: "namespaces 2, 5, not attached to the NVMe controller (this namespace: nvme-format-user)",
		},
		{
			name: "unattached, of all namespaces", drive: fakeNVMe{oacs: management, fna: 1, allocated: []uint32{2}},
			err:  ErrRemains,
			text: "namespace 2, not attached to the NVMe controller (this namespace: overwrite)", zeros: true,
		},
		{
			name: "unattached, switched off", drive: fakeNVMe{oacs: management, allocated: []uint32{2}}, off: true,
			err: ErrRemains, text: "namespace 2,", zeros: true,
		},
		{
			name:  "unattached, of all namespaces, no pass",
			drive: fakeNVMe{oacs: management, fna: 1, allocated: []uint32{2}}, noPass: true, err: ErrRemains,
			text: "namespace 2, not attached to the NVMe controller (this namespace: not erased)",
		},
		{
			name:  "unattached, failed",
			drive: fakeNVMe{oacs: management, allocated: []uint32{2}, formatError: failure}, word: 1 << 9,
			err: ErrRemains, text: "namespace 2, not attached to the NVMe controller (this namespace: not erased)",
		},
		{
			name:  "allocated list without the attached ones",
			drive: fakeNVMe{oacs: management, active: []uint32{7, 8, 9, 10, 11}, allocated: []uint32{3}},
			word:  1 << 9, err: ErrRemains, text: "namespace 3, not attached",
		},
		{
			name:  "unattached, many",
			drive: fakeNVMe{oacs: management, active: append([]uint32{7}, all[:2000]...), allocated: all},
			word:  1 << 9, err: ErrRemains,
			text: "namespaces 2008, 2009, 2010, 2011, 2012, 2013, 2014, 2015, 2016, 2017, 2018, 2019, " +
				"2020, 2021, 2022, 2023, and 984 more,",
		},

		{name: "several ports", drive: fakeNVMe{oacs: 2, cmic: 1}, method: sharedUnknown, zeros: true},
		{name: "several controllers", drive: fakeNVMe{oacs: 2, cmic: 2}, method: sharedUnknown, zeros: true},
		{name: "virtual function", drive: fakeNVMe{oacs: 2, cmic: 4}, method: sharedUnknown, zeros: true},
		{name: "asymmetric access", drive: fakeNVMe{oacs: 2, cmic: 8}, method: sharedUnknown, zeros: true},
		{name: "shared namespace", drive: fakeNVMe{oacs: 2, nmic: 1}, method: sharedUnknown, zeros: true},
		{name: "shared, all are visible", drive: fakeNVMe{oacs: management, cmic: 2}, method: Overwrite, zeros: true},
		{
			name: "shared, others' namespaces", drive: fakeNVMe{oacs: management, cmic: 2, allocated: []uint32{2, 5}},
			method: "overwrite; the NVMe subsystem is shared, not erased: namespaces 2, 5, not attached to " +
				"this controller",
			zeros: true,
		},

		{name: "no list", drive: fakeNVMe{oacs: 2, identifyError: unreadable}, err: unreadable},
		{
			name: "no list, switched off", drive: fakeNVMe{oacs: 2, identifyError: unreadable}, off: true,
			err: unreadable,
		},
		{
			name: "no list, overwritten", drive: fakeNVMe{oacs: 2, identifyError: unreadable},
			o: Options{ContinueOnFailure: true},
			method: "overwrite; other namespaces of the NVMe subsystem are not known: NVMe identify (CNS " +
				"0x02): no list", zeros: true,
		},
		{
			name: "no allocated list", drive: fakeNVMe{oacs: management, allocatedError: unreadable},
			err: ErrRemains,
			text: "namespaces not attached to the NVMe controller cannot be listed (this namespace: not erased): " +
				"NVMe identify (CNS 0x10): no list",
		},
		{
			name: "no allocated list, overwritten", drive: fakeNVMe{oacs: management, allocatedError: unreadable},
			o: Options{ContinueOnFailure: true}, err: ErrRemains,
			text: "cannot be listed (this namespace: overwrite): NVMe identify (CNS 0x10): no list", zeros: true,
		},
		{
			name: "no active list, managed, overwritten", drive: fakeNVMe{oacs: management, identifyError: unreadable},
			o: Options{ContinueOnFailure: true}, err: ErrRemains,
			text: "cannot be listed (this namespace: overwrite): NVMe identify (CNS 0x02): no list", zeros: true,
		},
		{
			name:  "shared, no allocated list, overwritten",
			drive: fakeNVMe{oacs: management, cmic: 2, allocatedError: unreadable},
			o:     Options{ContinueOnFailure: true},
			method: "overwrite; other namespaces of the NVMe subsystem are not known: NVMe identify (CNS " +
				"0x10): no list", zeros: true,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			loop := testenv.Loop(t, testenv.SparseFile(t, 10<<20), 512)
			mark := bytes.Repeat([]byte{0xa5}, 4096) // stays after a Format, which must not leave data
			writeAt(t, loop, 5<<20, mark)
			c.o.NVMe, c.o.Zeroize = !c.off, !c.noPass
			disk := block.Device{Name: "nvme0n1", Path: loop, Type: "part"} // a loop device plays its node
			drive := c.drive
			drive.path = loop
			open := func(path string) (adminDevice, error) {
				if path != loop {
					t.Errorf("opened %s", path)
				}
				return &drive, nil
			}
			method, err := decidedRun(t.Context(), t, nvmeTree(t, "nvme0n1"), disk, c.o, nvmeOpeners(open))
			if !errors.Is(err, c.err) || method != c.method || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %q, %v, want %q, %v with %q", method, err, c.method, c.err, c.text)
			}
			if c.word == 0 && len(drive.formats) > 0 ||
				c.word != 0 && (len(drive.formats) != 1 || drive.formats[0] != c.word) {
				t.Errorf("format commands %x, want %x", drive.formats, c.word)
			}
			if got := !bytes.Contains(content(t, loop), mark); got != c.zeros {
				t.Errorf("got overwritten %v, want %v", got, c.zeros)
			}
			if !drive.closed {
				t.Error("the device was not closed")
			}
		})
	}
}

// If the context ends during an identify command, which can take a minute, the next command and the format are not
// sent.
func TestNVMeCancelled(t *testing.T) {
	for name, c := range map[string]struct {
		drive    fakeNVMe
		identify int // the command during which the context ends
	}{
		"controller":      {fakeNVMe{oacs: 2}, 1},
		"namespace":       {fakeNVMe{oacs: 2}, 2},
		"last command":    {fakeNVMe{oacs: 2}, 3},
		"first list":      {fakeNVMe{oacs: 2 | oacsNamespaceManagement}, 3},
		"second list":     {fakeNVMe{oacs: 2 | oacsNamespaceManagement}, 4},
		"NVMe 1.1":        {fakeNVMe{oacs: 2, old: true}, 10},
		"NVMe 1.1, first": {fakeNVMe{oacs: 2, old: true}, 3},
	} {
		for kind, o := range map[string]Options{
			"full": {NVMe: true}, "full, continued": {NVMe: true, Zeroize: true, ContinueOnFailure: true},
			"express": {},
		} {
			path := secretDisk(t, mib)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			sent := 0
			drive := c.drive
			drive.path = path
			drive.afterIdentify = func() {
				if sent++; sent == c.identify {
					cancel()
				}
			}
			disk := block.Device{Name: "nvme0n1", Path: path, Type: "part"} // a loop device plays its node
			open := func(string) (adminDevice, error) { return &drive, nil }
			var method Technique
			var err error
			if kind == "express" {
				method, err = tryExpressWith(ctx, nvmeTree(t, "nvme0n1"), disk, Options{NVMe: true}, func(error) {},
					open)
			} else {
				method, err = tryRunWith(ctx, nvmeTree(t, "nvme0n1"), disk, o, nvmeOpeners(open))
			}
			if !errors.Is(err, context.Canceled) || method != "" {
				t.Errorf("%s, %s: got %q and %v, want %v", name, kind, method, err, context.Canceled)
			}
			if sent != c.identify || len(drive.formats) > 0 || !drive.closed {
				t.Errorf("%s, %s: got %d identify commands, formats %x and closed %v, want %d, no format and closed",
					name, kind, sent, drive.formats, drive.closed, c.identify)
			}
			unchanged(t, path)
		}
	}
}

// Each identify command is progress: a controller with many namespaces takes longer than one command can.
func TestNVMeProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drive := fakeNVMe{oacs: 2, old: true, afterIdentify: func() { time.Sleep(50 * time.Second) }}
		ended := make(chan struct{})
		limits := timelimit.Limits{NoProgress: time.Minute, Grace: time.Second}
		_, err := timelimit.Do(t.Context(), limits, func(ctx context.Context) (Technique, error) {
			defer close(ended)
			_, _, scope := identifyAll(ctx, &drive)
			return "", scope.unknown
		})
		<-ended
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
	})
}

// Only Format can take longer than the time without progress after which a disk counts as hung.
func TestNVMeFormatTime(t *testing.T) {
	failure := errors.New("format failed") // after which no more is done than to close the device
	for _, c := range []struct {
		drive fakeNVMe
		want  error
	}{
		{fakeNVMe{oacs: 2, formatTime: 20 * time.Hour, formatError: failure}, failure},
		{fakeNVMe{oacs: 2, formatTime: 25 * time.Hour, formatError: failure}, timelimit.ErrStuck},
		{fakeNVMe{oacs: 2, closeTime: time.Hour, formatError: failure}, timelimit.ErrStuck},
	} {
		c.drive.path = testenv.SparseFile(t, mib)
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan struct{})
			limits := timelimit.Limits{NoProgress: time.Minute, Grace: time.Second}
			_, err := timelimit.Do(t.Context(), limits, func(ctx context.Context) (Technique, error) {
				defer close(ended)
				method, _, err := eraseNVMe(ctx, block.Device{Path: "/dev/none"}, Options{NVMe: true},
					func(string) (adminDevice, error) { return &c.drive, nil })
				return method, err
			})
			<-ended
			if !errors.Is(err, c.want) {
				t.Errorf("format %v, close %v: got %v, want %v", c.drive.formatTime, c.drive.closeTime, err, c.want)
			}
		})
	}
}

// If a namespace cannot be formatted, its metadata are erased, even if other namespaces remain.
//
// Parity: P5 (fallback)
func TestExpress(t *testing.T) {
	failure, unreadable := errors.New("format failed"), errors.New("no list")
	const management = 2 | oacsNamespaceManagement
	for _, c := range []struct {
		name   string
		drive  fakeNVMe
		method Technique
		reason string // why it was not formatted
		err    error
		text   string // part of the error
	}{
		{name: "formatted", drive: fakeNVMe{oacs: 2}, method: NVMeUser},
		{
			name: "formatted, unattached", drive: fakeNVMe{oacs: management, allocated: []uint32{2}}, err: ErrRemains,
			text: "namespace 2, not attached to the NVMe controller (this namespace: nvme-format-user)",
		},
		{name: "failed", drive: fakeNVMe{oacs: 2, formatError: failure}, method: MetadataOnly, reason: "format failed"},
		{
			name:  "failed, unattached",
			drive: fakeNVMe{oacs: management, formatError: failure, allocated: []uint32{2}}, reason: "format failed",
			err: ErrRemains, text: "namespace 2, not attached to the NVMe controller (this namespace: metadata)",
		},
		{
			name:   "format of all namespaces, unattached",
			drive:  fakeNVMe{oacs: management, fna: 1, allocated: []uint32{2, 5}},
			reason: "NVMe Format would also erase namespaces 2, 5", err: ErrRemains,
			text: "namespaces 2, 5, not attached to the NVMe controller (this namespace: metadata)",
		},
		{
			name: "shared", drive: fakeNVMe{oacs: management, cmic: 2, allocated: []uint32{2}},
			reason: "the subsystem is shared",
			method: "metadata; the NVMe subsystem is shared, not erased: namespace 2, not attached to this controller",
		},
		{
			name: "no list", drive: fakeNVMe{oacs: 2, identifyError: unreadable}, reason: "no list",
			method: "metadata; other namespaces of the NVMe subsystem are not known: NVMe identify (CNS 0x02): no list",
		},
		{
			name: "no allocated list", drive: fakeNVMe{oacs: management, allocatedError: unreadable}, reason: "no list",
			err: ErrRemains, text: "cannot be listed (this namespace: metadata): NVMe identify (CNS 0x10): no list",
		},
		{
			name: "shared, no allocated list", drive: fakeNVMe{oacs: management, cmic: 2, allocatedError: unreadable},
			reason: "no list",
			method: "metadata; other namespaces of the NVMe subsystem are not known: NVMe identify (CNS 0x10): no list",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			loop := testenv.Loop(t, testenv.SparseFile(t, 32<<20), 512)
			writeAt(t, loop, 1024, []byte("signature"))
			writeAt(t, loop, 16<<20, []byte("secret"))
			disk := block.Device{Name: "nvme0n1", Path: loop, Type: "part"} // a loop device plays its node
			c.drive.path = loop
			var reasons []string
			method, err := tryExpressWith(t.Context(), nvmeTree(t, "nvme0n1"), disk, Options{NVMe: true},
				func(err error) { reasons = append(reasons, err.Error()) },
				func(string) (adminDevice, error) { return &c.drive, nil })
			if !errors.Is(err, c.err) || method != c.method || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %q, %v, want %q, %v with %q", method, err, c.method, c.err, c.text)
			}
			formatted := c.reason == ""
			if formatted != (len(reasons) == 0) || !formatted && !strings.Contains(reasons[0], c.reason) {
				t.Errorf("got reasons %q, want %q", reasons, c.reason)
			}
			data := content(t, loop)
			if wiped := !bytes.Contains(data, []byte("signature")); wiped != (c.reason != "") {
				t.Errorf("got metadata removed: %v", wiped)
			}
			if !bytes.Contains(data, []byte("secret")) {
				t.Error("the content was overwritten")
			}
		})
	}
}

// A namespace whose metadata cannot be erased either is not reported as erased.
func TestExpressFails(t *testing.T) {
	drive := fakeNVMe{oacs: 2 | oacsNamespaceManagement, fna: 1, allocated: []uint32{2}}
	path := filepath.Join(t.TempDir(), "missing")
	method, err := tryExpressWith(t.Context(), nvmeTree(t, "nvme0n1"),
		block.Device{Name: "nvme0n1", Path: path, Type: "part"}, Options{NVMe: true},
		func(error) {}, func(string) (adminDevice, error) { return &drive, nil })
	if !errors.Is(err, os.ErrNotExist) || !errors.Is(err, ErrRemains) || method != "" ||
		!strings.Contains(err.Error(), "(this namespace: not erased)") {
		t.Errorf("got %q and %v, want %v and %v", method, err, os.ErrNotExist, ErrRemains)
	}
}

// The result of an erase of the metadata names the namespaces that remain. They are never an error.
func TestNVMeMetadataReport(t *testing.T) {
	const management = 2 | oacsNamespaceManagement
	broken := errors.New("no list")
	for name, c := range map[string]struct {
		device string
		drive  fakeNVMe
		want   Technique
	}{
		"none":               {drive: fakeNVMe{oacs: management}, want: MetadataOnly},
		"others are visible": {drive: fakeNVMe{oacs: management, active: []uint32{7, 9}}, want: MetadataOnly},
		"unattached": {
			drive: fakeNVMe{oacs: management, fna: 1, allocated: []uint32{2, 5}},
			want:  "metadata; not erased: namespaces 2, 5, not attached to this controller",
		},
		"shared": {
			drive: fakeNVMe{oacs: management, cmic: 2, allocated: []uint32{2}},
			want:  "metadata; the NVMe subsystem is shared, not erased: namespace 2, not attached to this controller",
		},
		"no list": {
			drive: fakeNVMe{oacs: 2, identifyError: broken},
			want:  "metadata; other namespaces of the NVMe subsystem are not known: NVMe identify (CNS 0x02): no list",
		},
		"no allocated list": {
			drive: fakeNVMe{oacs: management, allocatedError: broken},
			want:  "metadata; other namespaces of the NVMe subsystem are not known: NVMe identify (CNS 0x10): no list",
		},
		"partition": {
			device: "nvme0n1p1", drive: fakeNVMe{oacs: management, allocated: []uint32{2}}, want: MetadataOnly,
		},
		"other disk": {device: "sda", drive: fakeNVMe{oacs: management, allocated: []uint32{2}}, want: MetadataOnly},
	} {
		d := block.Device{Name: cmp.Or(c.device, "nvme0n1"), Path: "/dev/namespace"}
		opened := ""
		got, _ := try(Options{}, func(o Options) error {
			return recordMetadata(t.Context(), d, o.Recorder,
				func(path string) (adminDevice, error) { opened = path; return &c.drive, nil })
		})
		if got != c.want || len(c.drive.formats) > 0 {
			t.Errorf("%s: got %q and formats %x, want %q and no format", name, got, c.drive.formats, c.want)
		}
		if want := c.device == ""; want != (opened == d.Path) || c.drive.closed != want {
			t.Errorf("%s: got %q opened and closed %v, want %v for both", name, opened, c.drive.closed, want)
		}
	}
	const missing = "/dev/missing/nvme0n1"
	record := &Recorder{}
	if err := RecordMetadata(t.Context(), block.Device{Name: "nvme0n1", Path: missing}, record); err != nil {
		t.Fatal(err)
	}
	got := record.Report().String()
	if !strings.HasPrefix(got, "metadata; other namespaces") || !strings.Contains(got, missing) {
		t.Errorf("missing device: got %q, want that its namespaces are not known", got)
	}
}

// A partition is overwritten: a Format sent through its node would erase the whole namespace.
func TestNVMePartition(t *testing.T) {
	loop := testenv.Loop(t, testenv.SparseFile(t, 10<<20), 512)
	drive := fakeNVMe{oacs: 2}
	method, err := tryRunWith(t.Context(), nvmeTree(t, "nvme0n1p1"),
		block.Device{Name: "nvme0n1p1", Path: loop, Type: "part"},
		Options{NVMe: true, Zeroize: true},
		nvmeOpeners(func(string) (adminDevice, error) { return &drive, nil }))
	if err != nil || method != Overwrite || len(drive.formats) > 0 {
		t.Errorf("got %q, %v and formats %x, want %q and no format", method, err, drive.formats, Overwrite)
	}
}

// The technique follows from the capabilities of the controller.
func TestNVMeTechniques(t *testing.T) {
	var controller nvme.Identity
	var scope nvmeScope
	if _, _, err := formatSetting(controller, scope); err == nil {
		t.Error("no Format command: got a Format")
	}
	if _, err := chooseSanitize(controller, scope); err == nil {
		t.Error("no sanitize: got a sanitize")
	}
	controller.FormatCommand = true
	if method, setting, err := formatSetting(controller, scope); method != NVMeUser || setting != 1 || err != nil {
		t.Errorf("Format: got %q, %d, %v", method, setting, err)
	}
	controller.FormatsCrypto = true
	if method, setting, err := formatSetting(controller, scope); method != NVMeCrypto || setting != 2 || err != nil {
		t.Errorf("cryptographic Format: got %q, %d, %v", method, setting, err)
	}
	for capability, want := range map[nvme.SanitizeCapabilities]Technique{
		0b001: NVMeSanitizeCrypto, 0b010: NVMeSanitizeBlock, 0b100: NVMeSanitizeOverwrite,
	} {
		controller.SanitizeCapabilities = capability
		if a, err := chooseSanitize(controller, scope); a.technique != want || err != nil {
			t.Errorf("SANICAP %03b: got %q, %v, want %q", capability, a.technique, err, want)
		}
	}
}
