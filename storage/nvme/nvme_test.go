package nvme

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// script is a transport that records the bytes of each command, and replies with the next bytes of data, or with zeros
// at the end of it.
type script struct {
	data []byte
	err  error
	sent [][]byte
}

func (s *script) Send(c Command) error {
	p := c.passthru()
	p.address, p.dataLength = 0, 0
	s.sent = append(s.sent, slices.Clone((*[unsafe.Sizeof(p)]byte)(unsafe.Pointer(&p))[:]))
	s.data = s.data[copy(c.Data, s.data):]
	return s.err
}

// The commands are defined by the figures "Identify - Command Dword 10" (CNS in bits 7:0), "Format NVM - Command Dword
// 10" (LBAFL 3:0, MSET 4, PI 7:5, PIL 8, SES 11:9, LBAFU 13:12), "Sanitize - Command Dword 10", "Get Log Page - Command
// Dword 10" and "Security Receive - Command Dword 10", in struct nvme_passthru_cmd of Linux: opcode in byte 0,
// namespace in byte 4, dword 10 in byte 40, milliseconds in byte 64.
func TestCommandBytes(t *testing.T) {
	s := &script{}
	c := New(s)
	namespace := func(flbas, dps byte) Namespace {
		data := make([]byte, identifyBytes)
		data[26], data[29] = flbas, dps
		return parseNamespace(7, data)
	}
	minute, day, tenMinutes := []byte{0x60, 0xea, 0, 0}, []byte{0x00, 0x5c, 0x26, 0x05}, []byte{0xc0, 0x27, 0x09, 0}
	all := []byte{0xff, 0xff, 0xff, 0xff}
	for _, test := range []struct {
		name             string
		send             func() error
		opcode           byte
		nsid             []byte
		dword10, dword11 []byte
		limit            []byte
	}{
		{
			"Identify Controller", func() error { _, err := c.Identify(); return err },
			0x06, nil,
			[]byte{0x01},
			nil, minute,
		},
		{
			"Identify Namespace", func() error { _, err := c.Namespace(7); return err },
			0x06,
			[]byte{7},
			[]byte{0x00},
			nil, minute,
		},
		{
			"Active Namespace ID list",
			func() error { _, err := c.ActiveNamespaces(Identity{Version: 0x00010200}); return err },
			0x06, nil,
			[]byte{0x02},
			nil, minute,
		},
		{
			"Allocated Namespace ID list", func() error { _, err := c.AllocatedNamespaces(); return err },
			0x06, nil,
			[]byte{0x10},
			nil, minute,
		},
		{
			"user data erase, format 0", func() error { return c.Format(namespace(0, 0), EraseUserData) },
			0x80,
			[]byte{7},
			[]byte{0x00, 0x02},
			nil, day,
		},
		{
			"cryptographic erase, format 0", func() error { return c.Format(namespace(0, 0), EraseCrypto) },
			0x80,
			[]byte{7},
			[]byte{0x00, 0x04},
			nil, day,
		},
		{ // FLBAS: format 0x23 (bits 6:5 and 3:0) with extended metadata; DPS: type 1 in the first bytes
			"cryptographic erase, format 35", func() error { return c.Format(namespace(0x53, 0x09), EraseCrypto) },
			0x80,
			[]byte{7},
			[]byte{0x33, 0x25},
			nil, day,
		},
		{ // AUSE
			"block erase", func() error { return c.Sanitize(SanitizeBlock) },
			0x84, nil,
			[]byte{0b0_0000_1_010},
			nil, tenMinutes,
		},
		{ // AUSE
			"crypto erase", func() error { return c.Sanitize(SanitizeCrypto) },
			0x84, nil,
			[]byte{0b0_0000_1_100},
			nil, tenMinutes,
		},
		{ // AUSE, OWPASS 1; OVRPAT in dword 11 is 0
			"overwrite", func() error { return c.Sanitize(SanitizeOverwrite) },
			0x84, nil,
			[]byte{0b0_0001_1_011},
			nil, tenMinutes,
		},
		{"exit failure mode", c.ExitFailureMode, 0x84, nil, []byte{0b0_0000_0_001}, nil, minute},
		{
			"sanitize status", func() error { _, err := c.SanitizeStatus(); return err },
			0x02, all,
			[]byte{0x81, 0, 127, 0},
			nil, minute,
		},
		{ // SECP 01h, SPSP 0203h, AL
			"Security Receive",
			func() error { _, err := c.SecurityReceive(0x01, 0x0203, make([]byte, 2048)); return err },
			0x82, nil,
			[]byte{0, 0x03, 0x02, 0x01},
			[]byte{0, 8},
			minute,
		},
	} {
		s.sent = nil
		if err := test.send(); err != nil {
			t.Errorf("%s: got %v", test.name, err)
		}
		want := make([]byte, 72)
		want[0] = test.opcode
		copy(want[4:], test.nsid)
		copy(want[40:], test.dword10)
		copy(want[44:], test.dword11)
		copy(want[64:], test.limit)
		if diff := cmp.Diff([][]byte{want}, s.sent); diff != "" {
			t.Errorf("%s: -want +got:\n%s", test.name, diff)
		}
		s.err = Status(0x4002)
		if err := test.send(); !errors.Is(err, s.err) {
			t.Errorf("%s, rejected: got %v, want %v", test.name, err, s.err)
		}
		s.err = nil
	}
}

// The fields are in the bytes of the figure "Identify Controller Data Structure": SN 23:4, MN 63:24, FR 71:64, CMIC 76,
// VER 83:80, OACS 257:256, SANICAP 331:328, NN 519:516, FNA 524.
func TestIdentity(t *testing.T) {
	data := make([]byte, identifyBytes)
	copy(data[4:], "S1234567890123456789"+"Drive                                   "+"1.2     ")
	copy(data[80:], []byte{0, 4, 1, 0})
	copy(data[516:], []byte{0, 4, 0, 0})
	want := Identity{
		Serial: "S1234567890123456789", Model: "Drive", Firmware: "1.2", Version: 0x00010400, HighestNamespace: 1024,
	}
	for name, c := range map[string]struct {
		at     int
		value  byte
		change func(*Identity)
	}{
		"nothing":              {0, 0, func(*Identity) {}},
		"several ports":        {76, 1 << 0, func(i *Identity) { i.SharedSubsystem = true }},
		"several controllers":  {76, 1 << 1, func(i *Identity) { i.SharedSubsystem = true }},
		"virtual function":     {76, 1 << 2, func(i *Identity) { i.SharedSubsystem = true }},
		"asymmetric access":    {76, 1 << 3, func(i *Identity) { i.SharedSubsystem = true }},
		"security":             {256, 1 << 0, func(i *Identity) { i.SecurityCommands = true }},
		"format":               {256, 1 << 1, func(i *Identity) { i.FormatCommand = true }},
		"namespace management": {256, 1 << 3, func(i *Identity) { i.NamespaceManagement = true }},
		"formats all":          {524, 1 << 0, func(i *Identity) { i.FormatsAll = true }},
		"erases all":           {524, 1 << 1, func(i *Identity) { i.ErasesAll = true }},
		"crypto erase":         {524, 1 << 2, func(i *Identity) { i.FormatsCrypto = true }},
		"sanitize":             {331, 0x80, func(i *Identity) { i.SanitizeCapabilities = 1 << 31 }},
	} {
		changed, expected := slices.Clone(data), want
		changed[c.at] = c.value
		c.change(&expected)
		if got, err := New(&script{data: changed}).Identify(); got != expected || err != nil {
			t.Errorf("%s: got %+v and %v, want %+v", name, got, err, expected)
		}
	}
	if got := want.Version.String(); got != "1.4.0" {
		t.Errorf("got version %s, want 1.4.0", got)
	}
	for capability, want := range map[SanitizeCapabilities]SanitizeMethod{
		0b001: SanitizeCrypto, 0b010: SanitizeBlock, 0b100: SanitizeOverwrite,
	} {
		for _, m := range []SanitizeMethod{SanitizeCrypto, SanitizeBlock, SanitizeOverwrite} {
			if got := capability.Supports(m); got != (m == want) {
				t.Errorf("SANICAP %03b: got %v supported %v", capability, m, got)
			}
		}
	}
}

// The fields are in the bytes of the figure "Identify Namespace Data Structure" of the NVM command set specification:
// NSZE 7:0, NCAP 15:8, FLBAS 26, NMIC 30, the block formats from 128.
func TestNamespace(t *testing.T) {
	data := make([]byte, identifyBytes)
	data[0], data[8], data[26], data[30] = 0x20, 0x10, 0x53, 1
	for logarithm, want := range map[byte]int64{0: 0, 8: 0, 9: 512, 12: 4096, 31: 1 << 31, 32: 0, 255: 0} {
		data[128+4*35+2] = logarithm
		got, err := New(&script{data: data}).Namespace(7)
		if got.ID != 7 || got.Size != 0x20 || got.Capacity != 0x10 || got.BlockBytes != want || !got.Shared ||
			err != nil {
			t.Errorf("got %+v and %v, want blocks of %d bytes", got, err, want)
		}
	}
}

// Lists of namespaces continue on further pages. Those that are not in ascending order and endless lists are errors.
func TestLists(t *testing.T) {
	page := func(first, last uint32) []byte {
		var data []byte
		for id := first; id <= last; id++ {
			data = binary.LittleEndian.AppendUint32(data, id)
		}
		return data
	}
	for name, c := range map[string]struct {
		data []byte
		want int
		text string
	}{
		"none":           {nil, 0, ""},
		"three pages":    {page(1, 2500), 2500, ""},
		"full page":      {page(1, 1024), 1024, ""},
		"the same again": {append(page(1, 1), page(1, 1)...), 0, "namespace 1 listed after 1"},
		"descending":     {append(page(2, 2), page(1, 1)...), 0, "namespace 1 listed after 2"},
		"no end":         {page(1, 1<<17), 0, "got 65536 namespaces, want fewer than 65536"},
	} {
		got, err := New(&script{data: c.data}).AllocatedNamespaces()
		if len(got) != c.want || (err == nil) != (c.text == "") ||
			err != nil && !strings.Contains(err.Error(), "NVMe identify (CNS 0x10): "+c.text) {
			t.Errorf("%s: got %d namespaces and %v, want %d and %q", name, len(got), err, c.want, c.text)
		}
	}
}

// Controllers before NVMe 1.2 are asked for each namespace.
func TestSequentialNamespaces(t *testing.T) {
	data := make([]byte, 3*identifyBytes)
	data[0], data[2*identifyBytes] = 1, 1
	s := &script{data: data}
	got, err := New(s).ActiveNamespaces(Identity{HighestNamespace: 3})
	if !slices.Equal(got, []uint32{1, 3}) || len(s.sent) != 3 || err != nil {
		t.Errorf("got %v, %v and %d commands", got, err, len(s.sent))
	}
	s = &script{err: unix.EINVAL}
	if _, err := New(s).ActiveNamespaces(Identity{HighestNamespace: 3}); !errors.Is(err, unix.EINVAL) ||
		!strings.HasPrefix(err.Error(), "namespace 1: ") {
		t.Errorf("got %v, want %v of namespace 1", err, unix.EINVAL)
	}
	s = &script{}
	if _, err := New(s).ActiveNamespaces(Identity{HighestNamespace: 4097}); err == nil || len(s.sent) > 0 {
		t.Errorf("got %v and %d commands, want an error and none", err, len(s.sent))
	}
}

// The log is defined by the figure "Sanitize Status Log Page": SPROG in bytes 1:0, SSTAT in 3:2 (state in bits 2:0, GDE
// in bit 8), SCDW10 in 7:4, ETO in 11:8, ETBE in 15:12, ETCE in 19:16.
func TestSanitizeStatus(t *testing.T) {
	estimates := []byte{
		0x10, 0x0e, 0, 0, // overwrite: 3600 s
		0x3c, 0, 0, 0, // block erase: 60 s
		0xff, 0xff, 0xff, 0xff, // crypto erase: not reported
	}
	for _, c := range []struct {
		name                                  string
		page                                  []byte
		completed, inProgress, failed, erased bool
		progress                              uint16
		command                               uint32
	}{
		{name: "never sanitized", page: []byte{0xff, 0xff, 0x00, 0x00, 0, 0, 0, 0}, progress: 0xffff},
		{
			name: "never sanitized or written", page: []byte{0xff, 0xff, 0x00, 0x01, 0, 0, 0, 0}, erased: true,
			progress: 0xffff,
		},
		{
			name: "completed", page: []byte{0xff, 0xff, 0x01, 0x01, 0x0a, 0, 0, 0}, completed: true, erased: true,
			progress: 0xffff, command: 0x0a,
		},
		{
			name: "completed, written since", page: []byte{0xff, 0xff, 0x01, 0x00, 0x0a, 0, 0, 0}, completed: true,
			progress: 0xffff, command: 0x0a,
		},
		{
			name: "in progress", page: []byte{0x34, 0x12, 0x02, 0x00, 0x1b, 0, 0, 0}, inProgress: true,
			progress: 0x1234, command: 0x1b,
		},
		{
			name: "failed", page: []byte{0xff, 0xff, 0x03, 0x00, 0x0c, 0, 0, 0}, failed: true, progress: 0xffff,
			command: 0x0c,
		},
		{
			name: "completed, deallocated", page: []byte{0xff, 0xff, 0x04, 0x01, 0x0a, 2, 0, 0}, completed: true,
			erased: true, progress: 0xffff, command: 0x20a,
		},
		{
			name: "completed in 3 passes", page: []byte{0xff, 0xff, 0x19, 0x01, 0x0b, 0, 0, 0}, completed: true,
			erased: true, progress: 0xffff, command: 0x0b,
		},
	} {
		s, err := New(&script{data: append(c.page[:8:8], estimates...)}).SanitizeStatus()
		if err != nil || s.Completed() != c.completed || s.InProgress() != c.inProgress || s.Failed() != c.failed ||
			s.Erased() != c.erased || s.Progress != c.progress || s.Command != c.command ||
			s.Status != binary.LittleEndian.Uint16(c.page[2:]) {
			t.Errorf("%s: got %+v and %v, want %+v", c.name, s, err, c)
		}
		for m, want := range map[SanitizeMethod]time.Duration{
			SanitizeBlock: time.Minute, SanitizeCrypto: 0, SanitizeOverwrite: time.Hour,
		} {
			if got := s.Estimate(m); got != want {
				t.Errorf("%s, %v: got estimate %v, want %v", c.name, m, got, want)
			}
		}
	}
}

// Statuses are defined by the figure "Completion Queue Entry: Status Field", as Linux returns them: status code in bits
// 7:0, status code type in bits 10:8, Do Not Retry in bit 14.
func TestStatus(t *testing.T) {
	for status, want := range map[uintptr]string{
		0x4001: "NVMe status 0x4001 (invalid command opcode)", // unsupported
		0x4002: "NVMe status 0x4002 (invalid field in command)",
		0x001c: "NVMe status 0x1c (sanitize failed)",
		0x401d: "NVMe status 0x401d (sanitize in progress)",
		0x0084: "NVMe status 0x84 (format in progress)",
		0x4123: "NVMe status 0x4123 (sanitize prohibited while a persistent memory region is enabled)",
		0x4286: "NVMe status 0x4286 (access denied)", // as of a locked range
		0x40ff: "NVMe status 0x40ff",
	} {
		if err := commandError(status, 0); err == nil || err.Error() != want {
			t.Errorf("status 0x%x: got %v, want %q", status, err, want)
		}
	}
	if err := commandError(0, 0); err != nil {
		t.Errorf("success: got %v", err)
	}
	for _, status := range []uintptr{0x4001, ^uintptr(0)} {
		if err := commandError(status, unix.EINTR); err != unix.EINTR { //nolint:errorlint // the bare error
			t.Errorf("interrupted: got %v", err)
		}
	}
}

// Arbitrary data of a controller cause a bounded number of commands and ascending lists.
func FuzzController(f *testing.F) {
	managed := make([]byte, identifyBytes)
	managed[82], managed[81], managed[256] = 1, 2, 1<<3 // NVMe 1.2 with management of namespaces
	list := make([]byte, 2*identifyBytes)
	list[0], list[4], list[identifyBytes] = 1, 2, 3
	f.Add(append(managed, list...))
	old := make([]byte, identifyBytes)
	old[516] = 3
	f.Add(append(old, 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &script{data: data}
		c := New(s)
		id, err := c.Identify()
		if err != nil {
			t.Fatal(err)
		}
		for name, list := range map[string]func() ([]uint32, error){
			"active": func() ([]uint32, error) { return c.ActiveNamespaces(id) }, "allocated": c.AllocatedNamespaces,
		} {
			numbers, err := list()
			if err == nil && (!slices.IsSorted(numbers) || slices.Contains(numbers, 0) ||
				len(slices.Compact(slices.Clone(numbers))) != len(numbers)) {
				t.Errorf("%s: got namespaces %v", name, numbers)
			}
		}
		if most := len(data)/identifyBytes + 4 + maxSequential; len(s.sent) > most {
			t.Errorf("got %d commands, want at most %d", len(s.sent), most)
		}
		namespace, err := c.Namespace(1)
		if word := namespace.formatWord(EraseCrypto); word>>9&7 != 2 || word>>14 != 0 || err != nil {
			t.Errorf("got dword 0x%x of a Format and %v", word, err)
		}
		status, err := c.SanitizeStatus()
		if err != nil {
			t.Error(err)
		}
		for _, m := range []SanitizeMethod{SanitizeBlock, SanitizeCrypto, SanitizeOverwrite} {
			if status.Estimate(m) < 0 {
				t.Errorf("%v: got estimate %v", m, status.Estimate(m))
			}
		}
	})
}

// A sanitize is newer if the state, the method, or the record of writes has changed. The zero value has no estimate.
func TestSanitizeIsNewer(t *testing.T) {
	const erased = 1 << 8
	block, crypto := SanitizeBlock.command, SanitizeCrypto.command
	for name, c := range map[string]struct {
		before, after SanitizeStatus
		want          bool
	}{
		"same": {
			SanitizeStatus{Status: stateCompleted, Command: block},
			SanitizeStatus{Status: stateCompleted, Command: block},
			false,
		},
		"state": {
			SanitizeStatus{Status: stateFailed, Command: block},
			SanitizeStatus{Status: stateCompleted, Command: block},
			true,
		},
		"nothing written since": {
			SanitizeStatus{Status: stateCompleted, Command: block},
			SanitizeStatus{Status: stateCompleted | erased, Command: block},
			true,
		},
		"written since": {
			SanitizeStatus{Status: stateCompleted | erased, Command: block},
			SanitizeStatus{Status: stateCompleted, Command: block},
			false,
		},
		"method": {
			SanitizeStatus{Status: stateCompleted, Command: crypto},
			SanitizeStatus{Status: stateCompleted, Command: block},
			true,
		},
	} {
		if got := c.after.IsNewer(c.before, SanitizeBlock); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
	if got := (SanitizeStatus{}).Estimate(SanitizeBlock); got != 0 {
		t.Errorf("got an estimate of %v without a log page", got)
	}
}
