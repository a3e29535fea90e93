package hint

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/storage/block"
)

// The two disks of the golden results.
var disks = []block.Device{
	{
		Name: "sda", Path: "/dev/sda", Size: 465<<30 + 123456, Model: "FAKE HDD X1", Vendor: "ATA", Serial: "12345",
		WWN: "0x5000c500a1b2c3d4", WWNWithExtension: "0x5000c500a1b2c3d4", Rotational: true, HCTL: "0:0:0:0",
		ByPath: "/dev/disk/by-path/pci-0000:00:1f.2-ata-1", Transport: "sata",
	},
	{
		Name: "sdb", Path: "/dev/sdb", Size: 60 << 30, Model: "Other/disk", HCTL: "1:0:0:0", Transport: "nvme",
		Serials: []string{"S2", "", "s2-long"},
	},
}

// The results in golden.json come from the Python implementation (ironic-lib 5.3.0 with oslo.utils 6.0.1; "tran"
// added to its table).
//
// Parity: J1
func TestGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Hints map[string]any
		Match string
		Error bool
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 40 {
		t.Fatalf("got %d cases, want 40 at least", len(cases))
	}
	for _, c := range cases {
		name, _ := json.Marshal(c.Hints)
		t.Run(string(name), func(t *testing.T) {
			hints, err := Parse(c.Hints)
			var found []block.Device
			if err == nil {
				found, err = Find(hints, disks)
			}
			if c.Error != (err != nil) {
				t.Fatalf("got error %v, want one: %v", err, c.Error)
			}
			got := ""
			for _, d := range found {
				got += map[string]string{"sda": "A", "sdb": "B"}[d.Name]
			}
			if got != c.Match {
				t.Errorf("got %q, want %q", got, c.Match)
			}
		})
	}
}

// Parity: J1
func TestLists(t *testing.T) {
	cases := []struct {
		name, value, want string
	}{
		{"serial", "s2", "sdb"},
		{"serial", "s2-LONG", "sdb"}, // any item of the list; unknown ones are skipped
		{"serial", "none", ""},
		{"wwn", "none", ""}, // a list of unknown values matches nothing
		{"wwn", "0x5000C500A1B2C3D4", "sda"},
	}
	for _, c := range cases {
		hints, err := Parse(map[string]any{c.name: c.value})
		if err != nil {
			t.Fatal(err)
		}
		found, err := Find(hints, disks)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, d := range found {
			got += d.Name
		}
		if got != c.want {
			t.Errorf("%s %q: got %q, want %q", c.name, c.value, got, c.want)
		}
	}
}

// A hint names a disk if it has one of the disk's own values in full, and matches no other disk.
func TestNamesOnly(t *testing.T) {
	twin := disks[0]
	twin.Name, twin.Path = "sdc", "/dev/sdc"
	for _, c := range []struct {
		name, value string
		others      []block.Device
		want        string
	}{
		{"serial", "12345", nil, "sda"},
		{"serial", "== 12345", nil, ""}, // cannot be compared with the serial number of the other disk
		{"serial", "S2-long", nil, "sdb"},
		{"serial", "s== s2", nil, "sdb"},
		{"serial", "<or> S2 <or> S3", nil, "sdb"},
		{"serial", "<or> 12345 <or> S2", nil, ""},
		{"serial", "<in> 234", nil, ""},
		{"serial", "s!= S2", nil, ""},
		{"serial", "12345", []block.Device{twin}, ""},
		{"wwn", "0x5000C500A1B2C3D4", nil, "sda"},
		{"wwn", "0x5000c500a1b2c3d4", []block.Device{twin}, ""},
		{"wwn_with_extension", "0x5000c500a1b2c3d4", nil, "sda"},
		{"wwn_with_extension", "none", nil, ""}, // matches sdb only, which has none
		{"wwn_vendor_extension", "none", nil, ""},
		{"name", "/dev/sdb", nil, "sdb"},
		{"name", "s> /dev/sda", nil, ""},
		{"by_path", "/dev/disk/by-path/pci-0000:00:1f.2-ata-1", nil, "sda"},
		{"by_path", "none", nil, ""},
		{"model", "Other/disk", nil, ""},
		{"hctl", "1:0:0:0", nil, ""},
		{"size", "60", nil, ""},
	} {
		devices := append(slices.Clone(disks), c.others...)
		hints, err := Parse(map[string]any{c.name: c.value})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, d := range devices {
			if hints.NamesOnly(d, devices) {
				got += d.Name
			}
		}
		if got != c.want {
			t.Errorf("%s %q with %d disks: got %q, want %q", c.name, c.value, len(devices), got, c.want)
		}
	}
	hints, err := Parse(map[string]any{"size": ">= 1", "serial": "12345", "name": "<in> sd"})
	if err != nil || !hints.NamesOnly(disks[0], disks) || hints.NamesOnly(disks[1], disks) {
		t.Errorf("several hints (%v): got %v for the disk and %v for the other, want true and false", err,
			hints.NamesOnly(disks[0], disks), hints.NamesOnly(disks[1], disks))
	}
	if Hints(nil).NamesOnly(disks[0], disks[:1]) {
		t.Error("got the only disk as named without hints")
	}
}

func TestParseNamesEveryProblem(t *testing.T) {
	_, err := Parse(map[string]any{"size": -1, "colour": "red", "model": ""})
	for _, want := range []string{"size", "colour", "model"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q named", err, want)
		}
	}
}

// Invalid values are errors: without the hint, another disk could be selected.
func TestBadValues(t *testing.T) {
	for _, c := range []struct {
		name  string
		value any
		want  string
	}{
		{"size", true, "is neither a number nor a string: true"},
		{"size", 60.5, "60.5"},
		{"size", 0.5, "0.5"},
		{"model", 5, "is not a string: 5"},
		{"serial", nil, "is not a string"},
		{"rotational", "maybe", "maybe"},
	} {
		got, err := Parse(map[string]any{c.name: c.value})
		if err == nil || got != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v: got %v, %v, want an error with %q", c.name, c.value, got, err, c.want)
		}
	}
	for _, value := range []any{60, int64(60), 60.0, json.Number("60"), "60", "<= 60 <= many"} {
		hints, err := Parse(map[string]any{"size": value})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := Find(hints, disks); err != nil || len(found) != 1 || found[0].Name != "sdb" {
			t.Errorf("size %v (%T): got %v, %v, want sdb", value, value, found, err)
		}
	}
	if _, err := Find(Hints{"model": 5}, disks); err == nil ||
		!strings.Contains(err.Error(), "was not made by Parse: 5") {
		t.Errorf("hints that were not parsed: got %v, want an error", err)
	}
}

// Problems are listed in the order of the hints' names.
func TestProblemsAreSorted(t *testing.T) {
	raw, want := map[string]any{}, ""
	for _, name := range strings.Split("abcdefghij", "") {
		raw[name] = "x"
		want += name
	}
	_, err := Parse(raw)
	got := ""
	for line := range strings.Lines(err.Error()) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, `device hint "`), `"`)
		got += name
	}
	if got != want {
		t.Errorf("got the problems in the order %q, want %q", got, want)
	}
}

func TestCompareNumbers(t *testing.T) {
	for _, c := range []struct {
		op   string
		want string // for 1, 2 and 3 compared with 2
	}{{"=", "ftt"}, {">=", "ftt"}, {"==", "ftf"}, {"!=", "tft"}, {"<=", "ttf"}, {">", "fft"}, {"<", "tff"}} {
		got := ""
		for _, number := range []float64{1, 2, 3} {
			is, err := compareNumbers(c.op, number, "2")
			if err != nil {
				t.Fatal(err)
			}
			got += map[bool]string{true: "t", false: "f"}[is]
		}
		if got != c.want {
			t.Errorf("operator %s: got %s, want %s", c.op, got, c.want)
		}
	}
	for op, text := range map[string]string{"=": "two", "~": "2"} {
		if _, err := compareNumbers(op, 1, text); err == nil || !strings.Contains(err.Error(), op) {
			t.Errorf("operator %s and %q: got %v, want an error that names the operator", op, text, err)
		}
	}
}

func TestRootDisk(t *testing.T) {
	disk := func(name string, size int64) block.Device {
		return block.Device{Name: name, Path: "/dev/" + name, Size: size}
	}
	small, edge := disk("sda", minRootSize-1), disk("sdd", minRootSize)
	twin, big := disk("sdc", minRootSize), disk("sdb", 1<<40)
	cases := []struct {
		name    string
		hints   map[string]any
		devices []block.Device
		want    string
	}{
		{"smallest from 4 GiB, then name", nil, []block.Device{big, edge, small, twin}, "sdc"},
		{"exactly 4 GiB is enough", nil, []block.Device{small, edge}, "sdd"},
		{"none is large enough", nil, []block.Device{small}, ""},
		{"no disk", nil, nil, ""},
		{"hints take the first in listing order", map[string]any{"size": ">= 1"}, []block.Device{big, edge}, "sdb"},
		{"hints may choose a small disk", map[string]any{"name": "/dev/sda"}, []block.Device{big, small}, "sda"},
		{"hints match nothing", map[string]any{"name": "/dev/sdx"}, []block.Device{big}, ""},
		{"hints that cannot be compared", map[string]any{"name": "> 5"}, []block.Device{big}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			hints, err := Parse(c.hints)
			if err != nil {
				t.Fatal(err)
			}
			got, err := RootDisk(hints, c.devices)
			if c.want == "" && !errors.Is(err, ErrNoDisk) {
				t.Fatalf("got %v and error %v, want ErrNoDisk", got.Name, err)
			}
			if c.want != "" && err != nil {
				t.Fatal(err)
			}
			if got.Name != c.want {
				t.Errorf("got %q, want %q", got.Name, c.want)
			}
		})
	}
}

// Error texts show each disk's own values for the hints that it does not match.
func TestErrorTexts(t *testing.T) {
	edge := block.Device{Name: "sdc", Path: "/dev/sdc", Size: minRootSize - 1}
	cases := []struct {
		hints   map[string]any
		devices []block.Device
		want    string
	}{
		{nil, nil, "no suitable disk: no disks were found"},
		{map[string]any{"model": "x"}, nil, "no suitable disk: no disks were found to match the hints {model: s== x}"},
		{
			nil,
			[]block.Device{edge, {Path: "/dev/sdd", Size: 4096}, {Path: "/dev/sde", Size: 3 << 30}},
			"no suitable disk: none of /dev/sdc (3.99 GiB), /dev/sdd (4096 bytes), /dev/sde (3 GiB) has 4 GiB or more",
		},
		{
			map[string]any{"model": "Great Disk/2", "size": "> 900"},
			disks,
			`no suitable disk: no disk matches the hints {model: s== great disk/2, size: > 900}: ` +
				`/dev/sda has model "FAKE HDD X1", size 465 GiB and 123456 bytes; ` +
				`/dev/sdb has model "Other/disk", size 60 GiB`,
		},
		{
			map[string]any{"vendor": "<or> a b <or> c:d"},
			disks[:1],
			`no suitable disk: no disk matches the hints {vendor: <or> a b <or> c:d}: /dev/sda has vendor "ATA"`,
		},
		{
			map[string]any{"size": "465", "rotational": "yes", "serial": "a"},
			[]block.Device{
				{Path: "/dev/sda", Size: 465<<30 + 512, Serial: "b", Serials: []string{"c"}, Rotational: true},
				{Path: "/dev/sdb", Size: 465 << 30},
			},
			`no suitable disk: no disk matches the hints {rotational: true, serial: s== a, size: == 465}: ` +
				`/dev/sda has serial "c" or "b", size 465 GiB and 512 bytes; ` +
				`/dev/sdb has rotational false, serial none`,
		},
		{
			map[string]any{"model": "> 5"},
			disks[:1],
			`no suitable disk: device hint "model" on /dev/sda: operator > needs a number, the disk has "FAKE HDD X1"`,
		},
		{
			map[string]any{"serial": ">= two words"},
			disks[:1],
			`no suitable disk: device hint "serial" on /dev/sda: operator >= needs a number, the hint has "two words"`,
		},
	}
	for _, c := range cases {
		hints, err := Parse(c.hints)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := RootDisk(hints, c.devices); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

func TestEncode(t *testing.T) {
	got := encode("  A b/ü<_.-~ ")
	if diff := cmp.Diff("a%20b/%C3%BC%3C_.-~", got); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"<or> a <or> b", ">= 60", "s== x", "<", "<in> \xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range []string{"model", "size", "serial"} {
			hints, err := Parse(map[string]any{name: text})
			if err != nil {
				continue
			}
			if _, err := Find(hints, disks); err != nil && !strings.Contains(err.Error(), name) {
				t.Errorf("the error does not name the hint: %v", err)
			}
		}
	})
}
