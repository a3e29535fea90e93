package pxe

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"ironroot/initramfs/debian"
	"ironroot/internal/test/debtest"
	"ironroot/internal/test/foreign"
	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
	"ironroot/lab/qemu"
	"ironroot/netboot/server"
)

// loaders fills a directory with boot loaders of Debian.
func loaders(t *testing.T, dir string) {
	t.Helper()
	files := map[string]string{
		"/undionly.kpxe": "undionly.kpxe", "/snponly.efi": "snponly.efi",
	}
	unpacked := t.TempDir()
	for _, deb := range debtest.Packages(t, "", "ipxe") {
		wanted := func(name string) bool {
			for suffix := range files {
				if strings.HasSuffix(name, suffix) {
					return true
				}
			}
			return false
		}
		if err := debian.Extract(t.Context(), deb, unpacked, wanted); err != nil {
			t.Fatal(err)
		}
	}
	for suffix, name := range files {
		if err := os.Rename(filepath.Join(unpacked, "usr/lib/ipxe", suffix), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// artefacts returns a directory with a kernel, a ramdisk and boot loaders, which are fetched outside of the test's
// namespace. It reports whether the caller is in the namespace.
func artefacts(t *testing.T) (dir string, inside bool) {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "qemu-system-x86_64", "go", "dnsmasq")
	testenv.Files(t, "load the module tun", "/dev/net/tun")
	const dirEnv = "IRONROOT_TEST_ROOT"
	dir = os.Getenv(dirEnv)
	if dir == "" {
		dir = t.TempDir()
		loaders(t, dir)
		t.Setenv(dirEnv, dir)
		for name, from := range map[string]string{
			"kernel": foreign.Kernel(t, "amd64"), "initramfs": foreign.Initrd(t, "amd64"),
		} {
			content, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir, nettest.Rerun(t, 15*time.Minute)
}

// bootOptions returns the options for the artefacts.
func bootOptions(t *testing.T, dir string, log io.Writer) Options {
	t.Helper()
	o := options(t, log)
	o.Machines = nil
	o.Systems = map[string]System{"amd64": {
		Kernel: filepath.Join(dir, "kernel"), Initramfs: filepath.Join(dir, "initramfs"),
		Cmdline: "console=ttyS0 quiet test.word=42 " + qemu.KernelHints,
	}}
	for name := range o.Loaders {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			o.Loaders[name] = content
		}
	}
	return o
}

// tap creates a tap that is a port of the bridge.
func tap(t *testing.T, name string) {
	t.Helper()
	link := &netlink.Tuntap{LinkAttrs: attrs(name), Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	attach(t, link)
}

// boots starts a machine and checks the kernel command line that it boots with, and the line of the log.
func boots(t *testing.T, log *nettest.Log, mac net.HardwareAddr, firmware qemu.Firmware, model, line string) {
	t.Helper()
	cmdline, _ := foreign.Boots(t, qemu.Config{
		Name: t.Name(), Dir: t.TempDir(), Memory: 512 << 20, Firmware: firmware,
		NICs: []qemu.NIC{{MAC: mac.String(), Model: model, Netdev: "tap:tap0", Boot: 1}},
	})
	for _, want := range []string{"test.word=42", "BOOTIF=01-" + dashed(mac)} {
		if !strings.Contains(" "+cmdline+" ", " "+want+" ") {
			t.Errorf("command line: got %q, want %s in it", cmdline, want)
		}
	}
	waitLine(t, log, fmt.Sprintf(`msg="machine booted" mac=%s address=192\.0\.2\.\d+ %s`, mac, line))
}

// advertise answers the router solicitations of iPXE, which otherwise repeats them for 15 to 20 seconds.
func advertise(t *testing.T) {
	t.Helper()
	advertiser, err := server.ListenAdvertiser(t.Context(), nil, bridge)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := advertiser.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Machines boot from the network alone: one with BIOS and iPXE in the card's ROM, which gets its address from another
// DHCP server, and one with UEFI whose PXE client first fetches iPXE by TFTP.
func TestNetworkBoot(t *testing.T) {
	dir, inside := artefacts(t)
	if !inside {
		return
	}
	network(t)
	tap(t, "tap0")
	advertise(t)
	var log nettest.Log
	o := bootOptions(t, dir, &log)
	o.Machines = []Machine{{MAC: second}}
	o.Addresses = &Addresses{First: netip.MustParseAddr("192.0.2.10"), Last: netip.MustParseAddr("192.0.2.20")}
	s := mustStart(t, o)
	t.Run("UEFI with its own PXE client", func(t *testing.T) {
		boots(t, &log, second, qemu.UEFI, "virtio-net-pci,romfile=", `firmware="UEFI PXE, amd64" loader=snponly\.efi`)
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	dnsmasq(t, otherLink)
	o.Addresses, o.Machines = nil, nil
	mustStart(t, o)
	t.Run("BIOS with iPXE behind a proxy", func(t *testing.T) {
		boots(t, &log, first, qemu.BIOS, "virtio-net-pci", `firmware="iPXE, amd64" loader=amd64\.ipxe`)
	})
}
