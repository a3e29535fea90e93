package smbios

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// dump splits a file in the form of dmidecode --dump-bin: the entry point, and the table from byte 32 on.
func dump(t testing.TB, name string) (entry, table []byte) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data[:32], data[32:]
}

// print formats structures like dmidecode.
func print(t *Table) string {
	titles := map[byte]string{
		TypeBIOS: "BIOS Information", TypeProcessor: "Processor Information", TypeMemoryArray: "Physical Memory Array",
		TypeMemoryDevice: "Memory Device",
	}
	var out strings.Builder
	for _, s := range t.Structures {
		fmt.Fprintf(&out, "%s\n%s\n", Title(s), titles[s.Type])
		for _, f := range t.Describe(s) {
			if f.List == nil {
				fmt.Fprintf(&out, "\t%s: %s\n", f.Key, f.Value)
				continue
			}
			fmt.Fprintf(&out, "\t%s:\n", f.Key)
			for _, item := range f.List {
				fmt.Fprintf(&out, "\t\t%s\n", item)
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}

// The text equals dmidecode 3.4's of the same file (dmidecode --from-dump random.bin), without its first lines. The
// structures of random.bin have random contents and every length that an edition of the specification gave them, the
// structures of rare.bin contents that these lack. The tables of old.bin have an entry point of SMBIOS 2.1.
func TestDescribeIsWhatDmidecodePrints(t *testing.T) {
	for _, name := range []string{"random", "rare", "old"} {
		table, err := Parse(dump(t, "testdata/"+name+".bin"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile("testdata/" + name + ".dmidecode")
		if err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(string(want), "Handle 0xFEFF, DMI type 127")
		if diff := cmp.Diff(strings.Split(text, "\n"), strings.Split(print(table), "\n")); diff != "" {
			t.Errorf("%s: description differs (-want +got):\n%s", name, diff)
		}
	}
}

func TestParse(t *testing.T) {
	entry, table := dump(t, "testdata/random.bin")
	whole, err := Parse(entry, table)
	if err != nil || len(whole.Structures) != 198 || whole.Major != 3 || whole.Minor != 5 {
		t.Fatalf("got %d structures of version %d.%d and %v, want 198 of 3.5",
			len(whole.Structures), whole.Major, whole.Minor, err)
	}
	for _, tt := range []struct {
		name    string
		entry   []byte
		table   []byte
		version string
		count   int
		bad     bool
	}{
		{
			"entry point of 2.8", []byte("_SM_\x00\x1f\x02\x08"),
			[]byte{1, 4, 0, 0, 'a', 0, 0, 127, 4, 0, 0},
			"2.8", 1, false,
		},
		{
			"entry point of 2.0", []byte("_DMI_\x00\x40\x00\x00\x00\x0f\x00\x01\x00\x20"),
			[]byte{1, 4, 0, 0, 0, 0},
			"2.0", 1, false,
		},
		{"no end", entry, []byte{1, 4, 0, 0, 0, 0}, "3.5", 1, false},
		{
			"zeros after the end", entry, append([]byte{1, 4, 0, 0, 0, 0, 127, 4, 0, 0}, make([]byte, 9)...),
			"3.5", 1, false,
		},
		{"long end", entry, append([]byte{1, 4, 0, 0, 0, 0, 127, 27, 0, 0}, make([]byte, 10)...), "3.5", 1, false},
		{"end without a length", entry, []byte{1, 4, 0, 0, 0, 0, 127, 0, 0, 0, 0, 0}, "3.5", 1, false},
		{"fault in the middle", entry, []byte{1, 4, 0, 0, 0, 0, 1, 3, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0}, "3.5", 1, true},
		{"cut in the header", entry, []byte{1, 4, 0, 0, 0, 0, 1, 4}, "3.5", 1, true},
		{"cut in the fields", entry, []byte{1, 40, 0, 0, 0, 0}, "3.5", 0, true},
		{"length without a header", entry, []byte{1, 3, 0, 0, 0, 0}, "3.5", 0, true},
		{"cut in the strings", entry, []byte{1, 4, 0, 0, 'a', 0}, "3.5", 0, true},
		{"no anchor", []byte("SMBIOS"), table, "", 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.entry, tt.table)
			if (err != nil) != tt.bad {
				t.Errorf("got %v, want an error: %v", err, tt.bad)
			}
			if got == nil {
				if tt.version != "" {
					t.Errorf("got no table, want one of version %s", tt.version)
				}
				return
			}
			if version := fmt.Sprintf("%d.%d", got.Major, got.Minor); len(got.Structures) != tt.count ||
				version != tt.version {
				t.Errorf("got %d structures of version %s, want %d of %s",
					len(got.Structures), version, tt.count, tt.version)
			}
		})
	}
}

// Strings have neither control characters nor bytes of erased memory, and keep valid UTF-8, as lshw prints them.
func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"PowerEdge R640": "PowerEdge R640", "  CZ1234\t\r\n": "CZ1234", "AB\x00\x01C\x1b[0m\x7f": "ABC[0m",
		"\xff\xff\xff\xff": "", "S/N 7\xff\xff ": "S/N 7", "Gehäuse\u0085": "Gehäuse", "\xe9t\xe9": "t", "": "",
	} {
		if got := Clean(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if got := (Structure{Data: []byte{1, 5, 0, 0, 1}, Strings: []string{text}}).Text(4); got != want {
			t.Errorf("text %q: got %q, want %q", text, got, want)
		}
	}
}

func TestStructures(t *testing.T) {
	table, err := Parse(dump(t, "testdata/rare.bin"))
	if err != nil {
		t.Fatal(err)
	}
	var handles []uint16
	for _, s := range table.All(TypeMemoryDevice) {
		handles = append(handles, s.Handle)
	}
	if diff := cmp.Diff([]uint16{0x1100, 0x1101}, handles); diff != "" {
		t.Errorf("memory devices differ (-want +got):\n%s", diff)
	}
	s := Structure{Data: []byte{TypeSystem, 8, 0, 0, 1, 2, 3, 0}, Strings: []string{"first", "second"}}
	// No third one, none, no such field.
	for offset, want := range map[int]string{4: "first", 5: "second", 6: "", 7: "", 8: ""} {
		if got := s.Text(offset); got != want {
			t.Errorf("text at %d: got %q, want %q", offset, got, want)
		}
	}
}

// The sizes of table 84 of the specification.
func TestMemorySize(t *testing.T) {
	for _, tt := range []struct {
		name     string
		size     uint16
		extended uint32
		length   int
		want     int64
	}{
		{"empty slot", 0, 0, 0x22, 0},
		{"unknown", 0xffff, 0, 0x22, 0},
		{"MiB", 0x4000, 0, 0x22, 16 << 30},
		{"KiB", 0x8200, 0, 0x22, 512 << 10},
		{"extended", 0x7fff, 0x20000, 0x22, 128 << 30},
		{"extended, reserved bit", 0x7fff, 0x80008000, 0x22, 32 << 30},
		{"no extended size", 0x7fff, 0, 0x1b, 0x7fff << 20},
	} {
		data := make([]byte, 0x22)
		binary.LittleEndian.PutUint16(data[0x0c:], tt.size)
		binary.LittleEndian.PutUint32(data[0x1c:], tt.extended)
		if got := (Structure{Type: TypeMemoryDevice, Data: data[:tt.length]}).MemorySize(); got != tt.want {
			t.Errorf("%s: got %d bytes, want %d", tt.name, got, tt.want)
		}
	}
}

// Firmware lacks UEFI only if its BIOS information has the byte with the UEFI bit, and the bit is 0.
func TestLacksUEFI(t *testing.T) {
	bios := func(kind byte, length int, extension byte) Structure {
		data := make([]byte, length)
		data[len(data)-1] = extension
		return Structure{Type: kind, Data: data}
	}
	for name, c := range map[string]struct {
		table Table
		want  bool
	}{
		"no BIOS information": {Table{Structures: []Structure{bios(TypeSystem, 20, 0)}}, false},
		"SMBIOS 2.3":          {Table{Structures: []Structure{bios(TypeBIOS, 19, 0)}}, false},
		"UEFI":                {Table{Structures: []Structure{bios(TypeBIOS, 20, 0x08)}}, false},
		"BIOS": {
			Table{Structures: []Structure{bios(TypeSystem, 20, 8), bios(TypeBIOS, 20, 0xf7)}}, true,
		},
		"first one counts": {Table{Structures: []Structure{bios(TypeBIOS, 20, 8), bios(TypeBIOS, 20, 0)}}, false},
	} {
		if got := c.table.LacksUEFI(); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	entry, table := dump(f, "testdata/random.bin")
	f.Add(entry, table)
	f.Add(entry, bytes.Repeat([]byte{17, 0x5c}, 100))
	f.Add([]byte("_SM_\x00\x1f\x02\x08"), []byte{17, 0x15, 0, 0, 1, 0xff, 0x7f, 0, 0, 127, 4, 0, 0})
	f.Fuzz(func(t *testing.T, entry, data []byte) {
		table, err := Parse(entry, data)
		if table == nil {
			if err == nil {
				t.Error("neither a table nor an error")
			}
			return
		}
		for _, s := range table.Structures {
			table.Describe(s)
			if s.MemorySize() < 0 {
				t.Errorf("got a size of %d", s.MemorySize())
			}
		}
	})
}
