package smbios

import (
	"bytes"
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

// print writes what dmidecode writes.
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

// The structures have random contents and every length that an edition of the specification gave them. The text is what
// dmidecode 3.4 prints of them (dmidecode --from-dump random.bin), without its first lines.
func TestDescribeIsWhatDmidecodePrints(t *testing.T) {
	table, err := Parse(dump(t, "testdata/random.bin"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/random.dmidecode")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(want), "Handle 0xFEFF, DMI type 127")
	if diff := cmp.Diff(strings.Split(text, "\n"), strings.Split(print(table), "\n")); diff != "" {
		t.Errorf("description differs (-want +got):\n%s", diff)
	}
}

func TestParse(t *testing.T) {
	entry, table := dump(t, "testdata/random.bin")
	whole, err := Parse(entry, table)
	if err != nil || len(whole.Structures) != 198 || whole.Major != 3 || whole.Minor != 5 {
		t.Fatalf("got %d structures of version %d.%d and %v, want 198 of 3.5", len(whole.Structures), whole.Major, whole.Minor, err)
	}
	for _, tt := range []struct {
		name  string
		entry []byte
		table []byte
		count int
		bad   bool
	}{
		{"old entry point", []byte("_SM_\x00\x1f\x02\x08"), []byte{1, 4, 0, 0, 'a', 0, 0, 127, 4, 0, 0}, 1, false},
		{"no end", entry, []byte{1, 4, 0, 0, 0, 0}, 1, false},
		{"cut in the header", entry, []byte{1, 4, 0, 0, 0, 0, 1, 4}, 1, true},
		{"cut in the fields", entry, []byte{1, 40, 0, 0, 0, 0}, 0, true},
		{"length without a header", entry, []byte{1, 3, 0, 0, 0, 0}, 0, true},
		{"cut in the strings", entry, []byte{1, 4, 0, 0, 'a', 0}, 0, true},
		{"no anchor", []byte("SMBIOS"), table, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.entry, tt.table)
			if (err != nil) != tt.bad {
				t.Errorf("got %v, want an error: %v", err, tt.bad)
			}
			if got != nil && len(got.Structures) != tt.count {
				t.Errorf("got %d structures, want %d", len(got.Structures), tt.count)
			}
		})
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
