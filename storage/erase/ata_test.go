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
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/ata"
	"ironroot/storage/block"
	"ironroot/storage/scsi"
	"ironroot/storage/sysfs"
)

// fakeATA is the transport of a drive with the states of ACS-4 (security SEC1, SEC2, SEC4, SEC5 and SEC6, sanitize SD0
// to SD4). Its medium is a file.
type fakeATA struct {
	path string
	log  []string // names of the commands

	unreachable bool // the adapter does not pass commands through

	native, accessible, configured uint64 // largest addresses by HPA, AMAC and DCO; 0 without the feature
	short                          bool   // addresses of 28 bits
	queryFails                     string // query that the drive rejects

	discovery  []byte // reply to TCG Level 0 Discovery; nil for a drive without Trusted Computing
	translated bool   // the kernel translates SECURITY PROTOCOL IN
	allowed    bool   // the kernel passes TRUSTED RECEIVE

	noSecurity, enhanced, locked, frozen, expired bool
	maximum                                       bool          // security level Maximum
	password                                      *ata.Password // nil if security is disabled
	normalTime, enhancedTime                      uint16        // words 89 and 90
	takes                                         time.Duration // of an erase

	setFails, disableFails, eraseFails, staysEnabled bool
	vanishesAfter                                    string   // command
	keeps                                            [2]int64 // range in bytes that an erase leaves

	sanitize                    uint16        // word 59
	sanitizing                  time.Duration // duration of a sanitize
	sanitizeEnd                 time.Time     // of the one in progress
	sanitizeFrozen              bool
	sanitizeFails, startIgnored bool
	startFails, mute, noResult  bool // mute: states are returned without registers
	clearFails                  bool
	failed, completed, stalled  bool
	resets                      int // queries that are lost in the second half of a sanitize

	prepared  bool
	timeout   time.Duration // of SECURITY ERASE UNIT
	afterward func(command string)
}

var commandNames = map[byte]string{
	0x27: "native", 0xf8: "native", 0x78: "accessible", 0xb1: "configuration",
	0x5c: "trusted", 0xec: "identify", 0xf1: "set", 0xf2: "unlock", 0xf3: "prepare", 0xf4: "erase", 0xf6: "disable",
}

var sanitizeNames = map[uint16]string{0: "status", 0x11: "crypto", 0x12: "block", 0x14: "overwrite"}

var zeroPassword ata.Password

// Send implements [scsi.Transport] for ATA PASS-THROUGH (16).
func (f *fakeATA) Send(r scsi.Request) (scsi.Reply, error) {
	cdb := r.CDB
	if cdb[0] == 0xa2 {
		return discoveryReply(r, f.discovery, f.translated), nil
	}
	name := commandNames[cdb[14]]
	if cdb[14] == 0xb4 {
		name = sanitizeNames[binary.BigEndian.Uint16(cdb[3:])]
		if name == "status" && cdb[6] == 1 {
			name = "clear"
		}
	}
	queries := []string{"identify", "status", "trusted", "native", "accessible", "configuration"}
	if !slices.Contains(queries, name) {
		f.log = append(f.log, name)
	}
	if f.unreachable {
		return scsi.Reply{Host: 7}, nil
	}
	reply, err := f.execute(name, r)
	f.unreachable = name == f.vanishesAfter
	if f.afterward != nil {
		f.afterward(name)
	}
	return reply, err
}

func (f *fakeATA) execute(name string, r scsi.Request) (scsi.Reply, error) {
	prepared := f.prepared
	f.prepared = false
	var given ata.Password
	if r.ToDevice {
		copy(given[:], r.Data[2:])
	}
	knows := f.password != nil && *f.password == given
	secured := !f.noSecurity && !f.frozen
	switch name {
	case "identify":
		f.identity(r.Data)
		return scsi.Reply{}, nil
	case "native", "accessible", "configuration":
		if name == f.queryFails {
			return aborted(0), nil
		}
		return f.capacity(name, r), nil
	case "trusted":
		if !f.allowed { // as Linux does without libata.allow_tpm
			return senseReply(5, 0x24, 0), nil
		}
		copy(r.Data, f.discovery)
		return scsi.Reply{}, nil
	case "set":
		if !secured || f.locked || f.setFails {
			return aborted(0), nil
		}
		f.password = &given
	case "unlock":
		if !secured || f.expired || !knows {
			return aborted(0), nil
		}
		f.locked = false
	case "disable":
		if !secured || f.locked || !knows || f.disableFails {
			return aborted(0), nil
		}
		f.password = nil
	case "prepare":
		f.prepared = true
		return registers(0, 0), nil
	case "erase":
		return f.erase(r, secured && prepared && knows && !f.expired), nil
	case "status", "clear":
		return f.status(name == "clear"), nil
	case "crypto", "block", "overwrite":
		if f.locked || f.sanitizeFrozen || f.startFails {
			return aborted(3), nil
		}
		f.completed, f.failed = false, false
		if f.startIgnored {
			f.completed = true
			return registers(1<<15, 0xffff), nil
		}
		f.sanitizeEnd = time.Now().Add(f.sanitizing)
		return registers(1<<14, 0), nil
	}
	return scsi.Reply{}, nil
}

// capacity answers the queries of the largest address.
func (f *fakeATA) capacity(name string, r scsi.Request) scsi.Reply {
	switch {
	case name == "configuration":
		r.Data[0], r.Data[510] = 2, 0xa5
		binary.LittleEndian.PutUint64(r.Data[6:], f.configured)
		for _, b := range r.Data[:511] {
			r.Data[511] -= b
		}
		return scsi.Reply{}
	case name == "accessible":
		return registers(0, f.accessible)
	case f.short != (r.CDB[14] == 0xf8):
		return aborted(0)
	case f.short:
		reply := registers(0, f.native&0xffffff)
		reply.Sense[10], reply.Sense[20] = 0, 0xe0|byte(f.native>>24)
		return reply
	}
	return registers(0, f.native)
}

func (f *fakeATA) erase(r scsi.Request, allowed bool) scsi.Reply {
	f.timeout = r.Timeout
	enhanced := r.Data[0]&2 != 0
	time.Sleep(f.takes)
	switch {
	case !allowed || enhanced && !f.enhanced:
		return aborted(0)
	case f.takes > r.Timeout:
		f.locked = true
		return scsi.Reply{Host: 3}
	case f.eraseFails:
		f.locked = true
		return aborted(0)
	}
	f.wipe()
	f.locked = false
	if !f.staysEnabled {
		f.password = nil
	}
	return scsi.Reply{}
}

// status answers SANITIZE STATUS EXT.
func (f *fakeATA) status(clear bool) scsi.Reply {
	if !f.sanitizeEnd.IsZero() {
		left := time.Until(f.sanitizeEnd)
		if left > 0 || f.stalled {
			if f.resets > 0 && left < f.sanitizing/2 {
				f.resets--
				return scsi.Reply{Host: 8}
			}
			progress := uint64(0)
			if !f.stalled {
				progress = uint64((f.sanitizing - left) * 0xffff / f.sanitizing)
			}
			return registers(1<<14, progress)
		}
		f.sanitizeEnd = time.Time{}
		if f.sanitizeFails {
			f.failed = true
		} else {
			f.wipe()
			f.completed = !f.noResult
		}
	}
	if f.mute {
		return scsi.Reply{}
	}
	if f.failed && clear && !f.clearFails {
		f.failed = false
	}
	switch {
	case f.failed:
		return aborted(1)
	case f.sanitizeFrozen:
		return registers(1<<13, 0xffff)
	case f.completed:
		return registers(1<<15, 0xffff)
	}
	return registers(0, 0xffff)
}

func (f *fakeATA) identity(data []byte) {
	words := map[int]uint16{
		23: 'A'<<8 | 'B', 24: '1'<<8 | '2', 25: 'C'<<8 | 'D', 26: '3'<<8 | '4',
		59: f.sanitize, 83: 0x4000, 89: f.normalTime, 90: f.enhancedTime,
	}
	if f.discovery != nil {
		words[48] = 0x4001
	}
	if f.native+f.accessible+f.configured > 0 {
		words[60], words[100] = ataSize/512, ataSize/512
		if !f.short {
			words[83] |= 1 << 10
		}
	}
	if f.native > 0 {
		words[82] |= 1 << 10
	}
	if f.accessible > 0 {
		words[119] = 0x4100
	}
	if f.configured > 0 {
		words[83] |= 1 << 11
	}
	if !f.noSecurity {
		set := []bool{true, f.password != nil, f.locked, f.frozen, f.expired, f.enhanced, false, false, f.maximum}
		for bit, set := range set {
			if set {
				words[128] |= 1 << bit
			}
		}
	}
	for n, value := range words {
		binary.LittleEndian.PutUint16(data[2*n:], value)
	}
}

// wipe zeroes the medium.
func (f *fakeATA) wipe() { wipeMedium(f.path, f.keeps) }

// wipeMedium zeroes a medium except for a range.
func wipeMedium(path string, keeps [2]int64) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil && keeps[1] == 0 {
		_, err = file.WriteAt(make([]byte, size), 0)
	} else if err == nil {
		_, err = file.WriteAt(make([]byte, keeps[0]), 0)
		_, after := file.WriteAt(make([]byte, size-keeps[1]), keeps[1])
		err = errors.Join(err, after)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		panic(err)
	}
}

// registers is the reply of a command without an error.
func registers(count uint16, lba uint64) scsi.Reply {
	return scsi.Reply{Status: 2, Driver: 8, Sense: []byte{
		0x72, 1, 0, 0x1d, 0, 0, 0, 14, 9, 12, 1, 0, byte(count >> 8), byte(count),
		byte(lba >> 24), byte(lba), byte(lba >> 32), byte(lba >> 8), byte(lba >> 40), byte(lba >> 16), 0, 0x50,
	}}
}

// aborted is the reply of a command that the drive aborts.
func aborted(reason byte) scsi.Reply {
	return scsi.Reply{Status: 2, Driver: 8, Sense: []byte{
		0x72, 0xb, 0, 0, 0, 0, 0, 14, 9, 12, 1, 4, 0, 0, 0, reason, 0, 0, 0, 0, 0, 0x51,
	}}
}

func (f *fakeATA) open(path string) (scsi.Transport, *os.File, int64, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, 0, err
	}
	size, err := file.Seek(0, io.SeekEnd)
	return f, file, size, err
}

const (
	ataSize = 10 << 20

	sanitizeBlock, sanitizeCrypto, sanitizeOverwrite = 1<<12 | 1<<15, 1<<12 | 1<<13, 1<<12 | 1<<14
)

// ataMedium returns a disk whose medium is a file of random data.
func ataMedium(t *testing.T) block.Device {
	t.Helper()
	path := filepath.Join(t.TempDir(), "medium")
	put(t, path, string(bytes.Repeat([]byte("secret  "), ataSize/8)))
	return block.Device{Name: "sda", Path: path, Type: "disk", Transport: "sata"}
}

// Drives in every state of the Security and the Sanitize Device feature set.
//
// Parity: P1
func TestATA(t *testing.T) {
	tenant, null := ata.Password{'t'}, ata.Password{'N', 'U', 'L', 'L'}
	block := sanitizeBlock | sanitizeCrypto | sanitizeOverwrite
	for _, c := range []struct {
		name    string
		drive   fakeATA
		method  Technique
		err     error
		text    string   // contained in the error
		log     []string // commands other than queries
		timeout time.Duration
		left    bool // security stays enabled
	}{
		{
			name: "secure erase", drive: fakeATA{normalTime: 30, enhancedTime: 60}, method: ATAErase,
			log: []string{"set", "prepare", "erase"}, timeout: 150 * time.Minute,
		},
		{
			name: "enhanced", drive: fakeATA{enhanced: true, normalTime: 30, enhancedTime: 60}, method: ATAEnhanced,
			log: []string{"set", "prepare", "erase"}, timeout: 270 * time.Minute,
		},
		{
			name: "enhanced, sanitize too", drive: fakeATA{enhanced: true, sanitize: uint16(block)},
			method: ATAEnhanced, log: []string{"set", "prepare", "erase"}, timeout: 72 * time.Hour,
		},
		{
			name: "longest time", drive: fakeATA{normalTime: 0xfffe}, method: ATAErase,
			log: []string{"set", "prepare", "erase"}, timeout: scsi.MaxTimeout,
		},
		{
			name: "as long as allowed", drive: fakeATA{normalTime: 1, takes: 34 * time.Minute}, method: ATAErase,
			log: []string{"set", "prepare", "erase"}, timeout: 34 * time.Minute,
		},
		{
			name: "too long", drive: fakeATA{normalTime: 1, takes: 35 * time.Minute},
			text: "SECURITY ERASE UNIT: host adapter result 0x03 (timed out)",
			log:  []string{"set", "prepare", "erase", "unlock", "disable"}, timeout: 34 * time.Minute,
		},
		{name: "neither", drive: fakeATA{noSecurity: true}, err: ErrUnsupported},
		{name: "no pass-through", drive: fakeATA{unreachable: true}, err: ErrUnsupported, text: "error of the adapter"},
		{
			name: "sanitize without a method", drive: fakeATA{noSecurity: true, sanitize: 1 << 12}, err: ErrUnsupported,
		},
		{
			name: "block erase", drive: fakeATA{noSecurity: true, sanitize: uint16(block), sanitizing: time.Hour},
			method: ATASanitizeBlock, log: []string{"block"},
		},
		{
			name: "crypto scramble", drive: fakeATA{noSecurity: true, sanitize: sanitizeCrypto | sanitizeOverwrite},
			method: ATASanitizeCrypto, log: []string{"crypto"},
		},
		{
			name: "frozen, sanitize overwrite",
			drive: fakeATA{
				frozen: true, sanitize: sanitizeOverwrite, sanitizing: 24 * time.Hour, resets: 60,
			},
			method: ATASanitizeOverwrite, log: []string{"overwrite"},
		},
		{
			name: "expired, sanitize", drive: fakeATA{expired: true, sanitize: sanitizeBlock}, method: ATASanitizeBlock,
			log: []string{"block"},
		},
		{name: "frozen", drive: fakeATA{frozen: true}, text: "frozen by the firmware (the drive has no sanitize"},
		{
			name: "expired", drive: fakeATA{expired: true},
			text: "after too many wrong ones (the drive has no sanitize",
		},
		{
			name: "both frozen", drive: fakeATA{frozen: true, sanitize: sanitizeBlock, sanitizeFrozen: true},
			text: "frozen by the firmware (sanitize is frozen until",
		},
		{
			name: "sanitize frozen", drive: fakeATA{noSecurity: true, sanitize: sanitizeBlock, sanitizeFrozen: true},
			err: ErrUnsupported, text: "sanitize is frozen until the drive is switched off and on",
		},
		{
			name: "sanitize frozen, security not",
			drive: fakeATA{
				sanitize: sanitizeBlock, sanitizeFrozen: true,
			},
			method: ATAErase, log: []string{"set", "prepare", "erase"}, timeout: 72 * time.Hour,
		},
		{
			name: "frozen with a password", drive: fakeATA{frozen: true, password: &tenant}, err: ErrLocked,
			text: "switch the drive off and on", left: true,
		},
		{
			name: "frozen with a password, sanitize",
			drive: fakeATA{
				frozen: true, password: &tenant, sanitize: sanitizeBlock,
			},
			err: ErrLocked, text: "(drive erased: ata-sanitize-block)", log: []string{"block"}, left: true,
		},
		{
			name: "unlocked with a password", drive: fakeATA{password: &tenant}, method: ATAErase,
			log: []string{"set", "prepare", "erase"}, timeout: 72 * time.Hour,
		},
		{
			name: "locked by an interrupted erase", drive: fakeATA{locked: true, password: &zeroPassword},
			method: ATAErase, log: []string{"unlock", "disable", "set", "prepare", "erase"}, timeout: 72 * time.Hour,
		},
		{
			name: "locked by an old hdparm", drive: fakeATA{locked: true, password: &null}, method: ATAErase,
			log: []string{"unlock", "unlock", "disable", "set", "prepare", "erase"}, timeout: 72 * time.Hour,
		},
		{
			name: "locked by a tenant", drive: fakeATA{locked: true, password: &tenant}, err: ErrLocked,
			text: "use hdparm --security-disable PASSWORD", log: []string{"unlock", "unlock"}, left: true,
		},
		{
			name: "locked by a tenant, level high", drive: fakeATA{locked: true, password: &tenant}, err: ErrLocked,
			text: "hdparm --user-master m --security-disable", log: []string{"unlock", "unlock"}, left: true,
		},
		{
			name: "locked by a tenant, level maximum", err: ErrLocked,
			drive: fakeATA{locked: true, password: &tenant, maximum: true},
			text:  "hdparm --user-master m --security-erase", log: []string{"unlock", "unlock"}, left: true,
		},
		{
			name: "locked, frozen", drive: fakeATA{locked: true, frozen: true, password: &zeroPassword},
			err: ErrLocked, text: "security is frozen: switch the drive off and on", left: true,
		},
		{
			name: "locked, expired", drive: fakeATA{locked: true, expired: true, password: &zeroPassword},
			err: ErrLocked, text: "rejects passwords after too many wrong ones: switch", left: true,
		},
		{
			name: "vanishes after the unlock", drive: fakeATA{
				locked: true, password: &zeroPassword, disableFails: true, vanishesAfter: "disable",
			},
			err: ErrLocked, text: "state after the unlock: ", log: []string{"unlock", "disable"}, left: true,
		},
		{
			name: "password rejected", drive: fakeATA{setFails: true},
			text: "SECURITY SET PASSWORD: rejected by the drive", log: []string{"set"},
		},
		{
			name: "password not replaced", drive: fakeATA{setFails: true, password: &tenant}, err: ErrLocked,
			text: "SECURITY SET PASSWORD: rejected by the drive", log: []string{"set"}, left: true,
		},
		{
			name: "erase fails", drive: fakeATA{eraseFails: true}, text: "SECURITY ERASE UNIT: rejected by the drive",
			log: []string{"set", "prepare", "erase", "unlock", "disable"}, timeout: 72 * time.Hour,
		},
		{
			name: "erase fails, password stays", drive: fakeATA{eraseFails: true, disableFails: true}, err: ErrLocked,
			text: "start an erase step again, which removes it, or",
			log:  []string{"set", "prepare", "erase", "unlock", "disable"}, timeout: 72 * time.Hour, left: true,
		},
		{
			name: "success, still enabled", drive: fakeATA{staysEnabled: true},
			text: "reported success but security is still enabled",
			log:  []string{"set", "prepare", "erase", "disable"}, timeout: 72 * time.Hour,
		},
		{
			name: "vanishes", drive: fakeATA{vanishesAfter: "erase"}, err: ErrLocked,
			text: "hdparm --security-disable NULL",
			log:  []string{"set", "prepare", "erase"}, timeout: 72 * time.Hour,
		},
		{
			name: "vanishes after a failed erase", drive: fakeATA{eraseFails: true, vanishesAfter: "erase"},
			err: ErrLocked, text: "hdparm --security-disable NULL",
			log: []string{"set", "prepare", "erase"}, timeout: 72 * time.Hour, left: true,
		},
		{
			name: "vanishes while the password is removed", err: ErrLocked,
			drive: fakeATA{eraseFails: true, disableFails: true, vanishesAfter: "disable"},
			text:  "hdparm --security-disable NULL",
			log:   []string{"set", "prepare", "erase", "unlock", "disable"}, timeout: 72 * time.Hour, left: true,
		},
		{
			name: "erases nothing", drive: fakeATA{keeps: [2]int64{0, ataSize}}, err: ErrNotErased,
			text: "256 of 256 samples, the first at byte 0", log: []string{"set", "prepare", "erase"},
			timeout: 72 * time.Hour,
		},
		{
			name:  "keeps the end",
			drive: fakeATA{keeps: [2]int64{ataSize - 512, ataSize}, sanitize: sanitizeCrypto, frozen: true},
			err:   ErrNotErased, text: "1 of 256 samples, the first at byte 10481664", log: []string{"crypto"},
		},
		{
			name:  "keeps 1/128",
			drive: fakeATA{keeps: [2]int64{ataSize/2 + 1000, ataSize/2 + 1000 + ataSize/128 + 4096}},
			err:   ErrNotErased, log: []string{"set", "prepare", "erase"}, timeout: 72 * time.Hour,
		},
		{
			name:  "sanitize not started",
			drive: fakeATA{noSecurity: true, sanitize: sanitizeBlock, startIgnored: true}, err: ErrNotErased,
			log: []string{"block"},
		},
		{
			name:  "sanitize rejected",
			drive: fakeATA{noSecurity: true, sanitize: sanitizeBlock, startFails: true},
			text:  "BLOCK ERASE EXT: rejected by the drive", log: []string{"block"},
		},
		{
			name:  "sanitize without a result",
			drive: fakeATA{noSecurity: true, sanitize: sanitizeBlock, noResult: true},
			text:  "BLOCK ERASE EXT: the drive does not report that the sanitize was completed", log: []string{"block"},
		},
		{
			name: "state not returned", drive: fakeATA{noSecurity: true, sanitize: sanitizeBlock, mute: true},
			err: ErrUnsupported, text: "sanitize does not answer: SANITIZE STATUS EXT: no ATA registers returned",
		},
		{
			name: "state not returned, frozen", drive: fakeATA{frozen: true, sanitize: sanitizeBlock, mute: true},
			err: ata.ErrNoRegisters, text: "frozen by the firmware (sanitize does not answer",
		},
		{
			name: "state not returned, security", drive: fakeATA{sanitize: sanitizeBlock, mute: true}, method: ATAErase,
			log: []string{"set", "prepare", "erase"}, timeout: 72 * time.Hour,
		},
		{
			name: "former sanitize without progress",
			drive: fakeATA{
				sanitize: sanitizeBlock, sanitizing: time.Hour, sanitizeEnd: time.Unix(1, 0), stalled: true,
			},
			err:  errRejects,
			text: "sanitize that was in progress: drive rejects reads and writes, no progress for 2h0m0s",
		},
		{
			name:  "sanitize fails",
			drive: fakeATA{noSecurity: true, sanitize: sanitizeBlock, sanitizeFails: true, sanitizing: time.Hour},
			text:  "BLOCK ERASE EXT: the drive reports that the sanitize failed", log: []string{"block", "clear"},
		},
		{
			name: "sanitize fails, not cleared",
			drive: fakeATA{
				noSecurity: true, sanitize: sanitizeBlock, sanitizeFails: true, clearFails: true,
			},
			text: "the failure of the last sanitize was not cleared", log: []string{"block", "clear"},
		},
		{
			name: "no progress",
			drive: fakeATA{
				noSecurity: true, sanitize: sanitizeBlock, sanitizing: time.Hour, stalled: true,
			},
			err:  errRejects,
			text: "BLOCK ERASE EXT: drive rejects reads and writes, no progress for 2h0m0s, at 0 %",
			log:  []string{"block"},
		},
		{
			name: "no state",
			drive: fakeATA{
				noSecurity: true, sanitize: sanitizeBlock, sanitizing: time.Hour, resets: 1000,
			},
			err: errRejects,
			text: "BLOCK ERASE EXT: drive rejects reads and writes, no state for 10m0s: " +
				"SANITIZE STATUS EXT: host adapter result 0x08 (reset)",
			log: []string{"block"},
		},
		{
			name: "former sanitize failed", drive: fakeATA{noSecurity: true, sanitize: sanitizeBlock, failed: true},
			method: ATASanitizeBlock, log: []string{"clear", "block"},
		},
		{
			name: "former sanitize failed, not cleared",
			drive: fakeATA{
				sanitize: sanitizeBlock, failed: true, clearFails: true,
			},
			text: "failed sanitize: sanitize it again, for example with hdparm", log: []string{"clear"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk, drive := ataMedium(t), c.drive
			drive.path = disk.Path
			var method Technique
			var err error
			synctest.Test(t, func(t *testing.T) {
				method, err = eraseATA(t.Context(), sysfs.Root{}, disk, Options{ATA: true}, drive.open)
			})
			if method != c.method || (err == nil) != (c.method != "") || c.err != nil && !errors.Is(err, c.err) ||
				err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %q, %v, want %q, %v with %q", method, err, c.method, c.err, c.text)
			}
			for _, other := range []error{ErrUnsupported, ErrLocked, ErrNotErased} {
				if errors.Is(err, other) && !errors.Is(c.err, other) {
					t.Errorf("got an error that wraps %q: %v", other, err)
				}
			}
			if diff := cmp.Diff(c.log, drive.log); diff != "" {
				t.Errorf("commands: -want +got:\n%s", diff)
			}
			if drive.timeout != c.timeout {
				t.Errorf("got time limit %v of the erase, want %v", drive.timeout, c.timeout)
			}
			if enabled := drive.password != nil; enabled != c.left {
				t.Errorf("got security enabled %v afterwards, want %v", enabled, c.left)
			}
			if method != "" && !bytes.Equal(content(t, disk.Path), make([]byte, ataSize)) {
				t.Error("data are left")
			}
		})
	}
}

// A sanitize that was in progress before the step is waited for, and the drive is then erased. The progress of a
// sanitize is reported.
func TestATASanitizeInProgress(t *testing.T) {
	disk := ataMedium(t)
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		drive := fakeATA{
			path: disk.Path, noSecurity: true, sanitize: sanitizeBlock, sanitizing: time.Hour,
			sanitizeEnd: started.Add(30 * time.Minute),
		}
		var done []int64
		o := Options{ATA: true, Recorder: onProgress(func(n, total int64) {
			if total != ataSize {
				t.Errorf("got a total of %d bytes, want %d", total, ataSize)
			}
			done = append(done, n)
		})}
		method, err := eraseATA(t.Context(), sysfs.Root{}, disk, o, drive.open)
		if err != nil || method != ATASanitizeBlock {
			t.Fatalf("got %q, %v", method, err)
		}
		if took := time.Since(started); took < 90*time.Minute || took > 91*time.Minute {
			t.Errorf("took %v, want 90 minutes", took)
		}
		if len(done) < 700 || done[len(done)-1] < ataSize*99/100 || done[len(done)-1] > ataSize {
			t.Errorf("got %d reports of progress, want one each 5 s up to the size", len(done))
		}
	})
}

// If the context ends, no erase is started; a password that was set is removed, and a sanitize that was started is said
// to continue.
func TestATACancelled(t *testing.T) {
	for _, c := range []struct {
		name  string
		after string // command after which the context ends
		drive fakeATA
		log   []string
		text  string
	}{
		{name: "start"},
		{name: "identify", after: "identify"},
		{name: "status", after: "status", drive: fakeATA{sanitize: sanitizeBlock, mute: true}},
		{name: "erase", after: "erase", log: []string{"set", "prepare", "erase"}},
		{name: "set password", after: "set", log: []string{"set", "disable"}},
		{
			name: "sanitize", after: "block",
			drive: fakeATA{noSecurity: true, sanitize: sanitizeBlock, sanitizing: time.Hour},
			log:   []string{"block"}, text: "BLOCK ERASE EXT: " + sanitizeContinues,
		},
		{
			name: "before the sanitize", after: "status",
			drive: fakeATA{noSecurity: true, sanitize: sanitizeBlock, sanitizing: time.Hour},
		},
	} {
		disk, drive := ataMedium(t), c.drive
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			drive.path = disk.Path
			if c.after == "" {
				cancel()
			}
			drive.afterward = func(command string) {
				if command == c.after {
					cancel()
				}
			}
			method, err := eraseATA(ctx, sysfs.Root{}, disk, Options{ATA: true}, drive.open)
			if method != "" || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: got %q, %v, want it cancelled with %q", c.name, method, err, c.text)
			}
			if errors.Is(err, ErrUnsupported) || errors.Is(err, errRejects) != (c.text != "") || drive.password != nil {
				t.Errorf("%s: got %v and security enabled %v", c.name, err, drive.password != nil)
			}
			if diff := cmp.Diff(c.log, drive.log); diff != "" {
				t.Errorf("%s: commands: -want +got:\n%s", c.name, diff)
			}
		})
	}
}

// If the context ends, erase itself returns the error: without one, its result would be a success.
func TestATACancelledBeforeFlush(t *testing.T) {
	for name, c := range map[string]struct {
		drive fakeATA
		after string // command after which the context ends
		count int    // which of them
	}{
		"identify":      {fakeATA{}, "identify", 1},
		"first status":  {fakeATA{noSecurity: true, sanitize: sanitizeBlock, mute: true}, "status", 1},
		"second status": {fakeATA{noSecurity: true, sanitize: sanitizeBlock}, "status", 2},
		"set":           {fakeATA{}, "set", 1},
	} {
		disk, drive := ataMedium(t), c.drive
		drive.path = disk.Path
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		drive.afterward = func(command string) {
			if command != c.after {
				return
			}
			if c.count--; c.count == 0 {
				cancel()
			}
		}
		transport, file, size, err := drive.open(disk.Path)
		if err != nil {
			t.Fatal(err)
		}
		d := ataDisk{drive: ata.New(transport), file: file, path: disk.Path, size: size}
		if method, err := d.erase(ctx); method != "" || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %q and %v, want it cancelled", name, method, err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

// samplesWritten returns a context that ends as soon as all samples of a medium are written.
func samplesWritten(t *testing.T, path string) context.Context {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // only read
	last := func() []byte {
		end, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, sampleSize)
		if _, err := f.ReadAt(data, end-sampleSize); err != nil {
			t.Fatal(err)
		}
		return data
	}
	before := last()
	return hooked{t.Context(), func() error {
		if !bytes.Equal(last(), before) {
			return context.Canceled
		}
		return nil
	}}
}

// If the context ends while the samples are flushed, no erase is started.
func TestCancelledDuringSamples(t *testing.T) {
	for name, drive := range map[string]fakeATA{
		"security": {}, "sanitize": {noSecurity: true, sanitize: sanitizeBlock},
	} {
		disk := ataMedium(t)
		drive.path = disk.Path
		method, err := eraseATA(samplesWritten(t, disk.Path), sysfs.Root{}, disk, Options{}, drive.open)
		if method != "" || !errors.Is(err, context.Canceled) || len(drive.log) > 0 {
			t.Errorf("ATA %s: got %q, %v and commands %q, want it cancelled without any", name, method, err, drive.log)
		}
	}
	disk := sanitizeMedium(t)
	drive := fakeNVMe{oacs: 2, fakeSanitize: fakeSanitize{path: disk.Path}}
	method, _, err := eraseNVMe(samplesWritten(t, disk.Path), disk, Options{NVMe: true},
		func(string) (adminDevice, error) { return &drive, nil })
	if method != "" || !errors.Is(err, context.Canceled) || len(drive.formats) > 0 {
		t.Errorf("NVMe: got %q, %v and formats %x, want it cancelled without any", method, err, drive.formats)
	}
}

// A drive that was erased and cannot be flushed is not reported as erased. A drive that cannot be closed is an error.
func TestEraseNotFlushed(t *testing.T) {
	medium, missing := ataMedium(t), block.Device{Path: "/dev/missing"}
	drive := fakeATA{path: medium.Path}
	closed := false
	open := func(string) (scsi.Transport, *os.File, int64, error) {
		transport, file, size, err := drive.open(medium.Path)
		if closed {
			err = errors.Join(err, file.Close())
		}
		return transport, file, size, err
	}
	if _, err := eraseATA(t.Context(), sysfs.Root{}, missing, Options{}, open); !errors.Is(err, fs.ErrNotExist) ||
		!slices.Contains(drive.log, "erase") {
		t.Errorf("ATA: got %v and commands %q, want %v after an erase", err, drive.log, fs.ErrNotExist)
	}
	drive, closed = fakeATA{noSecurity: true}, true
	if _, err := eraseATA(t.Context(), sysfs.Root{}, missing, Options{}, open); !errors.Is(err, fs.ErrClosed) ||
		!errors.Is(err, ErrUnsupported) {
		t.Errorf("ATA, closed twice: got %v, want %v and %v", err, ErrUnsupported, fs.ErrClosed)
	}
	namespace := fakeNVMe{oacs: 2, fakeSanitize: fakeSanitize{path: medium.Path}}
	if _, _, err := eraseNVMe(t.Context(), missing, Options{NVMe: true}, func(string) (adminDevice, error) {
		return &namespace, nil
	}); !errors.Is(err, fs.ErrNotExist) || len(namespace.formats) != 1 {
		t.Errorf("NVMe: got %v and formats %x, want %v after one", err, namespace.formats, fs.ErrNotExist)
	}
}

// Each command is progress: together they take longer than the time after which a disk counts as hung. A drive that
// hangs after a long command was completed counts as hung.
func TestATAProgress(t *testing.T) {
	null := ata.Password{'N', 'U', 'L', 'L'}
	erase := func(ctx context.Context, disk block.Device, open sgOpener) error {
		_, err := eraseATA(ctx, sysfs.Root{}, disk, Options{}, open)
		return err
	}
	recovery := func(ctx context.Context, disk block.Device, open sgOpener) error {
		return recoverATA(ctx, disk, nil, open)
	}
	for name, c := range map[string]struct {
		drive fakeATA
		hangs string // command after which the next one hangs
		do    func(context.Context, block.Device, sgOpener) error
		err   error
	}{
		"sanitize": {drive: fakeATA{noSecurity: true, sanitize: sanitizeBlock}, do: erase},
		"recover":  {drive: fakeATA{password: &null}, do: recovery},
		"hangs":    {drive: fakeATA{}, hangs: "erase", do: erase, err: timelimit.ErrStuck},
	} {
		disk, drive := ataMedium(t), c.drive
		synctest.Test(t, func(t *testing.T) {
			previous := ""
			drive.path = disk.Path
			drive.afterward = func(command string) {
				if previous == c.hangs && c.hangs != "" {
					time.Sleep(10 * time.Hour)
				}
				if previous = command; c.hangs == "" {
					time.Sleep(50 * time.Second)
				}
			}
			ended := make(chan struct{})
			_, err := timelimit.Do(t.Context(), timelimit.Limits{NoProgress: time.Minute, Grace: time.Second},
				func(ctx context.Context) (any, error) {
					defer close(ended)
					return nil, c.do(ctx, disk, drive.open)
				})
			<-ended
			if !errors.Is(err, c.err) {
				t.Errorf("%s: got %v, want %v", name, err, c.err)
			}
		})
	}
}

// The time limit follows from what the drive says, if its size does not make that implausible.
func TestEraseTimeout(t *testing.T) {
	for _, c := range []struct {
		estimate time.Duration
		size     int64
		want     time.Duration
	}{
		{2 * time.Minute, 30 << 30, 1024*time.Second + 30*time.Minute},
		{2 * time.Hour, 30 << 30, 4*time.Hour + 30*time.Minute},
		{2 * time.Minute, 30 << 40, 1<<20*time.Second + 30*time.Minute},
		{0, 30 << 30, 72 * time.Hour},
		{0, 30 << 40, 1<<20*time.Second + 30*time.Minute},
		{65532 * time.Minute, 30 << 30, scsi.MaxTimeout},
		{0, 1 << 62, scsi.MaxTimeout},
	} {
		if got := eraseTimeout(c.estimate, c.size); got != c.want {
			t.Errorf("%v, %d bytes: got %v, want %v", c.estimate, c.size, got, c.want)
		}
	}
}

// An erase may take its time limit without progress, and so may a sanitize that the drive does not interrupt.
func TestATATimeLimit(t *testing.T) {
	for name, drive := range map[string]fakeATA{
		string(ATAErase):         {normalTime: 60, takes: 4 * time.Hour},
		string(ATASanitizeBlock): {noSecurity: true, sanitize: sanitizeBlock, sanitizing: 4 * time.Hour},
	} {
		disk := ataMedium(t)
		synctest.Test(t, func(t *testing.T) {
			drive.path = disk.Path
			method, err := timelimit.Do(t.Context(), timelimit.Disk, func(ctx context.Context) (Technique, error) {
				return eraseATA(ctx, sysfs.Root{}, disk, Options{ATA: true}, drive.open)
			})
			if string(method) != name || err != nil {
				t.Errorf("got %q, %v, want %s", method, err, name)
			}
		})
	}
}

// Run overwrites a drive without an erase of its own, and after a failed one if it may; the method then says why. A
// drive that keeps its password is never reported as erased.
//
// Parity: P1, P3 (fallback)
func TestATAFallback(t *testing.T) {
	tenant := ata.Password{'t'}
	for _, c := range []struct {
		name   string
		drive  fakeATA
		o      Options
		method Technique
		err    error
		text   string
		sas    bool // behind a SAS adapter
	}{
		{name: "erased", o: Options{ATA: true}, method: ATAErase},
		{name: "switched off", o: Options{Zeroize: true}, method: Overwrite},
		{name: "SAS adapter", o: Options{ATA: true, Zeroize: true}, method: Overwrite, sas: true},
		{name: "no feature", drive: fakeATA{noSecurity: true}, o: Options{ATA: true, Zeroize: true}, method: Overwrite},
		{
			name: "no pass-through", drive: fakeATA{unreachable: true}, o: Options{ATA: true, Zeroize: true},
			method: "overwrite; secure erase failed: method not supported by the device: IDENTIFY DEVICE: host " +
				"adapter result 0x07 (error of the adapter); it is not known whether the drive hides bytes by an HPA " +
				"or Accessible Max Address or a DCO: if so, they were not all erased",
		},
		{
			name: "sanitize frozen", drive: fakeATA{noSecurity: true, sanitize: sanitizeBlock, sanitizeFrozen: true},
			o: Options{ATA: true, Zeroize: true},
			method: "overwrite; secure erase failed: method not supported by the device: sanitize is frozen until " +
				"the drive is switched off and on",
		},
		{
			name: "failure", drive: fakeATA{eraseFails: true}, o: Options{ATA: true, Zeroize: true},
			text: "SECURITY ERASE UNIT",
		},
		{
			name: "failure, may overwrite", drive: fakeATA{eraseFails: true},
			o: Options{ATA: true, Zeroize: true, ContinueOnFailure: true},
			method: "overwrite; secure erase failed: SECURITY ERASE UNIT: rejected by the drive (ATA status 0x51, " +
				"error 0x04)",
		},
		{
			name: "frozen, may overwrite", drive: fakeATA{frozen: true},
			o: Options{ATA: true, Zeroize: true, ContinueOnFailure: true},
			method: "overwrite; secure erase failed: ATA security is frozen by the firmware (the drive has no " +
				"sanitize command): switch the drive off and on, or disable the freeze lock in the firmware's settings",
		},
		{
			name: "still holds data, may overwrite", drive: fakeATA{keeps: [2]int64{0, ataSize}},
			o: Options{ATA: true, Zeroize: true, ContinueOnFailure: true},
			method: "overwrite; secure erase failed: drive reported success but still holds data: 256 of 256 " +
				"samples, the first at byte 0",
		},
		{
			name: "password stays, may overwrite", drive: fakeATA{frozen: true, password: &tenant},
			o: Options{ATA: true, Zeroize: true, ContinueOnFailure: true}, err: ErrLocked,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := testenv.Loop(t, testenv.SparseFile(t, ataSize), 512)
			put(t, path, string(bytes.Repeat([]byte("secret  "), ataSize/8)))
			drive := c.drive
			drive.path = path
			d := device(t, path)
			d.Type, d.Transport = "disk", "sata"
			if c.sas {
				d.Transport = "sas"
			}
			open := sgOpeners(drive.open)
			method, err := decidedRun(t.Context(), t, sysfs.Root{}, d, c.o, open)
			if method != c.method || (err == nil) != (c.method != "") || c.err != nil && !errors.Is(err, c.err) ||
				err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %q, %v, want %q, %v with %q", method, err, c.method, c.err, c.text)
			}
			if (!c.o.ATA || c.sas) && len(drive.log) > 0 {
				t.Errorf("got commands %q, want none", drive.log)
			}
			if bytes.Contains(content(t, path), []byte("secret")) != (c.method == "") {
				t.Errorf("got data left %v, want %v", c.method != "", c.method == "")
			}
		})
	}
}

// Recover makes disks usable that an erase has left with a password or sanitizing, and leaves all others alone: a
// password that no erase sets can belong to the firmware.
func TestRecover(t *testing.T) {
	tenant, null := ata.Password{'t'}, ata.Password{'N', 'U', 'L', 'L'}
	failure := errors.New("cannot be opened")
	for _, c := range []struct {
		name  string
		drive fakeATA
		open  error
		err   error
		text  string
		log   []string
		left  bool
	}{
		{name: "usable", drive: fakeATA{sanitize: sanitizeBlock}},
		{name: "no pass-through", drive: fakeATA{unreachable: true}},
		{
			name: "password of an erase, unlocked", drive: fakeATA{password: &zeroPassword}, log: []string{"disable"},
		},
		{
			name: "password of an old erase, unlocked", drive: fakeATA{password: &null},
			log: []string{"disable", "disable"},
		},
		{
			name: "password, unlocked", drive: fakeATA{password: &tenant}, log: []string{"disable", "disable"},
			left: true,
		},
		{name: "password, frozen", drive: fakeATA{password: &zeroPassword, frozen: true}, left: true},
		{name: "locked", drive: fakeATA{locked: true, password: &zeroPassword}, log: []string{"unlock", "disable"}},
		{
			name: "locked, password stays", drive: fakeATA{locked: true, password: &zeroPassword, disableFails: true},
			log: []string{"unlock", "disable", "disable", "disable"}, err: ErrLocked,
			text: "could not be removed: use hdparm --security-disable PASSWORD DISK: SECURITY DISABLE PASSWORD: " +
				"rejected",
			left: true,
		},
		{
			name: "locked by a tenant", drive: fakeATA{locked: true, password: &tenant}, err: ErrLocked,
			text: "SECURITY UNLOCK: rejected", log: []string{"unlock", "unlock"}, left: true,
		},
		{name: "failed sanitize", drive: fakeATA{sanitize: sanitizeBlock, failed: true}, log: []string{"clear"}},
		{name: "not opened", open: failure, err: failure},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := testenv.Loop(t, testenv.SparseFile(t, ataSize), 512)
			drive := c.drive
			var file *os.File
			open := func(path string) (_ scsi.Transport, _ *os.File, size int64, err error) {
				if c.open != nil {
					return nil, nil, 0, c.open
				}
				_, file, size, err = drive.open(path)
				return &drive, file, size, err
			}
			err := recoverATA(t.Context(), block.Device{Path: path}, nil, open)
			if (err != nil) != (c.err != nil) || c.err != nil && !errors.Is(err, c.err) ||
				err != nil && !strings.Contains(strings.ReplaceAll(err.Error(), path, "DISK"), c.text) {
				t.Errorf("got %v, want %v with %q", err, c.err, c.text)
			}
			if c.open == nil && !errors.Is(file.Close(), fs.ErrClosed) {
				t.Error("the disk was left open")
			}
			if !slices.Equal(drive.log, c.log) || (drive.password != nil) != c.left {
				t.Errorf("got commands %q and security enabled %v, want %q and %v",
					drive.log, drive.password != nil, c.log, c.left)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	put(t, file, "content")
	var drive fakeATA
	open := func(string) (scsi.Transport, *os.File, int64, error) { return drive.open(file) }
	for name, unreadable := range map[string]fakeATA{
		"locked": {locked: true, password: &zeroPassword}, "failed sanitize": {sanitize: sanitizeBlock, failed: true},
	} {
		drive = unreadable
		err := recoverATA(t.Context(), block.Device{Path: "/dev/missing"}, nil, open)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want the error of the rescan of a missing device", name, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := recoverATA(ended, block.Device{Path: file}, nil, open); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	drive = fakeATA{sanitize: sanitizeBlock, mute: true, locked: true, password: &zeroPassword}
	drive.afterward = func(command string) {
		if command == "status" {
			cancel()
		}
	}
	if err := recoverATA(ctx, block.Device{Path: file}, nil, open); !errors.Is(err, context.Canceled) ||
		len(drive.log) > 0 {
		t.Errorf("cancelled before the unlock: got %v and commands %q, want none", err, drive.log)
	}
	for transport, fails := range map[string]bool{"sata": true, "ata": true, "sas": false, "usb": false, "": false} {
		err := Recover(t.Context(), block.Device{Path: "/dev/missing", Type: "disk", Transport: transport}, nil)
		if (err != nil) != fails {
			t.Errorf("missing disk, transport %q: got %v, want an error: %v", transport, err, fails)
		}
		// Files are no block devices, so that they accept no commands.
		if err := Recover(t.Context(), block.Device{Path: file, Type: "disk", Transport: transport}, nil); err != nil {
			t.Errorf("file, transport %q: got %v", transport, err)
		}
	}
	part := block.Device{Path: "/dev/missing", Type: "part", Transport: "sata"}
	if err := Recover(t.Context(), part, nil); err != nil {
		t.Errorf("partition: got %v", err)
	}
}

// Recover waits for a sanitize in progress, shows its progress from the start, and then reads the partition table.
func TestRecoverSanitizing(t *testing.T) {
	disk := ataMedium(t)
	disk.Size = ataSize
	synctest.Test(t, func(t *testing.T) {
		drive := fakeATA{
			path: disk.Path, sanitize: sanitizeBlock, sanitizing: time.Hour, sanitizeEnd: time.Now().Add(time.Hour),
		}
		var done []int64
		err := recoverATA(t.Context(), disk, onProgress(func(n, total int64) {
			if total != ataSize {
				t.Errorf("got a total of %d bytes, want %d", total, ataSize)
			}
			done = append(done, n)
		}), drive.open)
		if !errors.Is(err, unix.ENOTTY) {
			t.Errorf("got %v, want the error of the rescan of a file", err)
		}
		if len(done) < 700 || done[0] != 0 || done[len(done)-1] < ataSize*99/100 {
			t.Errorf("got %d reports of progress, want one each 5 s from 0 to the size", len(done))
		}
	})
}

// A drive that is too small for samples is not erased by a command, because that could not be checked.
func TestATATooSmall(t *testing.T) {
	for _, drive := range []fakeATA{{}, {noSecurity: true, sanitize: sanitizeBlock}} {
		disk := ataMedium(t)
		put(t, disk.Path, "small")
		method, err := eraseATA(t.Context(), sysfs.Root{}, disk, Options{}, drive.open)
		if method != "" || err == nil || !strings.Contains(err.Error(), "too small for samples") || len(drive.log) > 0 {
			t.Errorf("got %q, %v and commands %q, want an error and no command", method, err, drive.log)
		}
	}
}

// The drive is opened exclusively, and a file that accepts no commands is not erased by one.
func TestOpenATA(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, ataSize), 512)
	d := device(t, path)
	d.Type, d.Transport = "disk", "sata"
	open := exclusive{}.sg
	if method, err := eraseATA(t.Context(), sysfs.Root{}, d, Options{}, open); !errors.Is(err, ErrUnsupported) ||
		!strings.Contains(err.Error(), "IDENTIFY DEVICE: ") {
		t.Errorf("got %q, %v, want ErrUnsupported with a reason", method, err)
	}
	holder, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close() //nolint:errcheck // only read
	if method, err := eraseATA(t.Context(), sysfs.Root{}, d, Options{}, open); !errors.Is(err, ErrBusy) {
		t.Errorf("in use: got %q, %v, want ErrBusy", method, err)
	}
}

// Samples of a zoned disk are read, not written; parts of equal bytes say nothing about an erase.
func TestSamples(t *testing.T) {
	disk := ataMedium(t)
	disk.Zoned = "host-managed"
	for _, c := range []struct {
		content string
		err     error
	}{
		{strings.Repeat("secret  ", ataSize/8), ErrNotErased},
		{strings.Repeat("\xff", ataSize), nil},
	} {
		put(t, disk.Path, c.content)
		drive := fakeATA{path: disk.Path, keeps: [2]int64{0, ataSize}}
		record := &Recorder{}
		o := Options{Recorder: record}
		if _, err := eraseATA(t.Context(), sysfs.Root{}, disk, o, drive.open); !errors.Is(err, c.err) {
			t.Errorf("content %.8q: got %v, want %v", c.content, err, c.err)
		}
		if s := record.Report().Samples; s == nil || s.Written || s.Detection != nil {
			t.Errorf("content %.8q: got %+v, want samples without a probability", c.content, s)
		}
		if data, err := os.ReadFile(disk.Path); err != nil || string(data) != c.content {
			t.Errorf("content %.8q: %v, the disk was written", c.content, err)
		}
	}
	for size, count := range map[int64]int{
		4096: 1, 8192 + 512: 2, 255 * 4096: 255, 1 << 20: 256, 1<<20 + 512: 256, 16 << 40: 256,
	} {
		s, err := newSamples(size)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.offsets) != count || s.offsets[count-1] != size-4096 || count > 1 && s.offsets[0] != 0 {
			t.Errorf("%d bytes: got %d samples, the first at %d, the last at %d, want %d with both ends",
				size, len(s.offsets), s.offsets[0], s.offsets[len(s.offsets)-1], count)
		}
		if !slices.IsSorted(s.offsets) {
			t.Errorf("%d bytes: samples are not in order", size)
		}
		s.free()
	}
	if _, err := newSamples(4095); err == nil {
		t.Error("4095 bytes: got no error")
	}
	small := filepath.Join(t.TempDir(), "small")
	put(t, small, strings.Repeat("x", 8192))
	f, err := os.Open(small)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	if _, err := takeSamples(t.Context(), f, 8192, sampling{}); !errors.Is(err, unix.EBADF) ||
		!strings.Contains(err.Error(), "write sample at byte 0") {
		t.Errorf("read-only: got %v, want EBADF with the place", err)
	}
	if _, err := takeSamples(t.Context(), f, 16384, sampling{sequential: true}); !errors.Is(err, io.EOF) ||
		!strings.Contains(err.Error(), "read sample at byte 8192") {
		t.Errorf("beyond the end: got %v, want %v with the place", err, io.EOF)
	}
	taken, err := takeSamples(t.Context(), f, 8192, sampling{sequential: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(small, 4096); err != nil {
		t.Fatal(err)
	}
	if err := taken.verify(t.Context(), f); err == nil || errors.Is(err, ErrNotErased) {
		// The first sample still holds x, which says nothing; the second cannot be read.
		t.Errorf("unreadable sample: got %v, want an error of the read", err)
	}
	taken.free()
}
