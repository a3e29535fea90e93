package md

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ironroot/internal/test/testenv"
)

const (
	mib      = 1 << 20
	diskSize = 24 * mib
)

// goldens are the values that mdadm --examine and --detail print for the superblocks in testdata/md of the repository.
var goldens = map[string]Superblock{
	"raid1-1.2": {
		Version: "1.2", Offset: 4096, Length: 512, UUID: "b14fcbb4-3f84-bc43-c0eb-ad65d6dd43be", Name: "tenant:data",
		Level:   "raid1",
		Devices: 2, DataOffset: mib, DataSize: 4 * mib, ArraySize: 4 * mib,
		Events: 14,
	},
	"raid1-1.0": {
		Version: "1.0", Offset: 49136 * 512, Length: 512, UUID: "a106cb4a-efd7-f370-9a5e-c2ad37fd7b69",
		Name: "tenant:esp", Level: "raid1", Devices: 2, DataSize: 24512 * 1024, ArraySize: 24512 * 1024, Events: 17,
	},
	"raid5-1.1": {
		Version: "1.1", Length: 512, UUID: "7fca19f6-15aa-b7b2-06ab-7b96927714ec", Name: "none:scratch",
		Level: "raid5", Chunk: 512 << 10, Devices: 3, DataOffset: 2 * mib, DataSize: 22 * mib, ArraySize: 44 * mib,
		Events: 18,
	},
	"raid1-0.90": {
		Version: "0.90", Offset: diskSize - 65536, Length: 4096, UUID: "b6c48f66-4840-ae1f-a172-e849031cf1ac",
		Level:   "raid1",
		Devices: 2, DataSize: 24512 * 1024, ArraySize: 24512 * 1024,
	},
	"raid0-1.2": {
		Version: "1.2", Offset: 4096, Length: 512, UUID: "13bcf19d-9cbb-d799-c440-a62a7287116d", Name: "any:fast",
		Level: "raid0", Chunk: 512 << 10,
		Devices: 2, DataOffset: 2 * mib, DataSize: 22 * mib, ArraySize: 44 * mib,
	},
}

// compareOptions compare all fields that mdadm prints. storage/raid.TestCheckComplete covers the table of roles.
var compareOptions = cmp.Options{cmpopts.EquateErrors(), cmpopts.IgnoreUnexported(Superblock{})}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	return testenv.Data(t, "md/"+name)
}

// member is the content of a member with a superblock.
func member(superblock []byte, at int64) []byte {
	data := make([]byte, diskSize)
	copy(data[at:], superblock)
	return data
}

func find(t *testing.T, data []byte) []Superblock {
	t.Helper()
	found, err := Find(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestFindGoldens(t *testing.T) {
	for name, want := range goldens {
		data := member(golden(t, name), want.Offset)
		if diff := cmp.Diff([]Superblock{want}, find(t, data), compareOptions); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", name, diff)
		}
	}
}

// A version 0.90 superblock that a big-endian machine wrote is read as well.
func TestFindBigEndian(t *testing.T) {
	want := goldens["raid1-0.90"]
	data := golden(t, "raid1-0.90")
	for i := 0; i < len(data); i += 4 {
		binary.BigEndian.PutUint32(data[i:], binary.LittleEndian.Uint32(data[i:]))
	}
	if diff := cmp.Diff([]Superblock{want}, find(t, member(data, want.Offset)), compareOptions); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
}

// Old superblocks of other versions are returned as well.
func TestFindAll(t *testing.T) {
	data := make([]byte, diskSize)
	for _, name := range []string{"raid1-0.90", "raid1-1.0", "raid5-1.1", "raid1-1.2"} {
		copy(data[goldens[name].Offset:], golden(t, name))
	}
	var versions []string
	for _, s := range find(t, data) {
		versions = append(versions, s.Version)
	}
	if diff := cmp.Diff([]string{"0.90", "1.0", "1.1", "1.2"}, versions); diff != "" {
		t.Errorf("versions differ (-want +got):\n%s", diff)
	}
	if found := find(t, make([]byte, diskSize)); len(found) != 0 {
		t.Errorf("empty disk: got %v, want none", found)
	}
}

// A superblock that is not valid in every field is returned with the reason.
func TestFindInvalid(t *testing.T) {
	resum := func(b []byte) []byte {
		binary.LittleEndian.PutUint32(b[216:], checksum1(b[:header1+2*binary.LittleEndian.Uint32(b[220:])]))
		return b
	}
	resum0 := func(b []byte) []byte {
		binary.LittleEndian.PutUint32(b[152:], 0)
		var sum uint64
		for i := 0; i < len(b); i += 4 {
			sum += uint64(binary.LittleEndian.Uint32(b[i:]))
		}
		binary.LittleEndian.PutUint32(b[152:], fold(sum))
		return b
	}
	put := func(at int, value uint32) func([]byte) []byte {
		return func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b[at:], value)
			return resum(b)
		}
	}
	used := func(sectors uint64) func([]byte) []byte {
		return func(b []byte) []byte {
			binary.LittleEndian.PutUint64(b[80:], sectors)
			binary.LittleEndian.PutUint64(b[136:], sectors)
			return resum(b)
		}
	}
	put0 := func(at int, value uint32) func([]byte) []byte {
		return func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b[at:], value)
			return resum0(b)
		}
	}
	for name, tt := range map[string]struct {
		golden string
		change func([]byte) []byte
		want   string
	}{
		"magic only":           {"raid1-1.2", func(b []byte) []byte { return b[:4] }, "major version 0"},
		"one bit":              {"raid1-1.2", func(b []byte) []byte { b[40] ^= 1; return b }, "checksum"},
		"version":              {"raid1-1.2", put(4, 2), "major version 2"},
		"roles":                {"raid1-1.2", func(b []byte) []byte { b[222] = 1; return b }, "device roles"},
		"place":                {"raid1-1.2", put(144, 0), "sector 0, want 8"},
		"level":                {"raid1-1.2", put(72, 7), "level 7"},
		"no devices":           {"raid1-1.2", put(92, 0), "0 devices"},
		"one device of raid5":  {"raid5-1.1", put(92, 1), "1 devices"},
		"too many devices":     {"raid1-1.2", put(92, 5000), "5000 devices"},
		"more used than there": {"raid1-1.2", put(80, 48000), "sectors of data"},
		"no size": {
			"raid1-1.2", func(b []byte) []byte { clear(b[80:88]); clear(b[136:144]); return resum(b) },
			"sectors of data",
		},
		"beyond the end":      {"raid1-1.2", put(128, 47000), "bytes of data"},
		"over the superblock": {"raid1-1.2", put(128, 8), "bytes of data"},
		"overflow":            {"raid1-1.2", put(132, 1<<31), "sectors of data"},
		"overflow of used":    {"raid1-1.2", used(1 << 54), "sectors of data"},
		"1.0 behind itself":   {"raid1-1.0", put(128, 4096), "bytes of data"},
		"0.90: one bit":       {"raid1-0.90", func(b []byte) []byte { b[2000] ^= 1; return b }, "checksum"},
		"0.90: version":       {"raid1-0.90", put0(4, 1), "version 1.90"},
		"0.90: level":         {"raid1-0.90", put0(28, 7), "level 7"},
		"0.90: size":          {"raid1-0.90", put0(32, 24513+1024), "bytes of data"},
		"0.90: devices":       {"raid1-0.90", put0(40, 28), "28 devices"},
	} {
		found := find(t, member(tt.change(golden(t, tt.golden)), goldens[tt.golden].Offset))
		if len(found) != 1 || !errors.Is(found[0].Problem, ErrInvalid) ||
			!strings.Contains(found[0].Problem.Error(), tt.want) {
			t.Errorf("%s: got %+v, want one invalid superblock with %q", name, found, tt.want)
		}
	}
}

// The number, the role and the events of a member are its own.
func TestFindMember(t *testing.T) {
	for _, tt := range []struct {
		array testenv.RAID
		want  Superblock
	}{
		{testenv.RAID{}, Superblock{Number: 0, Role: 0, Events: 1}},
		{testenv.RAID{Member: 1, Events: 7}, Superblock{Number: 1, Role: 1, Events: 7}},
		{testenv.RAID{Member: 2, Spare: true, Events: 1<<64 - 1}, Superblock{Number: 2, Role: -1, Events: 1<<64 - 1}},
	} {
		tt.array.Level, tt.array.Size = 1, diskSize
		found := find(t, member(tt.array.Superblock(4096), 4096))
		if len(found) != 1 || found[0].Problem != nil {
			t.Fatalf("%+v: got %+v, want one valid superblock", tt.array, found)
		}
		got := Superblock{Number: found[0].Number, Role: found[0].Role, Events: found[0].Events}
		if got != tt.want {
			t.Errorf("%+v: got %+v, want %+v", tt.array, got, tt.want)
		}
	}
	// As in Linux, a member whose number is not in the table of roles is a spare.
	b := testenv.RAID{Level: 1, Size: diskSize}.Superblock(4096)
	binary.LittleEndian.PutUint32(b[160:], 2)
	binary.LittleEndian.PutUint32(b[216:], checksum1(b))
	if found := find(t, member(b, 4096)); len(found) != 1 || found[0].Problem != nil || found[0].Role != -1 {
		t.Errorf("number without a role: got %+v, want a valid superblock with role -1", found)
	}
}

// mdadm accepts the superblocks that other tests use, and prints the same values.
func TestExamine(t *testing.T) {
	testenv.Programs(t, "mdadm")
	testenv.Root(t)
	for at, level := range map[int64]int32{0: 5, 4096: 1, Offsets(diskSize)["1.0"]: 10} {
		array := testenv.RAID{Name: "tenant:data", Level: level, Devices: 3, Size: diskSize, Member: 1, Events: 5}
		path, data := filepath.Join(t.TempDir(), "disk"), member(array.Superblock(at), at)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := Find(bytes.NewReader(data), int64(len(data)))
		if err != nil || len(found) != 1 || found[0].Problem != nil || found[0].ShortName() != "data" ||
			found[0].Devices != 3 {
			t.Fatalf("byte %d: got %+v and %v, want a valid superblock", at, found, err)
		}
		out := testenv.Run(t, "mdadm", "--examine", path)
		for _, want := range []string{
			"Version : " + found[0].Version, "Raid Level : " + found[0].Level, "- correct", "Name : tenant:data",
			"Events : 5", "Device Role : Active device 1",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("byte %d: mdadm --examine lacks %q:\n%s", at, want, out)
			}
		}
	}
}

func TestFindNothing(t *testing.T) {
	for _, size := range []int64{0, 100, 4096, 8192, 65536} {
		if found, err := Find(bytes.NewReader(make([]byte, size)), size); err != nil || len(found) != 0 {
			t.Errorf("%d bytes: got %v and %v, want nothing", size, found, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for name, s := range goldens {
		f.Add(s.Version, golden(f, name), s.Offset, int64(diskSize))
	}
	f.Fuzz(func(t *testing.T, version string, data []byte, offset, size int64) {
		if size < 0 || offset < 0 || offset > size {
			return // no device has such a superblock
		}
		s, ok := parse(version, data, offset, size)
		if !ok || s.Problem != nil {
			return
		}
		if s.DataSize <= 0 || s.DataOffset < 0 || s.DataOffset > size-s.DataSize || s.ArraySize < 0 || s.Devices < 1 ||
			s.Level == "" {
			t.Errorf("got %+v as valid on %d bytes", s, size)
		}
	})
}
