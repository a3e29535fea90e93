package lldp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/storage/block"
)

// card makes the sysfs of a link with a driver and a PCI address; debugfs, when it is to be there, too.
func card(t *testing.T, sys block.System, link, driver, address string) {
	t.Helper()
	device := sys.Sys("devices", address)
	for _, dir := range []string{device, sys.Sys("bus/pci/drivers", driver), sys.Sys("class/net", link)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		sys.Sys("class/net", link, "device"): device,
		filepath.Join(device, "driver"):      sys.Sys("bus/pci/drivers", driver),
	} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
}

// debugFile makes the command file of an i40e card and returns its path.
func debugFile(t *testing.T, sys block.System, address string) string {
	t.Helper()
	file := sys.Sys("kernel/debug/i40e", address, "command")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func content(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each X710 port gets its command and nobody else one; debugfs is mounted when it is missing, and only then.
//
// Parity: F6
func TestStopFirmwareOfI40e(t *testing.T) {
	sys := block.System{Root: t.TempDir()}
	card(t, sys, "eno1", "i40e", "0000:18:00.0")
	card(t, sys, "eno2", "i40e", "0000:18:00.1")
	card(t, sys, "eno3", "igb", "0000:19:00.0")
	first, other := debugFile(t, sys, "0000:18:00.0"), debugFile(t, sys, "0000:19:00.0")
	var second string
	var mounted []string
	f := Firmware{
		System: sys,
		mount: func(dir string) error {
			mounted = append(mounted, dir)
			second = debugFile(t, sys, "0000:18:00.1")
			return nil
		},
		setFlag: func(link, flag string, _ bool) error { return fmt.Errorf("flag %s of %s", flag, link) },
	}
	for _, link := range []string{"eno1", "eno2", "eno3", "lo"} {
		if err := f.Stop(link); err != nil {
			t.Errorf("%s: %v", link, err)
		}
	}
	for file, want := range map[string]string{first: "lldp stop", second: "lldp stop", other: ""} {
		if got := content(t, file); got != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
	if diff := cmp.Diff([]string{sys.Sys("kernel/debug")}, mounted); diff != "" {
		t.Errorf("mounts differ (-want +got):\n%s", diff)
	}
}

// Where debugfs is not to be had the private flag does it; an E810 port has nothing but its own flag.
func TestStopFirmwareByFlag(t *testing.T) {
	sys := block.System{Root: t.TempDir()}
	card(t, sys, "eno1", "i40e", "0000:18:00.0")
	card(t, sys, "ens1", "ice", "0000:3b:00.0")
	locked, refused := errors.New("locked down"), errors.New("refused")
	var flags []string
	f := Firmware{System: sys, mount: func(string) error { return locked }, setFlag: func(link, flag string, value bool) error {
		flags = append(flags, fmt.Sprintf("%s %s %v", link, flag, value))
		return nil
	}}
	for _, link := range []string{"eno1", "ens1"} {
		if err := f.Stop(link); err != nil {
			t.Errorf("%s: %v", link, err)
		}
	}
	if diff := cmp.Diff([]string{"eno1 disable-fw-lldp true", "ens1 fw-lldp-agent false"}, flags); diff != "" {
		t.Errorf("flags differ (-want +got):\n%s", diff)
	}
	f.setFlag = func(string, string, bool) error { return refused }
	if err := f.Stop("eno1"); !errors.Is(err, locked) || !errors.Is(err, refused) || !strings.Contains(err.Error(), "eno1 (driver i40e)") {
		t.Errorf("got %v, want both reasons and the link", err)
	}
	if err := f.Stop("ens1"); !errors.Is(err, refused) {
		t.Errorf("got %v, want %v", err, refused)
	}
}
