package kmod

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// pciDevice makes a device in the sysfs of a test; driver may be "".
func pciDevice(t *testing.T, sys, address, class, id, driver string) {
	t.Helper()
	dir := filepath.Join(sys, "bus", "pci", "devices", address)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	vendor, device, _ := strings.Cut(id, ":")
	for name, content := range map[string]string{
		"class": class, "vendor": "0x" + vendor, "device": "0x" + device, "modalias": "pci:" + vendor + device,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if driver != "" {
		if err := os.Symlink("../../drivers/"+driver, filepath.Join(dir, "driver")); err != nil {
			t.Fatal(err)
		}
	}
}

// writeOthers adds the index of other drivers to a directory of modules.
func writeOthers(t *testing.T, dir string, modules ...*Module) {
	t.Helper()
	var text bytes.Buffer
	if err := Write(&text, modules); err != nil {
		t.Fatal(err)
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, OthersFile), encoder.EncodeAll(text.Bytes(), nil), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestAdapters(t *testing.T) {
	chosen := []*Module{
		{Name: "bnx2x", Aliases: []string{"pci:14e4*"}}, {Name: "mlx5_core", Aliases: []string{"pci:15b3*"}},
	}
	tulip := &Module{Name: "tulip", Dir: "drivers/net/ethernet/dec/tulip", Aliases: []string{"pci:1011*"}}
	qib := &Module{Name: "ib_qib", Dir: "drivers/infiniband/hw/qib", Aliases: []string{"pci:1077*"}}
	sys := t.TempDir()
	pciDevice(t, sys, "0000:00:01.0", "0x020000", "14e4:164e", "bnx2x") // in use
	pciDevice(t, sys, "0000:00:02.0", "0x010000", "1011:0001", "")      // no network adapter
	pciDevice(t, sys, "0000:00:03.0", "0x020000", "1011:0019", "")
	pciDevice(t, sys, "0000:00:04.0", "0x020000", "14e4:164f", "")
	pciDevice(t, sys, "0000:00:05.0", "0x028000", "1ae0:0042", "")
	pciDevice(t, sys, "0000:3b:00.0", "0x020700", "15b3:1017", "mlx5_core")
	pciDevice(t, sys, "0000:3c:00.0", "0x0c0600", "1077:7322", "")
	want := []Adapter{
		{Address: "0000:00:03.0", ID: "1011:0019", Missing: []string{"tulip"}},
		{Address: "0000:00:04.0", ID: "14e4:164f", Present: []string{"bnx2x"}},
		{Address: "0000:00:05.0", ID: "1ae0:0042"},
		{Address: "0000:3b:00.0", ID: "15b3:1017", Missing: []string{"ib_ipoib"}, InfiniBand: true},
		{Address: "0000:3c:00.0", ID: "1077:7322", Missing: []string{"ib_qib", "ib_ipoib"}, InfiniBand: true},
	}
	check := func(name string, l *Loader, want []Adapter) {
		t.Helper()
		got, err := l.Adapters(sys)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, adapters (-want +got):\n%s", name, err, diff)
		}
	}
	l := tree(t, &kernel{}, "", chosen...)
	writeOthers(t, l.o.Dir, tulip, qib)
	check("server", l, want)

	l = tree(t, &kernel{}, "", append(chosen, &Module{Name: "ib_ipoib"})...)
	writeOthers(t, l.o.Dir, tulip, qib)
	want[4].Missing = []string{"ib_qib"}
	check("server and infiniband", l, append(want[:3:3], want[4]))

	l = None(nil)
	if got, err := l.Adapters(sys); err != nil || len(got) != 5 || got[0].Missing != nil {
		t.Errorf("without modules: got %+v, %v, want five adapters of unknown modules", got, err)
	}
	if got, err := l.Adapters(t.TempDir()); got != nil || err != nil {
		t.Errorf("without PCI: got %+v, %v, want none", got, err)
	}
}

// A broken index of other drivers is an error that names it.
func TestAdaptersBrokenIndex(t *testing.T) {
	l := tree(t, &kernel{}, "")
	if err := os.WriteFile(filepath.Join(l.o.Dir, OthersFile), []byte("no index"), 0o644); err != nil {
		t.Fatal(err)
	}
	sys := t.TempDir()
	pciDevice(t, sys, "0000:00:03.0", "0x020000", "1011:0019", "")
	if got, err := l.Adapters(sys); err == nil || !strings.Contains(err.Error(), OthersFile) {
		t.Errorf("got %+v, %v, want an error that names %s", got, err, OthersFile)
	}
}

func TestOther(t *testing.T) {
	for want, m := range map[bool]*Module{
		true:  {Name: "tulip", Dir: "drivers/net/ethernet/dec/tulip", Aliases: []string{"pci:v1011*", "platform:x"}},
		false: {Name: "usbnet", Dir: "drivers/net/usb", Aliases: []string{"usb:v1*"}},
	} {
		if got := IsOther(m); got != want {
			t.Errorf("%s: got %v, want %v", m.Name, got, want)
		}
	}
	if IsOther(&Module{Name: "ahci", Dir: "drivers/ata", Aliases: []string{"pci:v1*"}}) {
		t.Error("ahci belongs in the index of network adapters' drivers, want it left out")
	}
	got := Other(&Module{
		Name: "a", Dir: "drivers/net", Aliases: []string{"pci:b", "of:c", "pci:d"}, Depends: []string{"e"},
	})
	if diff := cmp.Diff(&Module{Name: "a", Dir: "drivers/net", Aliases: []string{"pci:b", "pci:d"}}, got); diff != "" {
		t.Error(diff)
	}
}
