package pxe

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ironroot/netboot/server"
)

// Options that would only be noticed when a machine boots are errors, without the kernel parameters.
func TestOptions(t *testing.T) {
	mac := func(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }
	good := func() Options {
		return Options{
			Systems:  map[string]System{"amd64": {Kernel: "k", Initramfs: "i", Cmdline: "quiet"}},
			Loaders:  map[string][]byte{"undionly.kpxe": {1}, "snponly.efi": {2}},
			Machines: []Machine{{MAC: mac(1)}, {MAC: mac(2)}},
			Addresses: &Addresses{
				First: netip.MustParseAddr("192.0.2.10"), Last: netip.MustParseAddr("192.0.2.11"),
			},
		}
	}
	if err := good().check(); err != nil {
		t.Fatal(err)
	}
	parameters := func(text string) func(*Options) {
		return func(o *Options) { o.Machines[1].Parameters = "secret" + text }
	}
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no kernel":    {func(o *Options) { o.Systems = nil }, "no kernel to boot"},
		"architecture": {func(o *Options) { o.Systems["mips"] = System{} }, `"mips": want amd64 or arm64`},
		"no loader":    {func(o *Options) { o.SecureBoot = true }, "no boot loader shimx64.efi"},
		"InfiniBand": {
			func(o *Options) { o.Machines[0].MAC = make(net.HardwareAddr, 20) }, "want a MAC address of 6 bytes",
		},
		"twice":       {func(o *Options) { o.Machines[0].MAC = mac(2) }, "machine 02:00:00:00:00:02 is listed twice"},
		"nobody":      {func(o *Options) { o.Machines = nil }, "addresses are assigned to listed machines only"},
		"too few":     {func(o *Options) { o.Addresses.Last = o.Addresses.First }, "1 for 2 machines"},
		"backwards":   {func(o *Options) { o.Addresses.Last = netip.IPv4Unspecified() }, "the lower one first"},
		"IPv6":        {func(o *Options) { o.Addresses.First = netip.IPv6Unspecified() }, "want two IPv4 addresses"},
		"control":     {parameters("\x1b[2J"), "machine 02:00:00:00:00:02: control character U+001B"},
		"too long":    {parameters(strings.Repeat("x", 2000)), "bytes, want at most 1919"},
		"for iPXE":    {parameters(" || shell"), `machine 02:00:00:00:00:02: ipxe script: kernel parameter`},
		"for iPXE, 2": {parameters("${net0/mac}"), "which iPXE replaces"},
	} {
		o := good()
		c.change(&o)
		if err := o.check(); err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want an error with %q and without parameters", name, err, c.want)
		}
	}
}

// Each client gets the file that its firmware can start.
func TestBootFile(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for name, c := range map[string]struct {
		client server.Client
		secure bool
		want   string
	}{
		"BIOS":        {server.Client{Arch: "amd64"}, false, "02-00-00-00-00-01/undionly.kpxe"},
		"UEFI":        {server.Client{Arch: "amd64", UEFI: true}, false, "02-00-00-00-00-01/snponly.efi"},
		"arm64":       {server.Client{Arch: "arm64", UEFI: true}, false, "02-00-00-00-00-01/ipxe-arm64.efi"},
		"BIOS, shim":  {server.Client{Arch: "amd64"}, true, "02-00-00-00-00-01/undionly.kpxe"},
		"UEFI, shim":  {server.Client{Arch: "amd64", UEFI: true}, true, "02-00-00-00-00-01/shimx64.efi"},
		"arm64, shim": {server.Client{Arch: "arm64", UEFI: true}, true, "02-00-00-00-00-01/shimaa64.efi"},
		"HTTP": {
			server.Client{Arch: "amd64", UEFI: true, HTTP: true},
			false,
			"http://192.0.2.1:8069/02-00-00-00-00-01/snponly.efi",
		},
		"iPXE": {
			server.Client{Arch: "amd64", IPXE: true}, false, "http://192.0.2.1:8069/02-00-00-00-00-01/amd64.ipxe",
		},
		"iPXE on arm64": {
			server.Client{Arch: "arm64", UEFI: true, IPXE: true},
			true,
			"http://192.0.2.1:8069/02-00-00-00-00-01/arm64.ipxe",
		},
		"unknown": {server.Client{}, false, ""},
	} {
		o := Options{Systems: map[string]System{"amd64": {}, "arm64": {}}, SecureBoot: c.secure}
		o.setDefaults()
		a := newAttempts(o.Log, time.Hour)
		s := newSource(o, a)
		s.setAddress("192.0.2.1:8069")
		c.client.MAC = mac
		if got := s.File(c.client); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		a.close()
	}
}

// No path of a request leads to a file of another name than the machine's.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{
		"02-00-00-00-00-01/kernel-amd64", "02:00:00:00:00:01/x86_64.cfg", "0200.0000.0001/a", "grub/grub.cfg", "/", "",
		"02-00-00-00-00-01//kernel-amd64", "02-00-00-00-00-01/../x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		mac, name, ok := parsePath(path)
		if ok && (len(mac) != 6 || name == "" || strings.Contains(name, "/")) {
			t.Errorf("%q: got %q and %q", path, mac, name)
		}
	})
}
