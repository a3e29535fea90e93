package erase

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
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
)

// fakeSanitize is the part of a fakeNVMe with the states of a sanitize. Its medium is a file or a loop device.
type fakeSanitize struct {
	sanicap   uint32
	path      string // of the medium
	estimates [3]uint32

	state   uint16 // SSTAT bits 2:0
	command uint32 // SCDW10
	sum     []byte // of the medium at the end of the last sanitize, nil if there was none

	takes       time.Duration // of a sanitize
	end         time.Time     // of the one in progress
	fails       bool
	keeps       [2]int64 // range in bytes that a sanitize leaves
	stalled     bool
	noResult    bool // the state afterwards is the one of a drive that was never sanitized
	noErasedBit bool // GDE is never set
	resets      int  // queries that are lost in the second half of a sanitize
	deaf        bool // the log cannot be read

	startError   error // the drive does not start, and the command fails
	startIgnored bool  // the drive does not start, and the command succeeds
	startLost    bool  // the drive starts, and the command fails
	exitError    error
	unreadable   bool // the medium cannot be read in the failure mode

	sanitizes []uint32 // dword 10 of each command
	file      *os.File
	content   []byte // of the medium before samples were written
	afterward func(opcode byte)
}

func (f *fakeSanitize) medium() (*os.File, int64, error) {
	var err error
	if f.file == nil {
		if f.file, err = os.OpenFile(f.path, os.O_RDWR, 0); err != nil {
			return nil, 0, err
		}
	}
	size, _, err := block.Geometry(f.file)
	if err != nil {
		return nil, 0, err
	}
	f.content = slices.Grow(f.content[:0], int(size))[:size]
	_, err = f.file.ReadAt(f.content, 0)
	return f.file, size, err
}

func (f *fakeSanitize) readable() bool { return !f.unreadable }

// sanitize answers the command Sanitize.
func (f *fakeSanitize) sanitize(c nvme.Command) error {
	f.sanitizes = append(f.sanitizes, c.CDW10)
	switch {
	case c.Namespace != 0 || c.Data != nil:
		return unix.EINVAL
	case c.CDW10 == 1: // exit failure mode
		return f.exitError
	case f.startError != nil:
		return f.startError
	case f.startIgnored:
		return nil
	}
	f.state, f.command, f.end = 2, c.CDW10, time.Now().Add(f.takes)
	if f.startLost {
		return unix.EINTR
	}
	return nil
}

// status answers Get Log Page for the Sanitize Status log.
func (f *fakeSanitize) status(page []byte) error {
	if f.deaf {
		return unix.EIO
	}
	progress := uint16(0xffff)
	if f.state == 2 {
		left := time.Until(f.end)
		if f.resets > 0 && left < f.takes/2 {
			f.resets--
			return unix.EAGAIN
		}
		switch {
		case f.stalled:
			progress = 0
		case left > 0:
			progress = uint16(float64(f.takes-left) / float64(f.takes) * 0xffff)
		default:
			f.finish()
		}
	}
	status := f.state
	if f.sum != nil && !f.noErasedBit && bytes.Equal(f.sum, f.checksum()) {
		status |= 1 << 8
	}
	binary.LittleEndian.PutUint16(page, progress)
	binary.LittleEndian.PutUint16(page[2:], status)
	binary.LittleEndian.PutUint32(page[4:], f.command)
	for i, seconds := range f.estimates {
		binary.LittleEndian.PutUint32(page[8+4*i:], seconds)
	}
	return nil
}

func (f *fakeSanitize) finish() {
	switch {
	case f.fails:
		f.state = 3
	case f.noResult:
		f.state = 0
	default:
		wipeMedium(f.path, f.keeps)
		f.state, f.sum = 1, f.checksum()
	}
}

func (f *fakeSanitize) checksum() []byte {
	file, err := os.Open(f.path)
	if err != nil {
		panic(err)
	}
	defer file.Close() //nolint:errcheck // only read
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		panic(err)
	}
	return sum.Sum(nil)
}

const (
	sanitizeSize = 2 << 20

	sanicapCrypto, sanicapBlock, sanicapOverwrite = 1, 2, 4

	wordBlock, wordOverwrite, wordCrypto, wordExit = 0x0a, 0x1b, 0x0c, 0x01
)

// epoch is the start of the time in a bubble of synctest.
var epoch = time.Unix(946684800, 0)

// sanitizeMedium returns a namespace whose medium is a file full of data.
func sanitizeMedium(t *testing.T) block.Device {
	t.Helper()
	path := filepath.Join(t.TempDir(), "medium")
	put(t, path, string(bytes.Repeat([]byte("secret  "), sanitizeSize/8)))
	return block.Device{Name: "nvme0n1", Path: path, Type: "disk", Transport: "nvme", Size: sanitizeSize}
}

// Namespaces that cannot be formatted are sanitized, and samples are read back. The status of an earlier sanitize does
// not count.
//
// Parity: P2
func TestNVMeSanitize(t *testing.T) {
	const all = sanicapBlock | sanicapCrypto | sanicapOverwrite
	const management = 2 | oacsNamespaceManagement
	rejected := nvme.Status(0x4123)
	for _, c := range []struct {
		name   string
		drive  fakeNVMe
		method Technique
		err    error
		text   string
		words  []uint32
		took   time.Duration // at least
	}{
		{
			name: "block erase", drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: all, takes: time.Hour}},
			method: NVMeSanitizeBlock, words: []uint32{wordBlock}, took: time.Hour,
		},
		{
			name: "crypto erase",
			drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: sanicapCrypto | sanicapOverwrite, takes: time.Millisecond,
			}},
			method: NVMeSanitizeCrypto, words: []uint32{wordCrypto},
		},
		{
			name: "overwrite, controller is reset", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: sanicapOverwrite, takes: 30 * time.Hour, resets: 100,
			}},
			method: NVMeSanitizeOverwrite, words: []uint32{wordOverwrite}, took: 30 * time.Hour,
		},
		{
			name: "Format is preferred", drive: fakeNVMe{oacs: 2, fakeSanitize: fakeSanitize{sanicap: all}},
			method: NVMeUser,
		},
		{
			name: "Format is rejected",
			drive: fakeNVMe{
				oacs: 2, formatError: nvme.Status(0x4001), fakeSanitize: fakeSanitize{sanicap: all},
			},
			method: NVMeSanitizeBlock, words: []uint32{wordBlock},
		},
		{
			name: "Format ends in the kernel",
			drive: fakeNVMe{
				oacs: 2, formatError: unix.EINTR, fakeSanitize: fakeSanitize{sanicap: all},
			},
			err: unix.EINTR, text: "NVMe format: ",
		},
		{
			name: "nothing unattached", drive: fakeNVMe{oacs: oacsNamespaceManagement, fakeSanitize: fakeSanitize{
				sanicap: all,
			}},
			method: NVMeSanitizeBlock, words: []uint32{wordBlock},
		},
		{name: "neither", drive: fakeNVMe{}, err: ErrUnsupported, text: "no Format command"},

		{
			name: "another namespace", drive: fakeNVMe{
				active: []uint32{3, 7}, fakeSanitize: fakeSanitize{sanicap: all},
			},
			err: ErrUnsupported, text: "NVMe sanitize would also erase namespace 3",
		},
		{
			name: "another namespace, Format is rejected", drive: fakeNVMe{
				oacs: 2, formatError: rejected, active: []uint32{3, 7}, fakeSanitize: fakeSanitize{sanicap: all},
			},
			err: rejected, text: "NVMe format: NVMe status 0x4123 (sanitize prohibited while a persistent memory " +
				"region is enabled) (method not supported by the device: NVMe sanitize would also erase namespace 3)",
		},
		{
			name: "unattached namespace", drive: fakeNVMe{
				oacs: management, fna: 1, allocated: []uint32{2}, fakeSanitize: fakeSanitize{sanicap: all},
			},
			err: ErrUnsupported, text: "NVMe sanitize would also erase namespace 2",
		},
		{
			name: "shared subsystem", drive: fakeNVMe{oacs: 2, cmic: 2, fakeSanitize: fakeSanitize{sanicap: all}},
			err: ErrUnsupported, text: "NVMe sanitize would erase namespaces of other hosts",
		},
		{
			name: "shared namespace", drive: fakeNVMe{oacs: 2, nmic: 1, fakeSanitize: fakeSanitize{sanicap: all}},
			err: ErrUnsupported, text: "NVMe sanitize would erase namespaces of other hosts",
		},

		{
			name: "erases nothing", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, keeps: [2]int64{0, sanitizeSize},
			}},
			err: ErrNotErased, text: "256 of 256 samples", words: []uint32{wordBlock},
		},
		{
			name: "keeps the end", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: sanicapCrypto, keeps: [2]int64{sanitizeSize - 512, sanitizeSize},
			}},
			err: ErrNotErased, text: "1 of 256 samples", words: []uint32{wordCrypto},
		},
		{
			name: "keeps 1/64", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, keeps: [2]int64{sanitizeSize / 2, sanitizeSize/2 + sanitizeSize/64},
			}},
			err: ErrNotErased, words: []uint32{wordBlock},
		},
		{
			name: "aborted", drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: all, startError: rejected}},
			err: rejected, text: "NVMe sanitize (nvme-sanitize-block): NVMe status 0x4123 (sanitize prohibited",
			words: []uint32{wordBlock},
		},
		{
			name: "aborted, as Format was", drive: fakeNVMe{
				oacs: 2, formatError: nvme.Status(0x4001),
				fakeSanitize: fakeSanitize{sanicap: all, startError: rejected},
			},
			err: rejected, text: "(NVMe format: NVMe status 0x4001 (invalid command opcode))",
			words: []uint32{wordBlock},
		},
		{
			name: "fails", drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: all, takes: time.Hour, fails: true}},
			text:  "(nvme-sanitize-block): the drive reports that the sanitize failed (SSTAT 0x0003)",
			words: []uint32{wordBlock, wordExit}, took: time.Hour,
		},
		{
			name: "ends without a result", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, takes: time.Hour, noResult: true,
			}},
			text:  "the drive does not report that the sanitize was completed (SSTAT 0x0000)",
			words: []uint32{wordBlock},
		},

		{
			name: "status of an earlier sanitize", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, state: 1, command: wordBlock, startIgnored: true,
			}},
			err: errNotStarted, text: "(SSTAT 0x0001)", words: []uint32{wordBlock}, took: time.Minute,
		},
		{
			name: "failure of an earlier sanitize that was ended", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, state: 3, command: wordBlock, startIgnored: true,
			}},
			err: errNotStarted, text: "(SSTAT 0x0003)", words: []uint32{wordExit, wordBlock},
		},
		{
			name: "never sanitized, not started", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, startIgnored: true,
			}},
			err: errNotStarted, words: []uint32{wordBlock},
		},
		{
			name: "after an earlier sanitize, immediate", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, state: 1, command: wordBlock,
			}},
			method: NVMeSanitizeBlock, words: []uint32{wordBlock},
		},
		{
			name: "after another earlier sanitize, without GDE", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, state: 1, command: wordCrypto, noErasedBit: true,
			}},
			method: NVMeSanitizeBlock, words: []uint32{wordBlock},
		},
		{
			name: "after an earlier sanitize, without GDE", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, state: 1, command: wordBlock, noErasedBit: true, takes: time.Hour,
			}},
			method: NVMeSanitizeBlock, words: []uint32{wordBlock}, took: time.Hour,
		},
		{
			name: "reset at the start", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, takes: time.Hour, startLost: true,
			}},
			method: NVMeSanitizeBlock, words: []uint32{wordBlock}, took: time.Hour,
		},
		{
			name: "reset before the start", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, state: 1, startError: unix.EINTR,
			}},
			err: unix.EINTR, words: []uint32{wordBlock},
		},

		{
			name: "earlier sanitize in progress", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, state: 2, command: wordBlock, takes: time.Hour, end: epoch.Add(time.Hour),
			}},
			method: NVMeSanitizeBlock, words: []uint32{wordBlock}, took: 2 * time.Hour,
		},
		{
			name: "earlier sanitize in progress, Format", drive: fakeNVMe{oacs: 2, fakeSanitize: fakeSanitize{
				sanicap: all, state: 2, command: wordBlock, takes: time.Hour, end: epoch.Add(time.Hour),
			}},
			method: NVMeUser, took: time.Hour,
		},
		{
			name: "earlier sanitize fails", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, state: 3, command: wordBlock,
			}},
			method: NVMeSanitizeBlock, words: []uint32{wordExit, wordBlock},
		},
		{
			name: "earlier sanitize of a shared subsystem failed", drive: fakeNVMe{cmic: 2, fakeSanitize: fakeSanitize{
				sanicap: all, state: 3,
			}},
			err: ErrUnsupported,
		},
		{
			name: "no progress", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, takes: time.Hour, stalled: true,
			}},
			err: errRejects, text: "no progress for 2h0m0s, at 0 %", words: []uint32{wordBlock}, took: 2 * time.Hour,
		},
		{
			name: "no progress for twice the estimate", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, takes: time.Hour, stalled: true, estimates: [3]uint32{1, 7200, 1},
			}},
			err: errRejects, text: "no progress for 4h0m0s", words: []uint32{wordBlock}, took: 4 * time.Hour,
		},
		{
			name: "earlier sanitize without progress", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, state: 2, takes: time.Hour, stalled: true,
			}},
			err:  errRejects,
			text: "NVMe sanitize: sanitize that was in progress: drive rejects reads and writes, no progress",
		},
		{
			name: "does not return", drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: all, takes: time.Hour, resets: 1000,
			}},
			err: errRejects, text: "no state for 10m0s", words: []uint32{wordBlock},
		},
		{
			name: "no log", drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: all, deaf: true}},
			err: unix.EIO, text: "NVMe sanitize (nvme-sanitize-block): NVMe sanitize status log: ",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk, drive := sanitizeMedium(t), c.drive
			drive.path = disk.Path
			var method Technique
			var err error
			var took time.Duration
			synctest.Test(t, func(t *testing.T) {
				started := time.Now()
				method, _, err = eraseNVMe(t.Context(), disk, Options{NVMe: true, NVMeSanitize: true},
					func(string) (adminDevice, error) { return &drive, nil })
				took = time.Since(started)
			})
			if method != c.method || (err == nil) != (c.method != "") || c.err != nil && !errors.Is(err, c.err) ||
				err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %q, %v, want %q, %v with %q", method, err, c.method, c.err, c.text)
			}
			for _, other := range []error{ErrUnsupported, ErrNotErased, errRejects, errNotStarted} {
				if errors.Is(err, other) && !errors.Is(c.err, other) {
					t.Errorf("got an error that wraps %q: %v", other, err)
				}
			}
			if !slices.Equal(drive.sanitizes, c.words) {
				t.Errorf("got sanitize commands %x, want %x", drive.sanitizes, c.words)
			}
			if took < c.took || took > c.took+5*time.Hour {
				t.Errorf("took %v, want %v", took, c.took)
			}
			data := content(t, disk.Path)
			if strings.HasPrefix(string(c.method), "nvme-sanitize") && !bytes.Equal(data, make([]byte, sanitizeSize)) {
				t.Error("data are left")
			}
			if errors.Is(c.err, ErrUnsupported) && bytes.Count(data, []byte("secret  ")) != sanitizeSize/8 {
				t.Error("the namespace was written to")
			}
			if !drive.closed {
				t.Error("the device was not closed")
			}
		})
	}
}

// A drive that does not leave the failure mode is an error that says how to make it usable, and is not overwritten. One
// that can be read is usable, whatever it reports.
func TestSanitizeFailureMode(t *testing.T) {
	stays := nvme.Status(0x401c)
	const path = "/dev/nvme9n1"
	for name, c := range map[string]struct {
		drive fakeSanitize
		fails bool
	}{
		"unreadable":       {fakeSanitize{exitError: stays, unreadable: true}, true},
		"readable":         {fakeSanitize{exitError: stays}, false},
		"left, unreadable": {fakeSanitize{unreadable: true}, false},
	} {
		s := sanitizer{device: &fakeNVMe{fakeSanitize: c.drive}, path: path}
		err := s.exitFailure()
		if errors.Is(err, errRejects) != c.fails || errors.Is(err, stays) != c.fails ||
			c.fails && !strings.Contains(err.Error(), "nvme sanitize --sanact=2 "+path+": ") {
			t.Errorf("%s: got %v, want an error: %v", name, err, c.fails)
		}
	}
}

// A drive is overwritten after a failed sanitize only if that is allowed, and never in its failure mode. The method
// says why. A namespace that must not be sanitized is overwritten, as one without sanitize.
//
// Parity: P3 (fallback)
func TestNVMeSanitizeFallback(t *testing.T) {
	aborted := nvme.Status(0x4002)
	overwrite := Options{NVMe: true, NVMeSanitize: true, Zeroize: true}
	mayOverwrite := overwrite
	mayOverwrite.ContinueOnFailure = true
	for _, c := range []struct {
		name   string
		drive  fakeNVMe
		o      Options
		method Technique
		err    error
		text   string
		kept   bool // the content
	}{
		{
			name: "another namespace", o: overwrite, method: Overwrite,
			drive: fakeNVMe{active: []uint32{7, 9}, fakeSanitize: fakeSanitize{sanicap: sanicapBlock}},
		},
		{
			name: "switched off", o: Options{NVMeSanitize: true, Zeroize: true}, method: Overwrite,
			drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: sanicapBlock, state: 3}},
		},
		{
			name: "sanitized", o: overwrite, method: NVMeSanitizeBlock,
			drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: sanicapBlock}},
		},
		{
			name: "fails", o: overwrite, text: "SSTAT 0x0003", kept: true,
			drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: sanicapBlock, fails: true}},
		},
		{
			name: "fails, may be overwritten", o: mayOverwrite,
			method: "overwrite; secure erase failed: NVMe sanitize (nvme-sanitize-block): the drive reports that the " +
				"sanitize failed (SSTAT 0x0003) (method not supported by the device: the NVMe controller has no " +
				"Format command)",
			drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: sanicapBlock, fails: true}},
		},
		{
			name: "aborted", o: overwrite, err: aborted, text: "invalid field in command", kept: true,
			drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: sanicapBlock, startError: aborted}},
		},
		{
			name: "keeps data", o: overwrite, err: ErrNotErased, kept: true,
			drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: sanicapBlock, keeps: [2]int64{0, 10 << 20}}},
		},
		{
			name: "failure mode", o: mayOverwrite, err: errRejects, text: "nvme sanitize --sanact=2", kept: true,
			drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: sanicapBlock, fails: true, exitError: nvme.Status(0x401c), unreadable: true,
			}},
		},
		{
			name: "earlier failure mode", o: mayOverwrite, err: errRejects, text: "nvme sanitize --sanact=2",
			kept: true,
			drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: sanicapBlock, state: 3, exitError: nvme.Status(0x401c), unreadable: true,
			}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			loop := testenv.Loop(t, testenv.SparseFile(t, 10<<20), 512)
			put(t, loop, string(bytes.Repeat([]byte("secret  "), 10<<17)))
			drive := c.drive
			drive.path = loop
			disk := block.Device{Name: "nvme0n1", Path: loop, Type: "part"} // a loop device plays its node
			method, err := decidedRun(t.Context(), t, nvmeTree(t, "nvme0n1"), disk, c.o,
				nvmeOpeners(func(string) (adminDevice, error) { return &drive, nil }))
			if method != c.method || (err == nil) != (c.method != "") || c.err != nil && !errors.Is(err, c.err) ||
				err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %q, %v, want %q, %v with %q", method, err, c.method, c.err, c.text)
			}
			if kept := bytes.Contains(content(t, loop), []byte("secret")); kept != c.kept {
				t.Errorf("got content kept %v, want %v", kept, c.kept)
			}
		})
	}
}

// erase_devices_express does not sanitize, because that can take hours.
func TestExpressDoesNotSanitize(t *testing.T) {
	loop := testenv.Loop(t, testenv.SparseFile(t, 10<<20), 512)
	drive := fakeNVMe{fakeSanitize: fakeSanitize{sanicap: sanicapBlock, path: loop}}
	disk := block.Device{Name: "nvme0n1", Path: loop, Type: "part"} // a loop device plays its node
	method, err := tryExpressWith(t.Context(), nvmeTree(t, "nvme0n1"), disk, Options{NVMe: true}, func(error) {},
		func(string) (adminDevice, error) { return &drive, nil })
	if err != nil || method != MetadataOnly || len(drive.sanitizes) > 0 {
		t.Errorf("got %q, %v and sanitize commands %x, want %q and no command",
			method, err, drive.sanitizes, MetadataOnly)
	}
}

// The progress of a sanitize is reported up to the size, with the time that the drive says it takes. It may take as
// long as it reports progress.
func TestSanitizeProgress(t *testing.T) {
	for _, c := range []struct {
		estimates [3]uint32 // overwrite, block erase, crypto erase
		want      time.Duration
	}{
		{[3]uint32{1, 3600, 2}, time.Hour},
		{[3]uint32{1, 0xffffffff, 2}, 0},
	} {
		disk := sanitizeMedium(t)
		synctest.Test(t, func(t *testing.T) {
			drive := fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: sanicapBlock, path: disk.Path, takes: 50 * time.Hour, estimates: c.estimates,
			}}
			var done []int64
			announced := 0
			o := Options{
				NVMe: true, NVMeSanitize: true,
				Recorder: &Recorder{Observer: observe(func(p Progress) {
					switch p.Phase {
					case Sanitizing:
						if p.Total != sanitizeSize {
							t.Errorf("got a total of %d bytes, want %d", p.Total, sanitizeSize)
						}
						done = append(done, p.Done)
					case SanitizeStarted:
						if announced++; p.Technique != NVMeSanitizeBlock || p.Estimate != c.want {
							t.Errorf("got %s for %v, want %s for %v",
								p.Technique, p.Estimate, NVMeSanitizeBlock, c.want)
						}
					}
				})},
			}
			method, err := timelimit.Do(t.Context(), timelimit.Disk, func(ctx context.Context) (Technique, error) {
				method, _, err := eraseNVMe(ctx, disk, o, func(string) (adminDevice, error) { return &drive, nil })
				return method, err
			})
			if err != nil || method != NVMeSanitizeBlock || announced != 1 {
				t.Errorf("got %q, %v and %d announcements, want %s and one", method, err, announced, NVMeSanitizeBlock)
			}
			if len(done) < 10000 || done[0] != 0 || done[len(done)-1] < sanitizeSize*99/100 ||
				done[len(done)-1] > sanitizeSize || !slices.IsSorted(done) {
				t.Errorf("got %d reports of progress, want more up to the size", len(done))
			}
		})
	}
}

const sanitizeContinues = "the sanitize continues in the drive (drive rejects reads and writes), " +
	"erase the drive again to wait for its end: context canceled"

// If the context ends, no sanitize is started, and one that was started is said to continue.
func TestSanitizeCancelled(t *testing.T) {
	for _, c := range []struct {
		name  string
		after int // number of commands after which the context ends
		words []uint32
		text  string
	}{
		{name: "first log", after: 4},
		{name: "log after the samples", after: 5},
		{name: "sanitize", after: 6, words: []uint32{wordBlock}, text: sanitizeContinues},
		{name: "progress", after: 7, words: []uint32{wordBlock}, text: sanitizeContinues},
	} {
		disk := sanitizeMedium(t)
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			sent := 0
			drive := fakeNVMe{fakeSanitize: fakeSanitize{sanicap: sanicapBlock, path: disk.Path, takes: time.Hour}}
			drive.afterward = func(byte) {
				if sent++; sent == c.after {
					cancel()
				}
			}
			method, _, err := eraseNVMe(ctx, disk, Options{NVMe: true, NVMeSanitize: true},
				func(string) (adminDevice, error) { return &drive, nil })
			if method != "" || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), c.text) ||
				errors.Is(err, ErrUnsupported) || errors.Is(err, errRejects) != (c.text != "") {
				t.Errorf("%s: got %q, %v, want it cancelled with %q", c.name, method, err, c.text)
			}
			if !slices.Equal(drive.sanitizes, c.words) {
				t.Errorf("%s: got sanitize commands %x, want %x", c.name, drive.sanitizes, c.words)
			}
		})
	}
}

// After the context has ended, no command is sent, and each function returns the error: a later step could succeed.
func TestSanitizerCancelled(t *testing.T) {
	for name, c := range map[string]struct {
		after int // number of commands after which the context ends
		do    func(context.Context, *sanitizer) error
	}{
		"log": {0, func(ctx context.Context, s *sanitizer) error {
			_, err := queryNVMe(ctx, s.device).SanitizeStatus()
			return err
		}},
		"settle": {0, func(ctx context.Context, s *sanitizer) error { _, err := s.settle(ctx); return err }},
		"run":    {1, func(ctx context.Context, s *sanitizer) error { return s.run(ctx, sanitizeActions[0]) }},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		sent := 0
		drive := fakeNVMe{fakeSanitize: fakeSanitize{sanicap: sanicapBlock, path: sanitizeMedium(t).Path}}
		drive.afterward = func(byte) {
			if sent++; sent == c.after {
				cancel()
			}
		}
		if c.after == 0 {
			cancel()
		}
		if err := c.do(ctx, &sanitizer{device: &drive}); !errors.Is(err, context.Canceled) || sent != c.after {
			t.Errorf("%s: got %v and %d commands, want %v and %d", name, err, sent, context.Canceled, c.after)
		}
	}
}

// If another host starts a sanitize after the state was read first, no sanitize is started.
func TestSanitizeMeanwhile(t *testing.T) {
	drive := fakeNVMe{fakeSanitize: fakeSanitize{
		sanicap: sanicapBlock, path: sanitizeMedium(t).Path, state: 2, takes: time.Hour, end: time.Now().Add(time.Hour),
	}}
	s := sanitizer{device: &drive}
	err := s.run(t.Context(), sanitizeActions[0])
	if !errors.Is(err, errRejects) || !strings.Contains(err.Error(), "another sanitize is in progress") ||
		len(drive.sanitizes) > 0 {
		t.Errorf("got %v and commands %x, want an error and none", err, drive.sanitizes)
	}
}

// The command may take its time limit without progress. A drive that hangs after it counts as hung.
func TestNVMeSanitizeTimeLimit(t *testing.T) {
	for name, c := range map[string]struct {
		command, log time.Duration // duration of Sanitize and of the next query
		err          error
	}{
		"slow command": {command: 9 * time.Minute},
		"hangs":        {log: 9 * time.Minute, err: timelimit.ErrStuck},
	} {
		disk := sanitizeMedium(t)
		synctest.Test(t, func(t *testing.T) {
			drive := fakeNVMe{fakeSanitize: fakeSanitize{sanicap: sanicapBlock, path: disk.Path}}
			drive.afterward = func(opcode byte) {
				switch {
				case opcode == opSanitize:
					time.Sleep(c.command)
				case len(drive.sanitizes) > 0:
					time.Sleep(c.log)
				}
			}
			ended := make(chan struct{})
			_, err := timelimit.Do(t.Context(), timelimit.Limits{NoProgress: time.Minute, Grace: time.Second},
				func(ctx context.Context) (any, error) {
					defer close(ended)
					_, _, err := eraseNVMe(ctx, disk, Options{NVMe: true, NVMeSanitize: true},
						func(string) (adminDevice, error) { return &drive, nil })
					return nil, err
				})
			<-ended
			if !errors.Is(err, c.err) {
				t.Errorf("%s: got %v, want %v", name, err, c.err)
			}
		})
	}
}

// A namespace that is too small for samples is not formatted or sanitized, because that could not be checked; nor is
// one that cannot be written or opened.
func TestNVMeWithoutSamples(t *testing.T) {
	for _, oacs := range []byte{0, 2} {
		for _, text := range []string{"too small for samples", "no such file"} {
			disk := sanitizeMedium(t)
			put(t, disk.Path, "small")
			drive := fakeNVMe{oacs: oacs, fakeSanitize: fakeSanitize{sanicap: sanicapBlock, path: disk.Path}}
			if text == "no such file" {
				drive.path = "/dev/missing"
			}
			method, _, err := eraseNVMe(t.Context(), disk, Options{NVMe: true, NVMeSanitize: true},
				func(string) (adminDevice, error) { return &drive, nil })
			if method != "" || err == nil || !strings.Contains(err.Error(), text) ||
				len(drive.sanitizes)+len(drive.formats) > 0 {
				t.Errorf("got %q, %v and commands %x %x, want an error with %q",
					method, err, drive.formats, drive.sanitizes, text)
			}
		}
	}
}

// Recover waits for a sanitize in progress and ends the failure mode, and then reads the partition table. It sends no
// other command, and ignores drives that do not answer.
func TestRecoverNVMe(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		drive fakeNVMe
		open  error
		err   error // unix.ENOTTY comes from the rescan of a file
		words []uint32
		took  time.Duration
	}{
		{name: "no sanitize", drive: fakeNVMe{}},
		{name: "never sanitized", drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: 1}}},
		{name: "sanitized", drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: 1, state: 1}}},
		{
			name: "in progress", err: unix.ENOTTY, took: time.Hour,
			drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: 1, state: 2, takes: time.Hour, end: epoch.Add(time.Hour),
			}},
		},
		{
			name: "ends before the second query", err: unix.ENOTTY, took: time.Second,
			drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: 1, state: 2, takes: time.Second, end: epoch.Add(time.Second),
				afterward: func(byte) { time.Sleep(time.Second / 2) },
			}},
		},
		{
			name: "no progress", err: errRejects, took: 2 * time.Hour,
			drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: 1, state: 2, takes: time.Hour, stalled: true}},
		},
		{
			name: "in progress, fails", err: unix.ENOTTY, took: time.Hour, words: []uint32{wordExit},
			drive: fakeNVMe{fakeSanitize: fakeSanitize{
				sanicap: 1, state: 2, takes: time.Hour, end: epoch.Add(time.Hour), fails: true,
			}},
		},
		{
			name: "failed", err: unix.ENOTTY, words: []uint32{wordExit},
			drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: 1, state: 3}},
		},
		{name: "failed, shared", drive: fakeNVMe{cmic: 1, fakeSanitize: fakeSanitize{sanicap: 1, state: 3}}},
		{name: "no log", drive: fakeNVMe{fakeSanitize: fakeSanitize{sanicap: 1, deaf: true}}},
		{name: "no data", drive: fakeNVMe{controllerError: broken, fakeSanitize: fakeSanitize{sanicap: 1, state: 3}}},
		{name: "not opened", open: broken, err: broken},
	} {
		disk, drive := sanitizeMedium(t), c.drive
		drive.path = disk.Path
		synctest.Test(t, func(t *testing.T) {
			started := time.Now()
			var done []int64
			err := recoverNVMe(t.Context(), disk, onProgress(func(n, _ int64) { done = append(done, n) }),
				func(string) (adminDevice, error) { return &drive, c.open })
			if !errors.Is(err, c.err) || !slices.Equal(drive.sanitizes, c.words) {
				t.Errorf("%s: got %v and commands %x, want %v and %x", c.name, err, drive.sanitizes, c.err, c.words)
			}
			if took := time.Since(started); took < c.took || took > c.took+time.Minute ||
				(len(done) > 0) != (c.took > 0) {
				t.Errorf("%s: took %v with %d reports of progress, want %v", c.name, took, len(done), c.took)
			}
			if drive.closed != (c.open == nil) {
				t.Errorf("%s: got closed %v", c.name, drive.closed)
			}
		})
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := recoverNVMe(cancelled, sanitizeMedium(t), nil, func(string) (adminDevice, error) {
		return &fakeNVMe{}, nil
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
	missing := block.Device{Name: "nvme0n1", Path: "/dev/missing"}
	if err := Recover(t.Context(), missing, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing namespace: got %v, want %v", err, os.ErrNotExist)
	}
	file := sanitizeMedium(t)
	if err := Recover(t.Context(), file, nil); err != nil { // a file accepts no commands
		t.Errorf("file: got %v, want no error", err)
	}
	missing.Name = "nvme0n1p1"
	if err := Recover(t.Context(), missing, nil); err != nil {
		t.Errorf("partition: got %v, want no error", err)
	}
}
