package scsi

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// fakeSG is a transport whose ioctl records commands and answers them, in order; the last answer is repeated.
type fakeSG struct {
	log     []string // commands and sent data, as in testdata
	header  sgHeader // of the last command
	answers []answer
}

// answer is the answer to a command.
type answer struct {
	err      error
	host     uint16
	driver   uint16
	status   uint8
	sense    []byte
	data     []byte
	residual int32
}

func (f *fakeSG) Send(r Request) (Reply, error) {
	return send(nil, r, func(_ *os.File, h *sgHeader) error {
		f.header = *h
		f.log = append(f.log, "cdb "+spaced(r.CDB))
		if h.direction == sgToDevice {
			f.log = append(f.log, "data "+spaced(r.Data))
		}
		if len(f.answers) == 0 {
			return nil
		}
		a := f.answers[0]
		if len(f.answers) > 1 {
			f.answers = f.answers[1:]
		}
		h.status, h.hostStatus, h.driverStatus, h.residual = a.status, a.host, a.driver, a.residual
		if a.sense != nil {
			h.senseWritten = uint8(len(a.sense))
			copy(unsafe.Slice((*byte)(h.sense), h.senseSize), a.sense)
		}
		copy(r.Data, a.data)
		return a.err
	})
}

func spaced(data []byte) string { return strings.TrimSpace(string(hexBytes(data))) }

func hexBytes(data []byte) []byte {
	var out []byte
	for _, b := range data {
		out = append(hex.AppendEncode(out, []byte{b}), ' ')
	}
	return out
}

// checkCondition is an answer with sense data.
func checkCondition(sense ...byte) answer { return answer{status: 2, driver: 8, sense: sense} }

// descriptor returns sense data in the descriptor format.
func descriptor(key, asc, ascq byte, more ...byte) []byte {
	return append([]byte{0x72, key, asc, ascq, 0, 0, 0, byte(len(more))}, more...)
}

// fixed returns sense data in the fixed format, with three bytes that are specific to the key.
func fixed(key, asc, ascq byte, specific ...byte) []byte {
	data := []byte{0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0}
	copy(data[15:], specific)
	return data
}

// Commands equal sg3_utils's, byte for byte.
func TestCommands(t *testing.T) {
	golden, err := os.ReadFile("testdata/sg3_utils.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	name := ""
	for line := range strings.Lines(string(golden)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "cdb ") || strings.HasPrefix(line, "data ") {
			want[name] = append(want[name], line)
		} else {
			name = line
		}
	}
	sanitize := func(m SanitizeMethod) func(Disk) { return func(d Disk) { _ = d.Sanitize(m) } }
	supports := func(m SanitizeMethod) func(Disk) { return func(d Disk) { _, _ = d.Supports(m) } }
	sent := map[string]func(Disk){
		"sg_sanitize --quick --block --ause":            sanitize(BlockErase),
		"sg_sanitize --quick --crypto --ause":           sanitize(CryptographicErase),
		"sg_sanitize --quick --overwrite --zero --ause": sanitize(Overwrite),
		"sg_sanitize --quick --fail --ause":             func(d Disk) { _ = d.ExitFailureMode() },
		"sg_opcodes --no-inquiry --opcode=0x48,1":       supports(Overwrite),
		"sg_opcodes --no-inquiry --opcode=0x48,2":       supports(BlockErase),
		"sg_opcodes --no-inquiry --opcode=0x48,3":       supports(CryptographicErase),
		"sg_turs":                    func(d Disk) { _, _ = d.SanitizeState() },
		"sg_requests":                func(d Disk) { d.requestedProgress() },
		"sg_vpd --force --page=0xb1": func(d Disk) { _, _, _ = d.ReadableAfter() },
	}
	for name, send := range sent {
		var sg fakeSG
		send(New(&sg))
		if diff := cmp.Diff(want[name], sg.log); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		direction := int32(-3)
		switch {
		case strings.Contains(name, "--overwrite"):
			direction = -2
		case strings.HasPrefix(name, "sg_sanitize"), name == "sg_turs":
			direction = -1
		}
		if h := sg.header; h.interfaceID != 'S' || h.direction != direction || h.timeout != 60_000 {
			t.Errorf("%s: got header %+v, want interface S, direction %d and a minute", name, h, direction)
		}
	}
	if len(sent) != len(want) {
		t.Errorf("got %d commands, want the %d of testdata", len(sent), len(want))
	}
}

// SECURITY PROTOCOL IN follows SPC-5, table "SECURITY PROTOCOL IN command": operation code, protocol, specific (2
// bytes), INC_512 in bit 7 of byte 4, allocation length in bytes 6 to 9. Only what was received is returned.
func TestSecurityReceive(t *testing.T) {
	sg := &fakeSG{answers: []answer{{data: []byte{1, 2, 3}, residual: 2045}}}
	got, err := New(sg).SecurityReceive(0x01, 0x1234, make([]byte, 2048))
	if err != nil || !bytes.Equal(got, []byte{1, 2, 3}) {
		t.Errorf("got % x, %v, want 01 02 03", got, err)
	}
	if want := []string{"cdb a2 01 12 34 00 00 00 00 08 00 00 00"}; !cmp.Equal(sg.log, want) {
		t.Errorf("got %q, want %q", sg.log, want)
	}
	if h := sg.header; h.direction != -3 || h.dataLength != 2048 || h.cdbLength != 12 {
		t.Errorf("got header %+v, want 2048 bytes from the device and a CDB of 12", h)
	}
	_, err = New(&fakeSG{answers: []answer{checkCondition(descriptor(5, 0x20, 0)...)}}).SecurityReceive(1, 1, nil)
	var rejected *CommandError
	if !errors.As(err, &rejected) || rejected.Key != 5 || rejected.ASC != 0x20 {
		t.Errorf("got %v, want a CommandError of sense key 5", err)
	}
}

// The report of one command follows SPC-5, table "One_command parameter data": SUPPORT in bits 2:0 and MLU in bits 6:5
// of byte 1, the length of the usage map in bytes 2 and 3.
func TestSupports(t *testing.T) {
	report := func(flags byte, usage ...byte) []byte { return append([]byte{0, flags, 0, byte(len(usage))}, usage...) }
	usage := func(flags byte) []byte { return []byte{0x48, flags, 0, 0, 0, 0, 0, 0xff, 0xff, 0} }
	for _, c := range []struct {
		name string
		data []byte
		want Support
		err  string
	}{
		{name: "one unit", data: report(0x23, usage(0xa2)...), want: Support{Supported: true, Exit: true}},
		{
			name: "units not reported", data: report(0x03, usage(0xe2)...),
			want: Support{Supported: true, OtherUnits: true, Exit: true},
		},
		{
			name: "some units", data: report(0x43, usage(0xa2)...),
			want: Support{Supported: true, OtherUnits: true, Exit: true},
		},
		{
			name: "all units", data: report(0x63, usage(0xa2)...),
			want: Support{Supported: true, OtherUnits: true, Exit: true},
		},
		{name: "without AUSE", data: report(0x23, usage(0x82)...), want: Support{Supported: true}},
		{name: "without IMMED", data: report(0x23, usage(0x22)...), want: Support{Supported: true}},
		{name: "not supported", data: report(0x01)},
		{name: "vendor's own", data: report(0x05, usage(0xa2)...)},
		{name: "reserved", data: report(0x07, usage(0xa2)...)},
		{name: "unknown now", data: report(0x00), err: "cannot tell now"},
		{name: "another command", data: report(0x23, 0x42, 0xa2), err: "got usage map 42 a2"},
		{name: "another action", data: report(0x23, usage(0xa3)...), err: "got usage map 48 a3"},
		{name: "truncated", data: []byte{0, 0x23, 0, 10, 0x48}, err: "got usage map 48, want"},
		{name: "empty", data: []byte{0, 3, 0}, err: "got 3 bytes, want at least 4"},
	} {
		sg := &fakeSG{answers: []answer{{data: c.data, residual: int32(8192 - len(c.data))}}}
		got, err := New(sg).Supports(BlockErase)
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.err)
		}
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// WABEREQ and WACEREQ are in bits 7:6 and 5:4 of byte 7 (SBC-4, table "Block Device Characteristics VPD page").
func TestReadableAfter(t *testing.T) {
	for _, c := range []struct {
		data   []byte
		block  Readable
		crypto Readable
		err    string
	}{
		{data: []byte{0, 0xb1, 0, 0x3c, 0, 1, 0, 0x42}, block: ReadableAlways},
		{data: []byte{0, 0xb1, 0, 0x3c, 0, 1, 0, 0x12}, crypto: ReadableAlways},
		{data: []byte{0, 0xb1, 0, 0x3c, 0, 1, 0, 0xe2}, block: 3, crypto: 2},
		{data: []byte{0, 0xb0, 0, 0x3c, 0, 1, 0, 0xe2}, err: "want page 0xb1"},
		{data: []byte{0, 0xb1, 0, 3, 0, 1, 0}, err: "want page 0xb1 of at least 8 bytes"},
		{data: []byte{0, 0xb1, 0, 0x3c, 0, 1, 0}, err: "at least 8 bytes"},
	} {
		sg := &fakeSG{answers: []answer{{data: c.data, residual: int32(252 - len(c.data))}}}
		block, crypto, err := New(sg).ReadableAfter()
		if block != c.block || crypto != c.crypto || (err != nil) != (c.err != "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("% x: got %v, %v, %v, want %v, %v, %q", c.data, block, crypto, err, c.block, c.crypto, c.err)
		}
	}
	if ReadableUnknown.Fails() || ReadableAlways.Fails() || !Readable(2).Fails() || !Readable(3).Fails() {
		t.Error("got wrong values, want reads to fail with 2 and 3 only")
	}
}

// The state is in the sense data of TEST UNIT READY, the progress also in the data of REQUEST SENSE (SPC-5, table
// "Progress indication sense key specific data": SKSV in bit 7 of the first byte).
func TestSanitizeState(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []answer
		want    SanitizeState
		err     string
	}{
		{name: "ready", answers: []answer{{}}},
		{name: "recovered", answers: []answer{checkCondition(descriptor(1, 0, 0)...)}},
		{
			name:    "in progress, fixed",
			answers: []answer{checkCondition(fixed(2, 4, 0x1b, 0x80, 0x12, 0x34)...)},
			want:    SanitizeState{InProgress: true, Progress: 0x1234},
		},
		{
			name: "in progress, descriptor",
			answers: []answer{
				checkCondition(descriptor(2, 4, 0x1b, 0, 2, 1, 2, 2, 6, 0, 0, 0x80, 0x56, 0x78, 0)...),
			},
			want: SanitizeState{InProgress: true, Progress: 0x5678},
		},
		{
			name: "progress by REQUEST SENSE",
			answers: []answer{
				checkCondition(fixed(2, 4, 0x1b)...), {data: fixed(2, 4, 0x1b, 0x80, 1, 2), residual: 252 - 18},
			},
			want: SanitizeState{InProgress: true, Progress: 0x102},
		},
		{
			name:    "progress nowhere",
			answers: []answer{checkCondition(fixed(2, 4, 0x1b)...), {residual: 252}},
			want:    SanitizeState{InProgress: true},
		},
		{
			name: "REQUEST SENSE fails", answers: []answer{checkCondition(descriptor(2, 4, 0x1b)...), {host: 3}},
			want: SanitizeState{InProgress: true},
		},
		{
			name: "failed", answers: []answer{checkCondition(descriptor(3, 0x31, 3)...)},
			want: SanitizeState{Failed: true},
		},
		{
			name: "after a reset", answers: []answer{
				checkCondition(descriptor(6, 0x29, 0)...), checkCondition(fixed(3, 0x31, 3)...),
			},
			want: SanitizeState{Failed: true},
		},
		{
			name: "resets", answers: []answer{checkCondition(descriptor(6, 0x29, 0)...)},
			err: "TEST UNIT READY: rejected (sense key 0x6, additional sense 0x29 0x00)",
		},
		{
			name: "becoming ready", answers: []answer{checkCondition(descriptor(2, 4, 1)...)},
			err: "TEST UNIT READY: rejected (sense key 0x2, additional sense 0x04 0x01)",
		},
		{
			name: "format failed", answers: []answer{checkCondition(descriptor(3, 0x31, 1)...)},
			err: "additional sense 0x31 0x01",
		},
	} {
		got, err := New(&fakeSG{answers: c.answers}).SanitizeState()
		if got != c.want || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %+v, %v, want %+v, %q", c.name, got, err, c.want, c.err)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		answer answer
		want   string
	}{
		{answer{err: unix.EIO}, "SANITIZE BLOCK ERASE: input/output error"},
		{answer{host: 3}, "SANITIZE BLOCK ERASE: host adapter result 0x03 (timed out)"},
		{answer{host: 0x55}, "host adapter result 0x55 (unknown)"},
		{answer{driver: 6}, "driver result 0x06"},
		{answer{status: 0x18}, "SCSI status 0x18"},
		{answer{status: 2}, "got 0 bytes of sense data, want at least 8"},
		{checkCondition(0x7f, 0, 0, 0, 0, 0, 0, 0), "unknown format 0x7f of sense data"},
		{
			checkCondition(descriptor(5, 0x24, 0)...),
			"SANITIZE BLOCK ERASE: rejected (sense key 0x5, additional sense 0x24 0x00)",
		},
		{checkCondition(0x70, 0, 5, 0, 0, 0, 0, 0), "rejected (sense key 0x5, additional sense 0x00 0x00)"},
	} {
		err := New(&fakeSG{answers: []answer{c.answer}}).Sanitize(BlockErase)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
		var rejected *CommandError
		if errors.As(err, &rejected) != strings.Contains(c.want, "rejected (") {
			t.Errorf("%v: got a CommandError %v", err, rejected)
		}
	}
	sg := &fakeSG{answers: []answer{checkCondition(descriptor(6, 0x29, 0)...), {}}}
	if err := New(sg).Sanitize(BlockErase); err != nil || len(sg.log) != 2 {
		t.Errorf("after a reset: got %v and commands %q, want it repeated once", err, sg.log)
	}
}

func FuzzSense(f *testing.F) {
	f.Add(fixed(2, 4, 0x1b, 0x80, 1, 2))
	f.Add(descriptor(2, 4, 0x1b, 0, 2, 1, 2, 2, 6, 0, 0, 0x80, 0x56, 0x78, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSense(data)
		if _, ok := s.progress(); err != nil && ok {
			t.Errorf("got progress with %v", err)
		}
		if d := s.Descriptor(2, 8); d != nil && !bytes.Contains(data, d) {
			t.Errorf("got descriptor % x", d)
		}
	})
}

func FuzzSupport(f *testing.F) {
	f.Add([]byte{0, 0x23, 0, 10, 0x48, 0xa2, 0, 0, 0, 0, 0, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := parseSupport(data, BlockErase.action); err != nil && s != (Support{}) || !s.Supported && s.Exit {
			t.Errorf("got %+v with %v", s, err)
		}
	})
}
