package erase

import (
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// byteNVMe records the bytes of each command before a fake drive executes it.
type byteNVMe struct {
	*fakeNVMe
	sent [][]byte
}

func (b *byteNVMe) admin(c *adminCommand, data []byte) error {
	command := make([]byte, unsafe.Sizeof(*c))
	copy(command, (*[unsafe.Sizeof(*c)]byte)(unsafe.Pointer(c))[:])
	b.sent = append(b.sent, command)
	return b.fakeNVMe.admin(c, data)
}

// Identify and Format are those of the NVM Express base specification 2.0, figures "Identify - Command Dword 10" (CNS
// in bits 7:0) and "Format NVM - Command Dword 10" (LBAFL 3:0, MSET 4, PI 7:5, PIL 8, SES 11:9, LBAFU 13:12), in struct
// nvme_passthru_cmd of Linux: opcode in byte 0, namespace in byte 4, dword 10 in byte 40, milliseconds in byte 64.
func TestNVMeCommandBytes(t *testing.T) {
	for _, c := range []struct {
		name       string
		flbas, dps byte // of the namespace
		fna        byte // bit 2: cryptographic erase
		format     []byte
	}{
		{"user data erase, format 0", 0, 0, 0, []byte{0x00, 0x02, 0, 0}},
		{"cryptographic erase, format 0", 0, 0, 4, []byte{0x00, 0x04, 0, 0}},
		// FLBAS: format 0x23 (bits 6:5 and 3:0) with extended metadata; DPS: type 1 in the first bytes.
		{"cryptographic erase, format 35", 0x53, 0x09, 4, []byte{0x33, 0x25, 0, 0}},
	} {
		disk := sanitizeMedium(t)
		drive := &byteNVMe{fakeNVMe: &fakeNVMe{oacs: 0b1010, fna: c.fna, flbas: c.flbas, dps: c.dps}}
		drive.path = disk.Path
		drive.content = make([]byte, sanitizeSize)
		controller, namespace, scope := identifyAll(t.Context(), drive)
		if scope.unknown != nil {
			t.Fatal(scope.unknown)
		}
		technique, setting, err := formatSetting(controller, scope)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		command := formatCommand(namespace, scope.nsid, setting)
		if err := formatNVMe(t.Context(), drive, technique, command, sampling{}); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		minute, day := []byte{0x60, 0xea, 0, 0}, []byte{0x00, 0x5c, 0x26, 0x05} // 60,000 and 86,400,000 ms
		var want [][]byte
		for _, w := range []struct {
			opcode, nsid   byte
			dword10, limit []byte
		}{
			{0x06, 0, []byte{0x01, 0, 0, 0}, minute}, // Identify Controller
			{0x06, 7, []byte{0x00, 0, 0, 0}, minute}, // Identify Namespace
			{0x06, 0, []byte{0x02, 0, 0, 0}, minute}, // Active Namespace ID list
			{0x06, 0, []byte{0x10, 0, 0, 0}, minute}, // Allocated Namespace ID list
			{0x80, 7, c.format, day},                 // Format NVM
		} {
			command := make([]byte, 72)
			command[0], command[4] = w.opcode, w.nsid
			copy(command[40:], w.dword10)
			copy(command[64:], w.limit)
			want = append(want, command)
		}
		if diff := cmp.Diff(want, drive.sent); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.name, diff)
		}
	}
}

// The Sanitize Status log page is that of the NVM Express base specification 2.0, figure "Sanitize Status Log Page":
// SPROG in bytes 1:0, SSTAT in 3:2 (state in bits 2:0, GDE in bit 8), SCDW10 in 7:4, ETO in 11:8, ETBE in 15:12, ETCE
// in 19:16.
func TestSanitizeLogBytes(t *testing.T) {
	estimates := []byte{
		0x10, 0x0e, 0, 0, // overwrite: 3600 s
		0x3c, 0, 0, 0, // block erase: 60 s
		0xff, 0xff, 0xff, 0xff, // crypto erase: not reported
	}
	for _, c := range []struct {
		name     string
		page     []byte
		state    uint16
		progress uint16
		command  uint32
		erased   bool
	}{
		{"never sanitized", []byte{0xff, 0xff, 0x00, 0x00, 0, 0, 0, 0}, 0, 0xffff, 0, false},
		{"never sanitized or written", []byte{0xff, 0xff, 0x00, 0x01, 0, 0, 0, 0}, 0, 0xffff, 0, true},
		{"completed", []byte{0xff, 0xff, 0x01, 0x01, 0x0a, 0, 0, 0}, 1, 0xffff, 0x0a, true},
		{"completed, written since", []byte{0xff, 0xff, 0x01, 0x00, 0x0a, 0, 0, 0}, 1, 0xffff, 0x0a, false},
		{"in progress", []byte{0x34, 0x12, 0x02, 0x00, 0x1b, 0, 0, 0}, 2, 0x1234, 0x1b, false},
		{"failed", []byte{0xff, 0xff, 0x03, 0x00, 0x0c, 0, 0, 0}, 3, 0xffff, 0x0c, false},
		{"completed, deallocated", []byte{0xff, 0xff, 0x04, 0x01, 0x0a, 2, 0, 0}, 4, 0xffff, 0x20a, true},
		{"completed in 3 passes", []byte{0xff, 0xff, 0x19, 0x01, 0x0b, 0, 0, 0}, 1, 0xffff, 0x0b, true},
	} {
		d := listNVMe{list: func(page []byte, _ uint32) { copy(page, append(c.page[:8:8], estimates...)) }}
		log, err := readSanitizeLog(t.Context(), d)
		if err != nil || log.state() != c.state || log.progress != c.progress || log.command != c.command ||
			log.erased() != c.erased {
			t.Errorf("%s: got state %d, progress 0x%x, command 0x%x, erased %t, %v",
				c.name, log.state(), log.progress, log.command, log.erased(), err)
		}
		want := []time.Duration{time.Minute, 0, time.Hour}
		for i, a := range sanitizeActions { // block erase, crypto erase, overwrite
			if got := log.estimate(a); got != want[i] {
				t.Errorf("%s, %s: got estimate %v, want %v", c.name, a.technique, got, want[i])
			}
		}
	}
}

// Capabilities are in the bytes of the figure "Identify Controller Data Structure" of the NVM Express base
// specification 2.0: CMIC 76, VER 83:80, OACS 257:256, SANICAP 331:328, FNA 524.
func TestControllerBytes(t *testing.T) {
	controller := make([]byte, 4096)
	scope := nvmeScope{nsid: 7}
	if _, _, err := formatSetting(controller, scope); err == nil {
		t.Error("OACS 0: got a Format")
	}
	if _, err := chooseSanitize(controller, scope); err == nil {
		t.Error("SANICAP 0: got a sanitize")
	}
	controller[256] = 0b10
	if method, setting, err := formatSetting(controller, scope); method != NVMeUser || setting != 1 || err != nil {
		t.Errorf("Format: got %q, %d, %v", method, setting, err)
	}
	controller[524] = 0b100
	if method, setting, err := formatSetting(controller, scope); method != NVMeCrypto || setting != 2 || err != nil {
		t.Errorf("cryptographic Format: got %q, %d, %v", method, setting, err)
	}
	for capability, want := range map[byte]Technique{
		0b001: NVMeSanitizeCrypto, 0b010: NVMeSanitizeBlock, 0b100: NVMeSanitizeOverwrite,
	} {
		controller[328] = capability
		if a, err := chooseSanitize(controller, scope); a.technique != want || err != nil {
			t.Errorf("SANICAP %03b: got %q, %v, want %q", capability, a.technique, err, want)
		}
	}
	controller[76] = 0b10
	if !sharedSubsystem(controller) {
		t.Error("CMIC 10b: got a private subsystem")
	}
}

// Statuses are those of the figure "Completion Queue Entry: Status Field" of the NVM Express base specification 2.0, as
// Linux returns them: status code in bits 7:0, status code type in bits 10:8, Do Not Retry in bit 14.
func TestStatusBytes(t *testing.T) {
	for status, want := range map[uintptr]string{
		0x4001: "NVMe status 0x4001 (invalid command opcode)", // unsupported
		0x4002: "(invalid field in command)",
		0x001c: "(sanitize failed)",
		0x401d: "(sanitize in progress)",
		0x0084: "(format in progress)",
		0x4123: "(sanitize prohibited while a persistent memory region is enabled)",
		0x4286: "NVMe status 0x4286", // access denied, as of a locked range: no text
	} {
		if err := commandError(status, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("status 0x%x: got %v, want %q", status, err, want)
		}
	}
	if err := commandError(0, 0); err != nil {
		t.Errorf("success: got %v", err)
	}
	if err := commandError(0x4001, unix.EINTR); err != unix.EINTR { //nolint:errorlint // the bare error
		t.Errorf("interrupted: got %v", err)
	}
}
