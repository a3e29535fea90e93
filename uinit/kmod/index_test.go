package kmod

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/uevent"
)

var sample = []*Module{
	{
		Name: "e1000e", Size: 300000, Dir: "drivers/net/ethernet/intel/e1000e", Depends: []string{"ptp"},
		Aliases: []string{"pci:v00008086d000010D3sv*sd*bc*sc*i*"},
	},
	{Name: "ptp", Size: 30000, Dir: "drivers/ptp"},
	{Name: "ahci", Size: 40000, Dir: "drivers/ata", Aliases: []string{"pci:v*d*sv*sd*bc01sc06i01*"}},
	{
		Name: "vfat", Size: 20000, Dir: "fs/fat", Depends: []string{"fat"}, Pre: []string{"nls_cp437"},
		Post: []string{"extra"}, Aliases: []string{"fs-vfat"},
	},
	{Name: "raid1", Size: 9, Dir: "drivers/md", Aliases: []string{"md-level-1", "md-raid1"}},
}

func TestIndexRoundTrip(t *testing.T) {
	var text bytes.Buffer
	if err := Write(&text, sample); err != nil {
		t.Fatal(err)
	}
	x, err := Parse(text.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range sample {
		if diff := cmp.Diff(want, x.Module(want.Name)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestMatch(t *testing.T) {
	x := NewIndex(sample)
	for alias, want := range map[string]string{
		"pci:v00008086d000010D3sv00001AF4sd00001100bc02sc00i00": "e1000e",
		"pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01": "ahci",
		"pci:v00008086d00002918sv00001AF4sd00001100bc06sc01i00": "",
		"fs-vfat":    "vfat",
		"md-level-1": "raid1",
		"raid1":      "raid1",
		"md-level-5": "",
		"":           "",
	} {
		var got []string
		for _, m := range x.Match(alias) {
			got = append(got, m.Name)
		}
		if strings.Join(got, ",") != want {
			t.Errorf("%s: got %v, want %q", alias, got, want)
		}
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true},
		{"*", "", true},
		{"a*", "abc", true},
		{"a*c", "abcbc", true},
		{"a*d", "abcbc", false},
		{"a?c", "abc", true},
		{"a?c", "ac", false},
		{"v[0-9A-F]*", "vB1", true},
		{"v[0-9]", "vB", false},
		{"v[!0-9]", "vB", true},
		{"dmi:*:svnDell*:", "dmi:bvn1/2:svnDell Inc.:", true},
		{"a\\*b", "a*b", true},
		{"a\\*b", "axb", false},
		{"[", "[", true},
	} {
		if got := Glob(c.pattern, c.s); got != c.want {
			t.Errorf("Glob(%q, %q): got %v, want %v", c.pattern, c.s, got, c.want)
		}
	}
}

func TestNetworkComesFirst(t *testing.T) {
	for dir, want := range map[string]bool{
		"drivers/net/ethernet/intel/e1000e": true, "drivers/virtio": true, "drivers/net": true,
		"drivers/netx": false, "drivers/scsi": false, "fs/fat": false,
	} {
		if got := (&Module{Dir: dir}).Network(); got != want {
			t.Errorf("%s: got %v, want %v", dir, got, want)
		}
	}
}

func TestParseModinfo(t *testing.T) {
	data := "license=GPL\x00alias=pci:v1d2*\x00alias=fs-x\x00depends=ptp,i2c-algo-bit\x00softdep=pre: a-b c post: " +
		"d\x00firmware=x/y.bin\x00name=my-mod\x00vermagic=6.1.0-56-amd64 SMP preempt\x00"
	want := &Module{
		Name: "my_mod", Size: 5, Depends: []string{"ptp", "i2c_algo_bit"}, Pre: []string{"a_b", "c"},
		Post:    []string{"d"},
		Aliases: []string{"pci:v1d2*", "fs-x"}, Firmware: []string{"x/y.bin"}, Release: "6.1.0-56-amd64",
	}
	if diff := cmp.Diff(want, parseModinfo([]byte(data), 5)); diff != "" {
		t.Error(diff)
	}
}

// Added devices request modules by their modalias in sysfs, whatever a message says: any program with CAP_SYS_ADMIN can
// send it. No device requests the module that makes a network interface of an InfiniBand port.
func TestRequested(t *testing.T) {
	sys := t.TempDir()
	for name, text := range map[string]string{
		"devices/pci0/virtio1/uevent": "DRIVER=virtio_net\nMODALIAS=virtio:d00000001v00001AF4\n",
		"devices/pci0/ib0/uevent":     "NAME=mlx5_0\n",
		"devices/pci0/verbs0/uevent":  "MAJOR=231\n",
	} {
		path := filepath.Join(sys, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"ib0": "infiniband", "verbs0": "infiniband_verbs"} {
		link := filepath.Join(sys, "devices/pci0", name, "subsystem")
		if err := os.Symlink("../../../class/"+target, link); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(filepath.Dir(sys), "outside")
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "uevent"), []byte("MODALIAS=pci:forged\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Coldplug{sys: sys}
	const message = "\x00SUBSYSTEM=infiniband\x00MODALIAS=pci:forged\x00DEVPATH="
	for text, want := range map[string]string{
		"ACTION=add" + message + "/devices/pci0/virtio1\x00":    "virtio:d00000001v00001AF4",
		"ACTION=add" + message + "/devices/pci0/ib0\x00":        "ib_ipoib",
		"ACTION=add" + message + "/devices/pci0/verbs0\x00":     "",
		"ACTION=add" + message + "/devices/pci0/removed\x00":    "",
		"ACTION=add" + message + "/../outside\x00":              "",
		"ACTION=add" + message + "\x00":                         "",
		"ACTION=change" + message + "/devices/pci0/virtio1\x00": "",
		"ACTION=remove" + message + "/devices/pci0/ib0\x00":     "",
	} {
		if got := c.requested(uevent.Parse([]byte(text))); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	var text bytes.Buffer
	_ = Write(&text, sample)
	f.Add(text.String())
	f.Add(indexMagic + "\na x\n")
	f.Fuzz(func(t *testing.T, text string) {
		if x, err := Parse(text); err == nil {
			x.Match("pci:v00008086d000010D3sv*")
		}
	})
}

func FuzzModinfo(f *testing.F) {
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := Modinfo(bytes.NewReader(data), int64(len(data))); err == nil && m == nil {
			t.Error("neither module nor error")
		}
	})
}

// FuzzGlob compares with path.Match, which knows the same patterns but lets no "*" match a "/".
func FuzzGlob(f *testing.F) {
	f.Add("a*b?c", "axxbyc")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if strings.ContainsAny(pattern+s, "/[]\\!^-") || strings.ToValidUTF8(pattern+s, "") != pattern+s ||
			len(pattern+s) != len([]rune(pattern+s)) {
			return
		}
		want, err := path.Match(pattern, s)
		if err == nil && Glob(pattern, s) != want {
			t.Errorf("Glob(%q, %q): got %v, want %v", pattern, s, !want, want)
		}
	})
}

// The index separates the names of a delta by a space.
func TestWriteFirmwareNames(t *testing.T) {
	for _, d := range []Delta{{"a b", "c"}, {"a", "b c"}, {"a\nf b", "c"}} {
		var text strings.Builder
		if err := Write(&text, []*Module{{Name: "card", Deltas: []Delta{d}}}); err == nil {
			t.Errorf("%q: got index %q and no error", d, text.String())
		}
	}
}
