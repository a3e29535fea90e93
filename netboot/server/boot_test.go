package server_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/initramfs/debian"
	"ironroot/internal/debtest"
	"ironroot/internal/foreign"
	"ironroot/internal/testenv"
	"ironroot/lab/qemu"
	"ironroot/netboot/server"
)

const insideEnv = "IRONROOT_TEST_NAMESPACE"

// inNamespace runs the test again as a process in a new network namespace, and returns whether the caller is that one.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideEnv) == t.Name() {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=8m")
	cmd.Env = append(os.Environ(), insideEnv+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("in the namespace:\n%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("in the namespace: %v", err)
	}
	return false
}

// firmwareFiles fills a folder with iPXE as Debian builds it.
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
	root := t.TempDir()
	if os.Getenv(insideEnv) == "" { // the namespace has no way out
		firmwareFiles(t, root)
		t.Setenv("IRONROOT_TEST_ROOT", root)
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
	if !inNamespace(t) {
		return
	}
	root = os.Getenv("IRONROOT_TEST_ROOT")
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
		Boot: &server.Boot{Script: web.URL("boot.ipxe")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.ListenAdvertiser(t.Context(), log, "tap0"); err != nil {
		t.Fatal(err)
	}
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
				NICs: []qemu.NIC{{MAC: fmt.Sprintf("02:00:00:00:00:%02x", i+1), Model: c.model, Netdev: "tap:tap0", Boot: 1}},
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
