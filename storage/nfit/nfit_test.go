package nfit

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// persistent is the type of persistent memory.
var persistent = uuid.MustParse("66f0d379-b4f3-4074-ac43-0d3318b78cdb")

// read returns the recorded table of a machine with 16 MiB of persistent memory, whose firmware booted an ISO by HTTP.
// QEMU created the table, OVMF added the RAM disk.
func read(t testing.TB) []byte {
	t.Helper()
	table, err := os.ReadFile(filepath.Join("testdata", "ovmf"))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestParse(t *testing.T) {
	got, err := Parse(read(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []Range{
		{Index: 2, Type: persistent, Base: 4 << 30, Size: 16 << 20},
		{Index: 0, Type: VirtualCD, Base: 0x38c6d000, Size: 49283072},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ranges differ (-want +got):\n%s", diff)
	}
}

// Only disks and CDs in volatile memory are RAM disks: persistent memory keeps what a former user wrote.
func TestRAMDisk(t *testing.T) {
	for kind, want := range map[string]bool{
		"77ab535a-45fc-624b-5560-f7b281d1f96e": true,  // virtual disk, volatile
		"3d5abd30-4175-87ce-6d64-d2ade523c4bb": true,  // virtual CD, volatile
		"5cea02c9-4d07-69d3-269f-4496fbe096f9": false, // virtual disk, persistent
		"08018188-42cd-bb48-100f-5387d53ded3d": false, // virtual CD, persistent
		"7305944f-fdda-44e3-b16c-3f22d252e5d0": false, // volatile memory
		"66f0d379-b4f3-4074-ac43-0d3318b78cdb": false, // persistent memory
	} {
		if got := (Range{Type: uuid.MustParse(kind)}).IsRAMDisk(); got != want {
			t.Errorf("%s: got %t, want %t", kind, got, want)
		}
	}
}

// sealed returns the table with the right length and checksum.
func sealed(table []byte) []byte {
	binary.LittleEndian.PutUint32(table[4:], uint32(len(table)))
	table[9] = 0
	for _, b := range table[:9] {
		table[9] -= b
	}
	for _, b := range table[10:] {
		table[9] -= b
	}
	return table
}

func TestInvalid(t *testing.T) {
	good := read(t)
	for name, c := range map[string]struct {
		table []byte
		want  string
	}{
		"empty":           {nil, `got 0 bytes that begin with ""`},
		"other table":     {append([]byte("FACP"), good[4:]...), `begin with "FACP"`},
		"truncated":       {good[:len(good)-1], "got"},
		"flipped byte":    {slices.Concat(good[:60], []byte{^good[60]}, good[61:]), "wrong checksum"},
		"no structure":    {sealed(append(bytes.Clone(good[:40]), 0, 0, 56)), "got 3 bytes at 40"},
		"endless":         {sealed(append(bytes.Clone(good[:40]), 1, 0, 0, 0)), "has 0 bytes of 4"},
		"beyond the end":  {sealed(append(bytes.Clone(good[:40]), 1, 0, 200, 0)), "has 200 bytes of 4"},
		"short range":     {sealed(append(bytes.Clone(good[:40]), 0, 0, 4, 0)), "structure 0 at 40 has 4 bytes of 4"},
		"huge":            {append([]byte("NFIT"), make([]byte, maxTable)...), "want 40 to"},
		"header's length": {append(bytes.Clone(good), 0), "want"},
	} {
		if _, err := Parse(c.table); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
}

// FuzzParse checks that a table of any content is parsed or refused, and that its ranges are those it contains.
func FuzzParse(f *testing.F) {
	good := read(f)
	f.Add(good)
	f.Add(good[:40])
	f.Add(append(bytes.Clone(good[:40]), 0, 0, 56, 0))
	f.Fuzz(func(t *testing.T, table []byte) {
		if len(table) > headerBytes {
			table = sealed(bytes.Clone(table))
		}
		ranges, err := Parse(table)
		if err == nil && len(ranges)*rangeBytes > len(table)-headerBytes {
			t.Errorf("got %d ranges in %d bytes", len(ranges), len(table))
		}
	})
}
