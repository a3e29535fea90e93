package tcg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// opal2 is the reply of a drive of Opal 2 with locking enabled and no range locked, written down from the tables of
// Opal 2.01: "Level 0 Discovery Header" (length 160, revision 0.1), "TPer Feature Descriptor", "Locking Feature
// Descriptor", "Geometry Reporting Feature Descriptor", "Opal SSC V2.00 Feature Descriptor", and the descriptors of the
// feature sets Single User Mode and Additional DataStore Tables.
var opal2 = slices.Concat(
	[]byte{0, 0, 0, 160, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 32),
	[]byte{0x00, 0x01, 0x10, 12, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},             // TPer: streaming, sync
	[]byte{0x00, 0x02, 0x10, 12, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},             // Locking
	[]byte{0x00, 0x03, 0x10, 28, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0},                // Geometry: ALIGN, 512
	[]byte{0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0},                          // granularity 8
	[]byte{0x02, 0x01, 0x10, 12, 0, 0, 0, 9, 4, 0, 0, 0, 0, 0, 0, 0},                // Single User Mode
	[]byte{0x02, 0x02, 0x10, 12, 0, 0, 0, 10, 0, 0xa0, 0, 0, 0, 0, 0x10, 0},         // DataStore tables
	[]byte{0x02, 0x03, 0x10, 16, 0x10, 0, 0, 1, 0, 0, 4, 0, 9, 0, 0, 0, 0, 0, 0, 0}, // Opal 2.00
)

const lockingFlags = 48 + 16 + 4 // place of the flags in opal2

// withFlags returns opal2 with other flags of the Locking feature.
func withFlags(flags byte) []byte {
	data := bytes.Clone(opal2)
	data[lockingFlags] = flags
	return data
}

// reply returns a reply with descriptors.
func reply(descriptors ...[]byte) []byte {
	data := slices.Concat(append([][]byte{make([]byte, 48)}, descriptors...)...)
	binary.BigEndian.PutUint32(data, uint32(len(data)-4))
	binary.BigEndian.PutUint32(data[4:], 1)
	return data
}

// class returns the descriptor of a Security Subsystem Class.
func class(code uint16) []byte {
	return append(binary.BigEndian.AppendUint16(nil, code), 0x10, 6, 0x07, 0xfe, 0, 1, 0, 0)
}

func TestParse(t *testing.T) {
	if length := binary.BigEndian.Uint32(opal2); int(length) != len(opal2)-4 {
		t.Fatalf("got a reply of %d bytes, want %d", len(opal2), length+4)
	}
	opal := []string{"Opal 2"}
	for _, c := range []struct {
		name     string
		data     []byte
		want     Discovery
		obstacle string
		err      string
	}{
		{
			name: "unlocked", data: opal2,
			want: Discovery{Classes: opal, Locking: &Locking{Supported: true, Enabled: true, Encryption: true}},
		},
		{
			name: "not enabled, padded", data: append(withFlags(0b0_0000_1001), make([]byte, 1024)...),
			want: Discovery{Classes: opal, Locking: &Locking{Supported: true, Encryption: true}},
		},
		{
			name: "locked", data: withFlags(0b0000_1111),
			want: Discovery{Classes: opal, Locking: &Locking{
				Supported: true, Enabled: true, Locked: true, Encryption: true,
			}},
			obstacle: "locked",
		},
		{
			name: "locked, shadow MBR done", data: withFlags(0b0011_1111),
			want: Discovery{Classes: opal, Locking: &Locking{
				Supported: true, Enabled: true, Locked: true, Encryption: true, MBREnabled: true, MBRDone: true,
			}},
			obstacle: "locked",
		},
		{
			name: "shadow MBR", data: withFlags(0b0001_1011), obstacle: "shadow MBR",
			want: Discovery{Classes: opal, Locking: &Locking{
				Supported: true, Enabled: true, Encryption: true, MBREnabled: true,
			}},
		},
		{
			name: "shadow MBR done", data: withFlags(0b0011_1011),
			want: Discovery{Classes: opal, Locking: &Locking{
				Supported: true, Enabled: true, Encryption: true, MBREnabled: true, MBRDone: true,
			}},
		},
		{
			name: "no shadow MBR", data: withFlags(0b0101_1011),
			want: Discovery{Classes: opal, Locking: &Locking{
				Supported: true, Enabled: true, Encryption: true, MBREnabled: true, NoShadowMBR: true,
			}},
		},
		{ // the bit has no meaning without an owner
			name: "locked, not enabled", data: withFlags(0b0000_1101),
			want: Discovery{Classes: opal, Locking: &Locking{Supported: true, Locked: true, Encryption: true}},
		},
		{
			name: "all classes",
			data: reply(class(0x0100), class(0x0200), class(0x0203), class(0x0301), class(0x0302), class(0x0303),
				class(0x0304), class(0x0305), class(0x0100), class(0xc001)),
			want: Discovery{Classes: []string{
				"Enterprise", "Opal 1", "Opal 2", "Opalite", "Pyrite 1", "Pyrite 2", "Ruby", "Key Per I/O",
			}},
		},
		{name: "zeros", data: make([]byte, 512)},
		{name: "header only", data: reply()},
		{name: "short", data: make([]byte, 47), err: "got 47 bytes, want at least 48"},
		{name: "short length", data: append([]byte{0, 0, 0, 43}, make([]byte, 44)...), err: "got a length of 47 bytes"},
		{
			name: "truncated after the locking feature", data: opal2[:48+32],
			want: Discovery{Locking: &Locking{Supported: true, Enabled: true, Encryption: true}},
			err:  "got 80 bytes, want 164",
		},
		{
			name: "truncated locking feature", data: opal2[:48+20], err: "feature 0x0002: got 4 bytes, want 16",
		},
		{name: "truncated descriptor header", data: opal2[:48+18], err: "got a feature descriptor of 2 bytes"},
		{
			name: "largest length", data: append([]byte{0xff, 0xff, 0xff, 0xff}, opal2[4:]...), err: "want 4294967299",
			want: Discovery{Classes: opal, Locking: &Locking{Supported: true, Enabled: true, Encryption: true}},
		},
		{name: "empty locking feature", data: reply([]byte{0, 2, 0x10, 0}), err: "empty Locking feature descriptor"},
		{
			name: "contradiction", data: reply([]byte{0, 2, 0x10, 1, 7}, []byte{0, 2, 0x10, 1, 3}),
			want: Discovery{Locking: &Locking{Supported: true, Enabled: true, Locked: true}}, obstacle: "locked",
			err: "got two different Locking feature descriptors",
		},
		{
			name: "contradiction, locked last", data: reply([]byte{0, 2, 0x10, 1, 3}, []byte{0, 2, 0x10, 1, 7}),
			want: Discovery{Locking: &Locking{Supported: true, Enabled: true, Locked: true}}, obstacle: "locked",
			err: "got two different Locking feature descriptors",
		},
		{
			name: "contradiction, shadow MBR last",
			data: reply([]byte{0, 2, 0x10, 1, 0x63}, []byte{0, 2, 0x10, 1, 0x13}),
			want: Discovery{Locking: &Locking{Supported: true, Enabled: true, MBREnabled: true}}, obstacle: "shadow",
			err: "got two different Locking feature descriptors",
		},
	} {
		got, err := Parse(c.data)
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.name, diff)
		}
		if o := got.LockedReason(); (o == "") != (c.obstacle == "") || !strings.Contains(o, c.obstacle) {
			t.Errorf("%s: got obstacle %q, want %q", c.name, o, c.obstacle)
		}
	}
}

// Discover requests protocol 01h, ComID 0001h (Core Specification 2.01, section "Level 0 Discovery").
func TestDiscover(t *testing.T) {
	d, err := Discover(func(protocol byte, specific uint16, buffer []byte) ([]byte, error) {
		if protocol != 0x01 || specific != 0x0001 || len(buffer) != 2048 {
			t.Errorf("got protocol 0x%02x, specific 0x%04x and %d bytes", protocol, specific, len(buffer))
		}
		return buffer[:copy(buffer, withFlags(0x0f))], nil
	})
	const text = "Opal 2, locking supported true, enabled true, locked true, media encryption true, " +
		"shadow MBR enabled false, done false"
	if err != nil || d.String() != text || d.LockedReason() == "" {
		t.Errorf("got %v, %v, want %s", d, err, text)
	}
	failure := errors.New("rejected")
	for _, reason := range []error{failure, nil} {
		_, err := Discover(func(byte, uint16, []byte) ([]byte, error) { return nil, reason })
		if err == nil || !errors.Is(err, reason) && reason != nil {
			t.Errorf("without data: got %v, want an error with %v", err, reason)
		}
	}
	if got := (Discovery{}).String(); got != "an unknown Security Subsystem Class, no locking" {
		t.Errorf("got %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(opal2)
	f.Add(withFlags(0x0f))
	f.Add(withFlags(0x1b))
	f.Add(opal2[:48+20])
	f.Add(reply(class(0x0100), []byte{0, 2, 0x10, 0}))
	f.Add(reply([]byte{0, 2, 0x10, 1, 7}, []byte{0, 2, 0x10, 1, 3}))
	f.Add(append([]byte{0xff, 0xff, 0xff, 0xff}, opal2[4:]...))
	f.Add(make([]byte, 48))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse(data)
		if len(d.Classes) > 8 {
			t.Errorf("got classes %q", d.Classes)
		}
		if d.LockedReason() != "" && (d.Locking == nil || !d.Locking.Enabled || !bytes.Contains(data, []byte{0, 2})) {
			t.Errorf("got obstacle %q of %v", d.LockedReason(), d)
		}
		// Bytes that follow the announced length change nothing.
		if err == nil {
			if again, err := Parse(append(bytes.Clone(data), 0xff, 0xff)); err != nil || !cmp.Equal(again, d) {
				t.Errorf("with more data: got %v, %v, want %v", again, err, d)
			}
		}
	})
}
