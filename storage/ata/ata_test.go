package ata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/storage/scsi"
)

// answer is the answer of a fake transport to a command.
type answer func(r *scsi.Reply, cdb, data []byte) error

// fakeSG is a transport that records commands and answers them.
type fakeSG struct {
	cdbs   [][]byte
	datas  [][]byte
	last   scsi.Request
	answer answer
}

func (f *fakeSG) Send(r scsi.Request) (reply scsi.Reply, err error) {
	f.cdbs, f.last = append(f.cdbs, bytes.Clone(r.CDB)), r
	if r.ToDevice {
		f.datas = append(f.datas, bytes.Clone(r.Data))
	}
	if f.answer != nil {
		err = f.answer(&reply, r.CDB, r.Data)
	}
	return reply, err
}

// answerSense answers with CHECK CONDITION and sense data.
func answerSense(data ...byte) answer {
	return func(r *scsi.Reply, _, _ []byte) error {
		r.Status, r.Driver, r.Sense = 2, 8, data
		return nil
	}
}

// statusSense returns sense data with the registers of a command that ended with 50h (SAT-4, ATA Status Return
// descriptor).
func statusSense(count uint16, lba uint64) []byte {
	return []byte{
		0x72, 0x01, 0x00, 0x1d, 0, 0, 0, 14, // RECOVERED ERROR, ATA PASS-THROUGH INFORMATION AVAILABLE
		0x09, 12, 1, 0, byte(count >> 8), byte(count),
		byte(lba >> 24), byte(lba), byte(lba >> 32), byte(lba >> 8), byte(lba >> 40), byte(lba >> 16), 0xa0, 0x50,
	}
}

// Commands equal the tables in ACS-4 and SAT-4: ATA PASS-THROUGH (16) with the protocol (non-data 3, PIO data-in 4, PIO
// data-out 5), EXTEND, the flags OFF_LINE to T_LENGTH, and the registers, upper half first.
//
// Parity: P1
func TestCommands(t *testing.T) {
	password := Password{'s', 'e', 'c', 'r', 'e', 't'}
	withPassword := func(low, high byte) []byte {
		data := make([]byte, 512)
		data[0], data[1] = low, high
		copy(data[2:], "secret")
		return data
	}
	for _, c := range []struct {
		name string
		send func(Drive) error
		cdbs [][]byte
		data [][]byte
		last time.Duration // time limit of the last command
	}{
		{
			name: "IDENTIFY DEVICE",
			send: func(d Drive) error { _, _ = d.Identify(); return nil }, // the data are zeros
			cdbs: [][]byte{{0x85, 4 << 1, 0x0e, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xec, 0}},
		},
		{
			name: "SECURITY SET PASSWORD", send: func(d Drive) error { return d.SetPassword(password) },
			cdbs: [][]byte{{0x85, 5 << 1, 0x06, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xf1, 0}},
			data: [][]byte{withPassword(0, 0)}, // user password, master password capability high
		},
		{
			name: "SECURITY UNLOCK", send: func(d Drive) error { return d.Unlock(password) },
			cdbs: [][]byte{{0x85, 5 << 1, 0x06, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xf2, 0}},
			data: [][]byte{withPassword(0, 0)},
		},
		{
			name: "SECURITY DISABLE PASSWORD", send: func(d Drive) error { return d.DisablePassword(password) },
			cdbs: [][]byte{{0x85, 5 << 1, 0x06, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xf6, 0}},
			data: [][]byte{withPassword(0, 0)},
		},
		{
			name: "SECURITY ERASE UNIT",
			send: func(d Drive) error { return d.SecurityErase(password, false, 3*time.Hour) },
			cdbs: [][]byte{
				{0x85, 3 << 1, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf3, 0},
				{0x85, 5 << 1, 0x06, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xf4, 0},
			},
			data: [][]byte{withPassword(0, 0)}, last: 3 * time.Hour,
		},
		{
			name: "SECURITY ERASE UNIT, enhanced",
			send: func(d Drive) error { return d.SecurityErase(password, true, 5*time.Hour) },
			cdbs: [][]byte{
				{0x85, 3 << 1, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf3, 0},
				{0x85, 5 << 1, 0x06, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xf4, 0},
			},
			data: [][]byte{withPassword(2, 0)}, last: 5 * time.Hour,
		},
		{ // table "TRUSTED RECEIVE command inputs": FEATURE, COUNT, LBA 7:0, LBA 15:8 and 23:16
			name: "TRUSTED RECEIVE",
			send: func(d Drive) error {
				_, err := d.TrustedReceive(0x01, 0x1234, make([]byte, 0x0302*512))
				return err
			},
			cdbs: [][]byte{{0x85, 4 << 1, 0x0e, 0, 0x01, 0, 0x02, 0, 0x03, 0, 0x34, 0, 0x12, 0, 0x5c, 0}},
		},
		{ // ACS-2, tables "READ NATIVE MAX ADDRESS (EXT) command inputs": bit 6 of DEVICE is one
			name: "READ NATIVE MAX ADDRESS", send: func(d Drive) error { _, err := d.ReadNativeMax(false); return err },
			cdbs: [][]byte{{0x85, 3 << 1, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0xf8, 0}},
		},
		{
			name: "READ NATIVE MAX ADDRESS EXT",
			send: func(d Drive) error { _, err := d.ReadNativeMax(true); return err },
			cdbs: [][]byte{{0x85, 3<<1 | 1, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x27, 0}},
		},
		{ // ACS-4, table "GET NATIVE MAX ADDRESS EXT command inputs": FEATURE 0000h
			name: "GET NATIVE MAX ADDRESS EXT", send: func(d Drive) error { _, err := d.GetNativeMax(); return err },
			cdbs: [][]byte{{0x85, 3<<1 | 1, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x78, 0}},
		},
		{ // ACS-2, table "DEVICE CONFIGURATION IDENTIFY command inputs": FEATURE C2h
			name: "DEVICE CONFIGURATION IDENTIFY",
			send: func(d Drive) error { _, _ = d.ConfiguredMax(); return nil }, // the data are zeros
			cdbs: [][]byte{{0x85, 4 << 1, 0x0e, 0, 0xc2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xb1, 0}},
		},
		{
			name: "SANITIZE STATUS EXT", send: func(d Drive) error { _, err := d.SanitizeStatus(); return err },
			cdbs: [][]byte{{0x85, 3<<1 | 1, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb4, 0}},
		},
		{
			name: "SANITIZE STATUS EXT, clear", send: Drive.ClearSanitizeFailure,
			cdbs: [][]byte{{0x85, 3<<1 | 1, 0x20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xb4, 0}},
		},
		{
			name: "CRYPTO SCRAMBLE EXT", send: func(d Drive) error { return d.Sanitize(CryptoScramble) },
			cdbs: [][]byte{{0x85, 3<<1 | 1, 0x20, 0, 0x11, 0, 0x10, 'C', 'p', 0, 'y', 0, 'r', 0, 0xb4, 0}},
		},
		{
			name: "BLOCK ERASE EXT", send: func(d Drive) error { return d.Sanitize(BlockErase) },
			cdbs: [][]byte{{0x85, 3<<1 | 1, 0x20, 0, 0x12, 0, 0x10, 'B', 'r', 0, 'E', 0, 'k', 0, 0xb4, 0}},
		},
		{
			name: "OVERWRITE EXT", send: func(d Drive) error { return d.Sanitize(Overwrite) },
			cdbs: [][]byte{{0x85, 3<<1 | 1, 0x20, 0, 0x14, 0, 0x11, 0, 0, 'W', 0, 'O', 0, 0, 0xb4, 0}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			sg := fakeSG{answer: func(r *scsi.Reply, cdb, _ []byte) error {
				if cdb[2]&0x20 != 0 {
					return answerSense(statusSense(0, 0)...)(r, nil, nil)
				}
				return nil
			}}
			if err := c.send(New(&sg)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.cdbs, sg.cdbs); diff != "" {
				t.Errorf("commands: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(c.data, sg.datas); diff != "" {
				t.Errorf("data: -want +got:\n%s", diff)
			}
			last := c.cdbs[len(c.cdbs)-1]
			if r := sg.last; r.ToDevice != (last[1]>>1 == 5) || (r.Data == nil) != (last[1]>>1 == 3) {
				t.Errorf("got data of %d bytes, to the device %v", len(r.Data), r.ToDevice)
			}
			limit := c.last
			if limit == 0 {
				limit = time.Minute
			}
			if got := sg.last.Timeout; got != limit {
				t.Errorf("got time limit %v, want %v", got, limit)
			}
		})
	}
}

// identityWith returns data of IDENTIFY DEVICE with some words set.
func identityWith(words map[int]uint16) []byte {
	data := make([]byte, 512)
	words[83] |= 0x4000
	for n, value := range words {
		binary.LittleEndian.PutUint16(data[2*n:], value)
	}
	return data
}

// Parity: P1 (IDENTIFY data)
func TestIdentify(t *testing.T) {
	checked := identityWith(map[int]uint16{128: 1, 255: 0xa5})
	sum := byte(0)
	for _, b := range checked {
		sum += b
	}
	checked[511] = -sum
	damaged := bytes.Clone(checked)
	damaged[100]++
	for _, c := range []struct {
		name string
		data []byte
		want Identity
		err  string
	}{
		{name: "neither", data: identityWith(map[int]uint16{89: 5, 90: 5, 128: 0xfffe, 59: 0xe000})},
		{ // the first character of a word is in its upper half
			name: "firmware", data: identityWith(map[int]uint16{23: 0x3832, 24: 0x2e30, 25: 0x3007, 26: 0x4120}),
			want: Identity{Firmware: "82.00A"},
		},
		{
			name: "security", data: identityWith(map[int]uint16{89: 10, 90: 1, 128: 0x21}),
			want: Identity{Security: SecurityState{
				Supported: true, Enhanced: true, EraseTime: 20 * time.Minute, EnhancedTime: 2 * time.Minute,
			}},
		},
		{
			name: "all states, longest times", data: identityWith(map[int]uint16{89: 254, 90: 0xfffe, 128: 0x13f}),
			want: Identity{Security: SecurityState{
				Supported: true, Enabled: true, Locked: true, Frozen: true, Expired: true, Enhanced: true,
				Maximum:   true,
				EraseTime: 508 * time.Minute, EnhancedTime: 65532 * time.Minute,
			}},
		},
		{
			name: "longer times", data: identityWith(map[int]uint16{89: 255, 90: 0xffff, 128: 1}),
			want: Identity{Security: SecurityState{Supported: true}},
		},
		{
			name: "enabled", data: identityWith(map[int]uint16{128: 1 | 1<<1}),
			want: Identity{Security: SecurityState{Supported: true, Enabled: true}},
		},
		{
			name: "locked", data: identityWith(map[int]uint16{128: 1 | 1<<2}),
			want: Identity{Security: SecurityState{Supported: true, Locked: true}},
		},
		{
			name: "frozen", data: identityWith(map[int]uint16{128: 1 | 1<<3}),
			want: Identity{Security: SecurityState{Supported: true, Frozen: true}},
		},
		{
			name: "expired", data: identityWith(map[int]uint16{128: 1 | 1<<4}),
			want: Identity{Security: SecurityState{Supported: true, Expired: true}},
		},
		{
			name: "level maximum", data: identityWith(map[int]uint16{128: 1 | 1<<8}),
			want: Identity{Security: SecurityState{Supported: true, Maximum: true}},
		},
		{
			name: "sanitize", data: identityWith(map[int]uint16{59: 1 << 12}),
			want: Identity{Sanitize: SanitizeSupport{Supported: true}},
		},
		{
			name: "block erase", data: identityWith(map[int]uint16{59: 1<<12 | 1<<15}),
			want: Identity{Sanitize: SanitizeSupport{Supported: true, BlockErase: true}},
		},
		{
			name: "overwrite", data: identityWith(map[int]uint16{59: 1<<12 | 1<<14}),
			want: Identity{Sanitize: SanitizeSupport{Supported: true, Overwrite: true}},
		},
		{
			name: "crypto scramble", data: identityWith(map[int]uint16{59: 1<<12 | 1<<13}),
			want: Identity{Sanitize: SanitizeSupport{Supported: true, CryptoScramble: true}},
		},
		// ACS-4, table "Nominal media rotation rate".
		{name: "slowest", data: identityWith(map[int]uint16{217: 0x0401}), want: Identity{ReportsRate: true}},
		{name: "7200 rotations", data: identityWith(map[int]uint16{217: 7200}), want: Identity{ReportsRate: true}},
		{name: "fastest", data: identityWith(map[int]uint16{217: 0xfffe}), want: Identity{ReportsRate: true}},
		{name: "SSD", data: identityWith(map[int]uint16{217: 1})},
		{name: "reserved rate", data: identityWith(map[int]uint16{217: 0x0400})},
		{name: "reserved rate, largest", data: identityWith(map[int]uint16{217: 0xffff})},
		{name: "Trusted Computing", data: identityWith(map[int]uint16{48: 0x4001}), want: Identity{Trusted: true}},
		{name: "no Trusted Computing", data: identityWith(map[int]uint16{48: 0x4000})},
		{name: "word 48 not valid", data: identityWith(map[int]uint16{48: 0xc001})},
		{
			name: "28-bit capacity, HPA", data: identityWith(map[int]uint16{60: 0x4321, 61: 0x0765, 82: 1 << 10}),
			want: Identity{Capacity: Capacity{Sectors: 0x07654321, SectorBytes: 512, HPA: true}},
		},
		{
			name: "48-bit capacity, DCO",
			data: identityWith(map[int]uint16{60: 0xffff, 83: 3 << 10, 100: 0x4321, 101: 0x8765, 102: 0xcba9}),
			want: Identity{Capacity: Capacity{Sectors: 0xcba987654321, SectorBytes: 512, Extended: true, DCO: true}},
		},
		{
			name: "extended number of sectors, 4 KiB, AMAC", data: identityWith(map[int]uint16{
				69: 1 << 3, 83: 1 << 10, 100: 0xffff, 106: 0x5000, 117: 2048, 119: 0x4100, 230: 0x4321, 232: 1,
			}),
			want: Identity{Capacity: Capacity{Sectors: 1<<32 | 0x4321, SectorBytes: 4096, Extended: true, AMAC: true}},
		},
		{
			name: "words 106 and 119 not valid",
			data: identityWith(map[int]uint16{60: 8, 106: 0xd000, 117: 2048, 119: 0xc100}),
			want: Identity{Capacity: Capacity{Sectors: 8, SectorBytes: 512}},
		},
		{name: "long sectors", data: identityWith(map[int]uint16{60: 8, 106: 0x5000, 117: 0x2001})},
		{name: "short sectors", data: identityWith(map[int]uint16{60: 8, 106: 0x5000, 117: 255})},
		{
			name: "too many sectors", data: identityWith(map[int]uint16{69: 1 << 3, 83: 1 << 10, 233: 1}),
			want: Identity{Capacity: Capacity{Extended: true}},
		},
		{name: "checksum", data: checked, want: Identity{Security: SecurityState{Supported: true}}},
		{name: "damaged", data: damaged, err: "IDENTIFY DEVICE: wrong checksum"},
		{name: "zeros", data: make([]byte, 512), err: "words 0 and 83 are 0x0000 and 0x0000"},
		{name: "ones", data: bytes.Repeat([]byte{0xff}, 512), err: "words 0 and 83 are 0xffff and 0xffff"},
		{
			name: "packet device", data: identityWith(map[int]uint16{0: 0x8580}),
			err: "words 0 and 83 are 0x8580 and 0x4000",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := New(&fakeSG{answer: func(_ *scsi.Reply, _, data []byte) error {
				copy(data, c.data)
				return nil
			}}).Identify()
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("got %v, want %q", err, c.err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	if _, err := parseIdentity(make([]byte, 511)); err == nil {
		t.Error("511 bytes: got no error")
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer answer
		want   string
	}{
		{
			"ioctl", func(*scsi.Reply, []byte, []byte) error { return unix.EIO },
			"IDENTIFY DEVICE: input/output error",
		},
		{
			"timed out", func(r *scsi.Reply, _, _ []byte) error { r.Host = 3; return nil },
			"IDENTIFY DEVICE: host adapter result 0x03 (timed out)",
		},
		{
			"unknown result", func(r *scsi.Reply, _, _ []byte) error { r.Host = 0x55; return nil },
			"IDENTIFY DEVICE: host adapter result 0x55 (unknown)",
		},
		{
			"driver", func(r *scsi.Reply, _, _ []byte) error { r.Driver = 6; return nil },
			"IDENTIFY DEVICE: driver result 0x06",
		},
		{
			"busy", func(r *scsi.Reply, _, _ []byte) error { r.Status = 8; return nil },
			"IDENTIFY DEVICE: SCSI status 0x08",
		},
		{
			"short", func(r *scsi.Reply, _, _ []byte) error { r.Residual = 12; return nil },
			"IDENTIFY DEVICE: got 500 bytes transferred, want 512",
		},
		{"no sense", answerSense(), "IDENTIFY DEVICE: got 0 bytes of sense data, want at least 8"},
		{
			"unknown sense", answerSense(0x7f, 0, 0, 0, 0, 0, 0, 0),
			"IDENTIFY DEVICE: unknown format 0x7f of sense data",
		},
		{
			"not translated", answerSense(0x72, 5, 0x20, 0, 0, 0, 0, 0),
			"IDENTIFY DEVICE: rejected (sense key 0x5, additional sense 0x20 0x00)",
		},
		{
			"not translated, fixed", answerSense(0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 1, 0, 0, 0, 0),
			"IDENTIFY DEVICE: rejected (sense key 0x5, additional sense 0x20 0x01)",
		},
		{
			"fixed, short", answerSense(0x70, 0, 0x45, 0, 0, 0, 0, 0),
			"rejected (sense key 0x5, additional sense 0x00 0x00)",
		},
		{
			"aborted", answerSense(0x72, 0xb, 0, 0, 0, 0, 0, 14, 9, 12, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x51),
			"IDENTIFY DEVICE: rejected by the drive (ATA status 0x51, error 0x04)",
		},
		{
			"aborted, after another descriptor",
			answerSense(0x72, 0xb, 0, 0, 0, 0, 0, 18, 2, 2, 0, 0, 9, 12, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x51),
			"rejected by the drive (ATA status 0x51, error 0x04)",
		},
		{
			"truncated descriptor", answerSense(0x72, 0xb, 0, 0, 0, 0, 0, 14, 9, 12, 0, 4),
			"rejected (sense key 0xb, additional sense 0x00 0x00)",
		},
		{
			"device fault without a key",
			answerSense(0x72, 1, 0, 0x1d, 0, 0, 0, 14, 9, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x70),
			"rejected by the drive (ATA status 0x70, error 0x00)",
		},
		{
			"aborted, fixed", answerSense(0xf0, 0, 0xb, 4, 0x51, 0xa0, 1, 10, 0, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0),
			"rejected by the drive (ATA status 0x51, error 0x04)",
		},
	} {
		_, err := New(&fakeSG{answer: c.answer}).Identify()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	onlyErase := New(&fakeSG{answer: func(r *scsi.Reply, cdb, data []byte) error {
		if cdb[14] != opSecurityEraseUnit {
			return nil
		}
		return answerSense(0x72, 0xb, 0, 0, 0, 0, 0, 0)(r, cdb, data)
	}})
	rejecting := New(&fakeSG{answer: answerSense(0x72, 0xb, 0, 0, 0, 0, 0, 0)})
	for name, call := range map[string]func() error{
		"SECURITY SET PASSWORD:":     func() error { return rejecting.SetPassword(Password{}) },
		"SECURITY UNLOCK:":           func() error { return rejecting.Unlock(Password{}) },
		"SECURITY DISABLE PASSWORD:": func() error { return rejecting.DisablePassword(Password{}) },
		"SECURITY ERASE UNIT:":       func() error { return onlyErase.SecurityErase(Password{}, false, time.Hour) },
		"SECURITY ERASE PREPARE:":    func() error { return rejecting.SecurityErase(Password{}, false, time.Hour) },
		"BLOCK ERASE EXT:":           func() error { return rejecting.Sanitize(BlockErase) },
		"SANITIZE STATUS EXT:":       rejecting.ClearSanitizeFailure,
	} {
		if err := call(); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("got %v, want an error of %s", err, name)
		}
	}
}

// TestSanitizeStatus compares with ACS-4, table "SANITIZE STATUS EXT normal outputs" (COUNT 15:12 and LBA 15:0) and the
// error reasons in LBA 7:0.
func TestSanitizeStatus(t *testing.T) {
	failed := []byte{0x72, 0xb, 0, 0, 0, 0, 0, 14, 9, 12, 1, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x51}
	other := bytes.Clone(failed)
	other[15] = 2 // unsupported value in FEATURE
	for _, c := range []struct {
		name  string
		sense []byte
		want  SanitizeStatus
		err   error
		text  string
	}{
		{name: "idle", sense: statusSense(0, 0xffff)},
		{name: "completed", sense: statusSense(1<<15, 0xffff), want: SanitizeStatus{Completed: true}},
		{
			name: "in progress", sense: statusSense(1<<14, 0x8001),
			want: SanitizeStatus{InProgress: true, Progress: 0x8001},
		},
		{name: "frozen", sense: statusSense(1<<13, 0xffff), want: SanitizeStatus{Frozen: true}},
		{name: "other bits", sense: statusSense(0x1fff, 0xffff)},
		{name: "failed", sense: failed, want: SanitizeStatus{Failed: true}},
		{
			name:  "failed, fixed format",
			sense: []byte{0xf0, 0, 0xb, 4, 0x51, 0xa0, 0, 10, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0},
			want:  SanitizeStatus{Failed: true},
		},
		{name: "unsupported", sense: other, text: "rejected by the drive"},
		{
			name:  "success, fixed format",
			sense: []byte{0xf0, 0, 1, 0, 0x50, 0xa0, 0, 10, 0xc0, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0}, err: ErrNoRegisters,
		},
		{name: "no registers", err: ErrNoRegisters},
	} {
		sg := &fakeSG{}
		if c.sense != nil {
			sg.answer = answerSense(c.sense...)
		}
		got, err := New(sg).SanitizeStatus()
		if c.err != nil && !errors.Is(err, c.err) || (err != nil) != (c.err != nil || c.text != "") ||
			err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v, want %v %s", c.name, err, c.err, c.text)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.name, diff)
		}
	}
	if err := New(&fakeSG{answer: answerSense(failed...)}).ClearSanitizeFailure(); err == nil {
		t.Error("failure that stays: got no error")
	}
}

// The largest address is in LBA 47:0, or without EXTEND in LBA 23:0 and DEVICE 3:0 (ACS-2, tables "READ NATIVE MAX
// ADDRESS (EXT) normal outputs"; ACS-4, table "GET NATIVE MAX ADDRESS EXT normal outputs").
func TestNativeMax(t *testing.T) {
	long, short := statusSense(0, 0xcba987654321), statusSense(0, 0xff654321)
	short[10], short[20] = 0, 0xe7
	fixed := []byte{0xf0, 0, 1, 0, 0x50, 0xe7, 0, 10, 0, 0x21, 0x43, 0x65, 0, 0x1d, 0, 0, 0, 0}
	rejected := []byte{0x72, 0xb, 0, 0, 0, 0, 0, 14, 9, 12, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x51}
	ext := func(d Drive) (uint64, error) { return d.ReadNativeMax(true) }
	plain := func(d Drive) (uint64, error) { return d.ReadNativeMax(false) }
	for _, c := range []struct {
		name  string
		read  func(Drive) (uint64, error)
		sense []byte
		want  uint64
		text  string
	}{
		{"EXT", ext, long, 0xcba987654321, ""},
		{"AMAC", Drive.GetNativeMax, long, 0xcba987654321, ""},
		{"28 bits", plain, short, 0x7654321, ""},
		{"28 bits, fixed format", plain, fixed, 0x7654321, ""},
		{"EXT, fixed format", ext, fixed, 0, "READ NATIVE MAX ADDRESS EXT: no ATA registers returned"},
		{"no registers", plain, nil, 0, "READ NATIVE MAX ADDRESS: no ATA registers returned"},
		{"rejected", ext, rejected, 0, "READ NATIVE MAX ADDRESS EXT: rejected by the drive"},
		{"AMAC rejected", Drive.GetNativeMax, rejected, 0, "GET NATIVE MAX ADDRESS EXT: rejected by the drive"},
	} {
		sg := &fakeSG{}
		if c.sense != nil {
			sg.answer = answerSense(c.sense...)
		}
		got, err := c.read(New(sg))
		if got != c.want || (err != nil) != (c.text != "") || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got 0x%x, %v, want 0x%x, %q", c.name, got, err, c.want, c.text)
		}
	}
}

// configuration returns the data of DEVICE CONFIGURATION IDENTIFY (ACS-2, table "DEVICE CONFIGURATION IDENTIFY data
// structure"): revision 2, the largest address in words 3 to 6, signature and checksum in word 255.
func configuration(max uint64) []byte {
	data := make([]byte, 512)
	data[0], data[510] = 2, 0xa5
	binary.LittleEndian.PutUint64(data[6:], max)
	sum := byte(0)
	for _, b := range data {
		sum += b
	}
	data[511] = -sum
	return data
}

func TestConfiguredMax(t *testing.T) {
	noSignature := configuration(5)
	noSignature[510]--
	noSignature[511]++
	damaged := configuration(5)
	damaged[7]++
	for _, c := range []struct {
		name string
		data []byte
		want uint64
		text string
	}{
		{"address", configuration(0x060504030201), 0x060504030201, ""},
		{"too large", configuration(1 << 48), 0, "got address 281474976710656, want less than"},
		{"damaged", damaged, 0, "DEVICE CONFIGURATION IDENTIFY: wrong checksum"},
		{"no signature", noSignature, 0, "wrong checksum"},
		{"zeros", make([]byte, 512), 0, "wrong checksum"},
	} {
		sg := &fakeSG{answer: func(_ *scsi.Reply, _, data []byte) error { copy(data, c.data); return nil }}
		got, err := New(sg).ConfiguredMax()
		if got != c.want || (err != nil) != (c.text != "") || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got 0x%x, %v, want 0x%x, %q", c.name, got, err, c.want, c.text)
		}
	}
	if _, err := parseConfiguration(make([]byte, 511)); err == nil {
		t.Error("511 bytes: got no error")
	}
	if _, err := New(&fakeSG{answer: answerSense(0x72, 0xb, 0, 0, 0, 0, 0, 0)}).ConfiguredMax(); err == nil {
		t.Error("rejected: got no error")
	}
}

func FuzzConfiguration(f *testing.F) {
	f.Add(configuration(0x060504030201))
	f.Add(configuration(1 << 48))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if max, err := parseConfiguration(data); max >= 1<<48 || err != nil && max != 0 {
			t.Errorf("got address %d and %v", max, err)
		}
	})
}

func registersIn(data []byte) (*Registers, error) {
	s, err := scsi.ParseSense(data)
	return registersOf(s), err
}

// A descriptor has the registers that it was made of.
func TestRegisters(t *testing.T) {
	got, err := registersIn(statusSense(0x1234, 0x665544332211))
	want := &Registers{Status: 0x50, Device: 0xa0, Count: 0x1234, LBA: 0x665544332211}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	short := statusSense(0x1234, 0x665544332211)
	short[10] = 0
	got, err = registersIn(short)
	want = &Registers{Status: 0x50, Device: 0xa0, Count: 0x34, LBA: 0x332211, Short: true}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("without EXTEND: %v, -want +got:\n%s", err, diff)
	}
}

func FuzzIdentity(f *testing.F) {
	f.Add(identityWith(map[int]uint16{69: 8, 83: 3 << 10, 106: 0x5000, 117: 2048, 119: 0x4100, 230: 0x4321}))
	f.Add(identityWith(map[int]uint16{59: 0xf000, 89: 10, 90: 0xfffe, 128: 0x3f}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		id, err := parseIdentity(data)
		if err != nil && id != (Identity{}) {
			t.Errorf("got %+v with %v", id, err)
		}
		if c := id.Capacity; c.Sectors >= 1<<48 || (c.Sectors == 0) != (c.SectorBytes == 0) || c.SectorBytes > 1<<14 {
			t.Errorf("got %+v", c)
		}
		if s := id.Security; !s.Supported && s != (SecurityState{}) || s.EraseTime < 0 || s.EnhancedTime < 0 {
			t.Errorf("got %+v", s)
		}
	})
}

func FuzzSense(f *testing.F) {
	f.Add(statusSense(1<<15, 0xffff))
	f.Add([]byte{0xf0, 0, 0xb, 4, 0x51, 0xa0, 0, 10, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		registers, err := result(scsi.Reply{Status: 2, Driver: 8, Sense: data}, "COMMAND")
		if err == nil && registers != nil && registers.Status&(statusError|statusDeviceFail) != 0 {
			t.Errorf("got success with status 0x%02x", registers.Status)
		}
	})
}
