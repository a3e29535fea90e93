package smbios

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	library "github.com/u-root/u-root/pkg/smbios"
)

// The reasons why u-root's pkg/smbios is not used to split tables. A test that fails after an update of the library
// says which reason no longer holds.
func TestLibraryRejectsTables(t *testing.T) {
	entry, _ := dump(t, "testdata/random.bin")
	one := []byte{1, 4, 0, 0, 0, 0}
	wrongSum := bytes.Clone(entry)
	wrongSum[5]++
	for _, tt := range []struct {
		name  string
		entry []byte
		table []byte
		err   bool // own error; the structures before are returned with it
	}{
		{"cut in the header", entry, []byte{1, 4, 0, 0, 0, 0, 1, 4}, true},
		{"cut in the strings", entry, []byte{1, 4, 0, 0, 0, 0, 1, 4, 0, 0, 'a', 0}, true},
		{"end without its zeros", entry, []byte{1, 4, 0, 0, 0, 0, 127, 4, 0, 0}, false},
		{"zeros after the end", entry, append([]byte{1, 4, 0, 0, 0, 0, 127, 4, 0, 0, 0, 0}, make([]byte, 8)...), false},
		{"entry point of 2.0", []byte("_DMI_\x00\x40\x00\x00\x00\x0f\x00\x01\x00\x20"), one, false},
		{"checksum of the entry point", wrongSum, one, false},
	} {
		if _, err := library.ParseInfo(tt.entry, tt.table); err == nil {
			t.Errorf("%s: the library reads the table", tt.name)
		}
		if own, err := Parse(tt.entry, tt.table); own == nil || len(own.Structures) != 1 || (err != nil) != tt.err {
			t.Errorf("%s: got %+v and %v, want one structure and an error: %v", tt.name, own, err, tt.err)
		}
	}
}

// The reasons why the library does not describe structures, which the collector dmi reports as dmidecode prints them.
func TestLibraryDescribesOtherwise(t *testing.T) {
	structure := func(kind byte, length int, fields map[int]uint16) []byte {
		data := make([]byte, length, length+2)
		data[0], data[1] = kind, byte(length)
		for offset, value := range fields {
			binary.LittleEndian.PutUint16(data[offset:], value)
		}
		return append(data, 0, 0)
	}
	memory := func(length int, fields map[int]uint16) []byte { return structure(TypeMemoryDevice, length, fields) }
	for _, tt := range []struct {
		name, line string // the line is in exactly one of the descriptions
		raw        []byte
		own        bool // it is in ours, which is dmidecode's
	}{
		{"memory array", "Number Of Devices: 4", structure(TypeMemoryArray, 0x17, map[int]uint16{0x0d: 4}), true},
		{
			"module faster than 65 GT/s", "Speed: 70000 MT/s",
			memory(0x5c, map[int]uint16{0x0c: 1, 0x15: 0xffff, 0x54: 70000 & 0xffff, 0x56: 70000 >> 16}), true,
		},
		{"empty slot", "Rank: Unknown", memory(0x28, nil), false},
		{"fields behind the end", "Cache Size: None", memory(0x34, map[int]uint16{0x0c: 1}), false},
		{"module of unknown size", "Size: Unknown", memory(0x15, map[int]uint16{0x0c: 0xffff}), true},
		{"form factor CAMM", "Form Factor: CAMM", memory(0x15, map[int]uint16{0x0e: 0x11}), true},
		{"size with a rest", "Cache Size: 1025 MB", memory(0x54, map[int]uint16{0x0c: 1, 0x46: 0x4010, 0x44: 1}), true},
		{
			"processor without characteristics", "Characteristics: None",
			structure(TypeProcessor, 0x30, map[int]uint16{0x18: 0x41}), true,
		},
		{
			"voltages of a socket", "Voltage: 5.0 V 3.3 V",
			structure(TypeProcessor, 0x30, map[int]uint16{0x10: 0x0300}), true,
		},
		{"flags of a processor", "Flags: None", structure(TypeProcessor, 0x30, map[int]uint16{0x06: 0xb3}), true},
	} {
		own, _, err := next(tt.raw)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, f := range (&Table{Major: 3, Minor: 5}).Describe(own) {
			text.WriteString(f.Key + ": " + f.Value + "\n")
		}
		foreign, _, err := library.ParseTable(tt.raw)
		if err != nil {
			t.Fatal(err)
		}
		other := foreign.String()
		if typed, err := library.ParseTypedTable(foreign); err == nil {
			other = typed.(interface{ String() string }).String()
		}
		ours, theirs := strings.Contains(text.String(), tt.line), strings.Contains(other, tt.line)
		if ours != tt.own || theirs == tt.own {
			t.Errorf("%s: got %q here: %v, by the library: %v, want %v and %v\n%s\n%s",
				tt.name, tt.line, ours, theirs, tt.own, !tt.own, text.String(), other)
		}
	}
}
