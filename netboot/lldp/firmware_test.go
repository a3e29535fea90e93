package lldp

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// card makes the sysfs of a link with a driver and a PCI address, and optionally debugfs.
func card(t *testing.T, sys string, link, driver, address string) {
	t.Helper()
	device := filepath.Join(sys, "devices", address)
	for _, dir := range []string{
		device, filepath.Join(sys, "bus/pci/drivers", driver), filepath.Join(sys, "class/net", link),
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		filepath.Join(sys, "class/net", link, "device"): device,
		filepath.Join(device, "driver"):                 filepath.Join(sys, "bus/pci/drivers", driver),
	} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
}

// debugFile makes the command file of an i40e card and returns its path.
func debugFile(t *testing.T, sys string, address string) string {
	t.Helper()
	file := filepath.Join(sys, "kernel/debug/i40e", address, "command")
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

// fakeFlags are the private flags of links by "link flag". They record the flags that were set.
type fakeFlags struct {
	flags map[string]bool
	fails error // of set
	calls []string

	mounted  []string
	mountErr error
	ports    []string // whose command files exist once debugfs is mounted
	t        *testing.T
	sys      string
}

func (f *fakeFlags) mountDebug(dir string) error {
	f.mounted = append(f.mounted, dir)
	for _, port := range f.ports {
		debugFile(f.t, f.sys, port)
	}
	return f.mountErr
}

func (f *fakeFlags) get(link string) (map[string]bool, error) {
	flags := map[string]bool{}
	for name, value := range f.flags {
		if flag, ok := strings.CutPrefix(name, link+" "); ok {
			flags[flag] = value
		}
	}
	return flags, nil
}

func (f *fakeFlags) set(link, flag string, value bool) error {
	if f.fails != nil {
		return f.fails
	}
	f.flags[link+" "+flag] = value
	f.calls = append(f.calls, fmt.Sprintf("%s %s=%v", link, flag, value))
	return nil
}

// took returns the flags that were set since its last call.
func (f *fakeFlags) took() []string {
	calls := f.calls
	f.calls = nil
	return calls
}

// The agents of X710 and E810 ports are disabled and enabled by private flags, without debugfs. Agents that were
// already disabled and ports of other cards are not changed. Agents of E810 cards, which stay disabled over a power
// cycle, can be restored before the others.
//
// Parity: F6
func TestFirmwareByPrivateFlags(t *testing.T) {
	sys := t.TempDir()
	for link, driver := range map[string]string{
		"eno1": "i40e", "eno2": "i40e", "eno3": "igb", "ens1": "ice", "ens2": "ice", "late": "ice",
	} {
		card(t, sys, link, driver, "0000:18:00."+link)
	}
	debugfs := debugFile(t, sys, "0000:18:00.eno1")
	flags := &fakeFlags{flags: map[string]bool{
		"eno1 disable-fw-lldp": false, "eno2 disable-fw-lldp": true, "eno3 disable-fw-lldp": false,
		"eno3 fw-lldp-agent": true, "ens1 fw-lldp-agent": true, "ens1 link-down-on-close": true,
		"ens2 fw-lldp-agent": false, "late fw-lldp-agent": true,
	}}
	before := maps.Clone(flags.flags)
	f := &Firmware{Sys: sys, kernel: flags}
	stop := func(links ...string) {
		t.Helper()
		for _, link := range links {
			if err := f.Stop(link); err != nil {
				t.Errorf("%s: %v", link, err)
			}
		}
	}
	expect := func(when string, err error, want ...string) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if diff := cmp.Diff(want, flags.took()); diff != "" {
			t.Errorf("%s: flags differ (-want +got):\n%s", when, diff)
		}
	}
	stop("eno1", "eno2", "eno3", "ens1", "ens2", "lo", "eno1", "ens1")
	expect("stop", nil, "eno1 disable-fw-lldp=true", "ens1 fw-lldp-agent=false")
	expect("restore what is persistent", f.RestorePersistent(), "ens1 fw-lldp-agent=true")
	stop("late", "eno1")
	expect("stop after that", nil)
	expect("restore", f.Restore(), "eno1 disable-fw-lldp=false")
	if diff := cmp.Diff(before, flags.flags); diff != "" {
		t.Errorf("flags at the end differ from those before (-want +got):\n%s", diff)
	}
	stop("eno1", "late")
	expect("stop after the end", nil)
	expect("restore again", f.Restore())
	if got := content(t, debugfs); got != "" {
		t.Errorf("debugfs: got %q written, want nothing", got)
	}
}

// If the card or the kernel has no private flag for it, the agent of an X710 port is disabled and enabled by debugfs,
// which is mounted if necessary. An E810 port has only the flag.
func TestFirmwareByDebugfs(t *testing.T) {
	sys := t.TempDir()
	card(t, sys, "eno1", "i40e", "0000:18:00.0")
	card(t, sys, "eno2", "i40e", "0000:18:00.1")
	card(t, sys, "ens1", "ice", "0000:3b:00.0")
	flags := &fakeFlags{
		flags: map[string]bool{"eno2 disable-fw-lldp": false}, fails: unix.EOPNOTSUPP,
		ports: []string{"0000:18:00.0", "0000:18:00.1"}, t: t, sys: sys,
	}
	f := &Firmware{Sys: sys, kernel: flags}
	for _, link := range []string{"eno1", "eno2"} {
		if err := f.Stop(link); err != nil {
			t.Errorf("%s: %v", link, err)
		}
	}
	if err := f.Stop("ens1"); err == nil ||
		!strings.Contains(err.Error(), "ens1 (driver ice): driver has no private flag fw-lldp-agent") {
		t.Errorf("ens1: got %v, want the link, its driver and the flag", err)
	}
	commands := []string{
		filepath.Join(sys, "kernel/debug/i40e/0000:18:00.0/command"),
		filepath.Join(sys, "kernel/debug/i40e/0000:18:00.1/command"),
	}
	for _, command := range commands {
		if got := content(t, command); got != "lldp stop" {
			t.Errorf("%s: got %q, want the agent stopped", command, got)
		}
		if err := os.Truncate(command, 0); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{filepath.Join(sys, "kernel/debug")}, flags.mounted); diff != "" {
		t.Errorf("mounts differ (-want +got):\n%s", diff)
	}
	if err := f.RestorePersistent(); err != nil || content(t, commands[0]) != "" {
		t.Errorf("restore what is persistent: got %v and %q, want nothing done", err, content(t, commands[0]))
	}
	if err := f.Restore(); err != nil {
		t.Error(err)
	}
	for _, command := range commands {
		if got := content(t, command); got != "lldp start" {
			t.Errorf("%s: got %q, want the agent started", command, got)
		}
	}
}

// If an agent cannot be disabled or enabled, the error contains every reason, and the next call retries.
func TestFirmwareErrors(t *testing.T) {
	sys := t.TempDir()
	card(t, sys, "eno1", "i40e", "0000:18:00.0")
	card(t, sys, "ens1", "ice", "0000:3b:00.0")
	locked, refused := errors.New("locked down"), errors.New("refused")
	flags := &fakeFlags{
		flags: map[string]bool{"eno1 disable-fw-lldp": false, "ens1 fw-lldp-agent": true}, fails: refused,
		mountErr: locked,
	}
	f := &Firmware{Sys: sys, kernel: flags}
	if err := f.Stop("eno1"); !errors.Is(err, locked) || !errors.Is(err, refused) ||
		!strings.Contains(err.Error(), "eno1 (driver i40e)") {
		t.Errorf("got %v, want both reasons and the link", err)
	}
	flags.fails = nil
	if err := f.Stop("ens1"); err != nil {
		t.Fatal(err)
	}
	flags.fails = refused
	if err := f.RestorePersistent(); !errors.Is(err, refused) || !strings.Contains(err.Error(), "ens1 (driver ice)") {
		t.Errorf("got %v, want %v and the link", err, refused)
	}
	flags.fails = nil
	if err := f.Restore(); err != nil || !flags.flags["ens1 fw-lldp-agent"] {
		t.Errorf("second try: got %v and the agent on %v, want it on", err, flags.flags["ens1 fw-lldp-agent"])
	}
}
