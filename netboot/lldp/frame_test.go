package lldp

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// pairs formats TLVs as type and hexadecimal value.
func pairs(f Frame) []string {
	var list []string
	for _, t := range f.TLVs {
		list = append(list, fmt.Sprintf("%03d %x", t.Type, t.Value))
	}
	return list
}

// The frame is lldpd 1.0.16's from a port swp1 of a host leaf1.example.org.
func TestParseFrameOfLLDPD(t *testing.T) {
	text, err := os.ReadFile("testdata/lldpd.hex")
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"001 04020000000001",
		"002 03020000000001",
		"003 0078",
		"005 " + hex.EncodeToString([]byte("leaf1.example.org")),
		"006 " + hex.EncodeToString([]byte("test switch, port to a server")),
		"007 009c0080",
		"008 0501c0000201" + "0200000002" + "00",
		"008 110220010db8000000000000000000000001" + "0200000002" + "00",
		"004 " + hex.EncodeToString([]byte("swp1")),
		"127 00120f030100000000",
		"127 00120f010080000036",
		"000 ",
	}
	if diff := cmp.Diff(want, pairs(f)); diff != "" {
		t.Errorf("TLVs differ (-want +got):\n%s", diff)
	}
	if want := (Neighbour{
		System: "leaf1.example.org", Port: "02:00:00:00:00:01", PortDescription: "swp1",
	}); f.Neighbour() != want {
		t.Errorf("got %+v, want %+v", f.Neighbour(), want)
	}
	if !f.Complete {
		t.Error("got a frame that is not complete")
	}
}

func TestParse(t *testing.T) {
	chassis, port, ttl := tlv(1, "\x07leaf"), tlv(2, "\x05swp1"), tlv(3, "\x00\x78")
	long := strings.Repeat("x", 511)
	for _, tt := range []struct {
		name string
		data []byte
		tlvs int // with the End TLV
		err  string
	}{
		{"smallest", frame(chassis, port, ttl, end), 4, ""},
		{"padding is no TLV", frame(chassis, port, ttl, end, strings.Repeat("\x00", 31)), 4, ""},
		{"what follows the end is no TLV", frame(chassis, port, ttl, end, tlv(5, "ghost")), 4, ""},
		{"TLV of 511 bytes", frame(chassis, port, ttl, tlv(6, long), end), 5, ""},
		{"empty TLV", frame(chassis, port, ttl, tlv(5, ""), end), 5, ""},
		{"no end", frame(chassis, port, ttl), 3, "ends at byte 18 without an End TLV"},
		{"half a header", frame(chassis, port, ttl, "\x0a"), 3, "ends at byte 18 without an End TLV"},
		{
			"value too short", frame(chassis, port, ttl, tlv(6, long)[:300]), 3,
			"TLV of type 6 at byte 18: got 298 bytes, want 511",
		},
		{"no port", frame(chassis, ttl, tlv(5, "leaf"), end), 4, "invalid frame"},
		{"wrong order", frame(port, chassis, ttl, end), 4, "invalid frame"},
		{"time to live of one byte", frame(chassis, port, tlv(3, "\x78"), end), 4, "invalid frame"},
		{"end with a value", frame(chassis, port, ttl, tlv(0, "x")), 4, "invalid frame"},
		{"empty chassis", frame(tlv(1, ""), port, ttl, end), 4, "unexpected EOF"},
		{"nothing but an end", frame(end), 1, "unexpected EOF"},
		{"nothing", frame(), 0, "ends at byte 0"},
		{"no header", []byte("\x01\x80\xc2"), 0, "ethernet frame of 3 bytes: unexpected EOF"},
		{
			"no LLDP", append([]byte("\x01\x80\xc2\x00\x00\x0e\x02\x00\x00\x00\x00\x01\x08\x00"), chassis...), 0,
			"not an LLDP frame: got ethertype 0x0800, want 0x88cc",
		},
		{
			"longer than any frame", frame(chassis, port, ttl, strings.Repeat(tlv(6, long), 20), end), 3 + 17,
			"TLV of type 6",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse(tt.data)
			if len(f.TLVs) != tt.tlvs {
				t.Errorf("got %d TLVs, want %d: %q", len(f.TLVs), tt.tlvs, pairs(f))
			}
			if f.Complete != (err == nil) {
				t.Errorf("got complete %v with error %v", f.Complete, err)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestNeighbour(t *testing.T) {
	for _, tt := range []struct {
		name string
		data []byte
		want Neighbour
	}{
		{
			"names", frame(tlv(1, "\x07c"), tlv(2, "\x05Ethernet1/7"), tlv(4, "rack 3"), tlv(5, "leaf1")),
			Neighbour{"leaf1", "Ethernet1/7", "rack 3"},
		},
		{
			"chassis for a name", frame(tlv(1, "\x04\x02\x00\x00\x00\x00\x0a"), tlv(2, "\x03\x02\x00\x00\x00\x00\x0b")),
			Neighbour{"02:00:00:00:00:0a", "02:00:00:00:00:0b", ""},
		},
		{
			"addresses", frame(tlv(1, "\x05\x01\xc0\x00\x02\x01"),
				tlv(2, "\x04\x02\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01")),
			Neighbour{"192.0.2.1", "2001:db8::1", ""},
		},
		{"no text", frame(tlv(2, "\x07\x01\x02\xff")), Neighbour{"", "0102ff", ""}},
		{
			"no console codes", frame(tlv(5, "leaf\x1b[31m1\r\n\x00"), tlv(2, "\x05a\xffb")),
			Neighbour{"leaf[31m1", "ab", ""},
		},
		{"no end of it", frame(tlv(5, strings.Repeat("x", 511))), Neighbour{strings.Repeat("x", 255), "", ""}},
		{"empty ids", frame(tlv(1, ""), tlv(2, "\x03")), Neighbour{}},
		{"short ids", frame(tlv(1, "\x05"), tlv(2, "\x04\x01")), Neighbour{"", "01", ""}},
		{"the first of two", frame(tlv(5, "one"), tlv(5, "two")), Neighbour{"one", "", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, _ := Parse(tt.data)
			if got := f.Neighbour(); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestVLANs(t *testing.T) {
	f, _ := Parse(frame(
		tlv(127, "\x00\x80\xc2\x03\x00\x64\x04prod"), tlv(127, "\x00\x80\xc2\x03\x0f\xfe\x00"),
		tlv(127, "\x00\x80\xc2\x03\x00\x64\x04twin"), tlv(127, "\x00\x80\xc2\x01\x00\x07"),
		tlv(127, "\x00\x12\x0f\x03\x00\x08"), tlv(127, "\x00\x80\xc2\x03\x00"),
		tlv(127, "\x00\x80\xc2\x03\x00\x00\x00"), tlv(127, "\x00\x80\xc2\x03\x0f\xff\x00"),
		tlv(5, "\x00\x80\xc2\x03\x00\x09"), end))
	if diff := cmp.Diff([]int{100, 4094}, f.VLANs()); diff != "" {
		t.Errorf("VLANs differ (-want +got):\n%s", diff)
	}
}

// FuzzLLDP checks that no frame breaks the parser or makes it store more than the frame contains.
func FuzzLLDP(f *testing.F) {
	f.Add(from("leaf1"))
	f.Add(from("leaf1", tlv(127, "\x00\x80\xc2\x03\x00\x64\x04prod"), tlv(6, strings.Repeat("x", 511))))
	f.Add(frame(tlv(1, "\x05\x01\xc0\x00\x02\x01"), tlv(2, "\x04\x02"), "\xff"))
	f.Add([]byte("\x01\x80\xc2\x00\x00\x0e\x02\x00\x00\x00\x00\x01\x81\x00\x00\x05\x88\xcc" + tlv(1, "\x07x") + end))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Parse(data)
		size := 0
		for _, v := range got.TLVs {
			size += 2 + len(v.Value)
			if v.Type > 127 || len(v.Value) > 511 {
				t.Errorf("got TLV of type %d with %d bytes", v.Type, len(v.Value))
			}
		}
		if size > min(len(data), maxFrame) {
			t.Errorf("got %d bytes of TLVs from a frame of %d", size, len(data))
		}
		if got.Complete != (err == nil) {
			t.Errorf("got complete %v with error %v", got.Complete, err)
		}
		n := got.Neighbour()
		for _, s := range []string{n.System, n.Port, n.PortDescription} {
			if len(s) > 2*maxText || strings.ContainsAny(s, "\x00\x1b\r\n") {
				t.Errorf("got %q for people", s)
			}
		}
		for _, id := range got.VLANs() {
			if id < 1 || id > 4094 {
				t.Errorf("got VLAN %d", id)
			}
		}
		if err != nil {
			return
		}
		// The parsed TLVs, encoded and parsed again, are the same.
		var tlvs []string
		for _, v := range got.TLVs {
			tlvs = append(tlvs, tlv(int(v.Type), string(v.Value)))
		}
		again, err := Parse(frame(tlvs...))
		if diff := cmp.Diff(got, again, cmpopts.EquateEmpty(), cmp.AllowUnexported(Frame{})); err != nil || diff != "" {
			t.Errorf("written again: %v (-first +second):\n%s", err, diff)
		}
	})
}
