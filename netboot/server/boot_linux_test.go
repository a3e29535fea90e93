package server_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"ironroot/initramfs/debian"
	"ironroot/internal/debtest"
	"ironroot/internal/foreign"
	"ironroot/internal/testenv"
	"ironroot/internal/testenv/nettest"
	"ironroot/lab/qemu"
	"ironroot/netboot/server"
)

// firmwareFiles fills a directory with iPXE as Debian builds it.
func firmwareFiles(t *testing.T, dir string) {
	t.Helper()
	deb := debtest.Packages(t, "", "ipxe")
	unpacked := t.TempDir()
	if err := debian.Extract(t.Context(), deb[0], unpacked,
		func(name string) bool { return strings.HasSuffix(name, "/snponly.efi") }); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(unpacked, "usr/lib/ipxe/snponly.efi"),
		filepath.Join(dir, "snponly.efi")); err != nil {
		t.Fatal(err)
	}
}

// Machines boot from the network alone: one with BIOS and iPXE in the card's ROM, one with UEFI whose PXE client first
// fetches iPXE by TFTP. Kernel, ramdisk and script are fetched by HTTP.
func TestNetworkBoot(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "qemu-system-x86_64", "go", "apt-get")
	testenv.Files(t, "load the module tun", "/dev/net/tun")
	const rootEnv = "IRONROOT_TEST_ROOT"
	root := os.Getenv(rootEnv)
	if root == "" { // not in the namespace, which has no way out
		root = t.TempDir()
		firmwareFiles(t, root)
		t.Setenv(rootEnv, root)
		for name, from := range map[string]string{"vmlinuz": foreign.Kernel(t), "hello.gz": foreign.Initrd(t)} {
			content, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(filepath.Join(root, name), content, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if !nettest.Rerun(t, 15*time.Minute) {
		return
	}
	own := netip.MustParsePrefix("192.0.2.1/24")
	tap(t, "tap0", own.String())
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	files := server.FilesConfig{Log: log, Root: root, Listen: netip.AddrPortFrom(own.Addr(), 0)}
	web, err := server.ListenHTTP(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	files.Listen = netip.AddrPortFrom(own.Addr(), 69)
	if _, err := server.ListenTFTP(t.Context(), files); err != nil {
		t.Fatal(err)
	}
	script, err := server.Script{
		Kernel: web.URL("vmlinuz"), Initrds: []string{web.URL("hello.gz")},
		Cmdline: "console=ttyS0 quiet test.word=42 " + qemu.KernelHints,
	}.Render()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "boot.ipxe"), script, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = server.ListenDHCP(t.Context(), server.DHCPConfig{
		Log: log, Interface: "tap0", Address: own, First: netip.MustParseAddr("192.0.2.10"),
		Last: netip.MustParseAddr("192.0.2.20"),
		Boot: &server.Boot{File: server.Loaders{Script: web.URL("boot.ipxe")}.File},
	})
	if err != nil {
		t.Fatal(err)
	}
	advertiser, err := server.ListenAdvertiser(t.Context(), log, "tap0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := advertiser.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i, c := range []struct {
		name     string
		firmware qemu.Firmware
		model    string
	}{
		{"BIOS with iPXE", qemu.BIOS, "virtio-net-pci"},
		{"UEFI with its own PXE client", qemu.UEFI, "virtio-net-pci,romfile="},
	} {
		t.Run(c.name, func(t *testing.T) {
			line, _ := foreign.Boots(t, qemu.Config{
				Name: c.name, Dir: t.TempDir(), Memory: 512 << 20, Firmware: c.firmware,
				NICs: []qemu.NIC{
					{MAC: fmt.Sprintf("02:00:00:00:00:%02x", i+1), Model: c.model, Netdev: "tap:tap0", Boot: 1},
				},
			})
			if !strings.Contains(line, "test.word=42") {
				t.Errorf("command line: got %q, want test.word=42 in it", line)
			}
		})
	}
}

func tap(t *testing.T, name, address string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	link := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	parsed, err := netlink.ParseAddr(address)
	if err == nil {
		err = netlink.AddrAdd(link, parsed)
	}
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		t.Fatal(err)
	}
}
