//go:build linux

package firmware

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ironroot/internal/test/debtest"
	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
	"ironroot/netboot/server"
)

const (
	netbootMAC    = "52:54:00:e2:e0:b0"
	netbootSecret = "secret-of-the-machine"
)

// netboot is a site whose machine boots the ramdisk from ironroot netboot. The network is a bridge.
type netboot struct {
	*rig.Site
	log nettest.Log // the output of the command
}

// startNetboot starts Ironic and the command. It returns when the command waits for machines.
func startNetboot(t *testing.T, flags ...string) *netboot {
	t.Helper()
	testenv.Programs(t, "qemu-system-x86_64", "go")
	testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	program := filepath.Join(t.TempDir(), "ironroot")
	testenv.Run(t, "go", "build", "-o", program, "ironroot/cmd/ironroot")
	for _, pkg := range []string{"ipxe:amd64", "shim-signed:amd64", "grub-efi-amd64-signed:amd64"} {
		debtest.Packages(t, "", pkg) // into the cache: the namespace has no way out
	}
	n := &netboot{Site: rig.NewSite(t)}
	if err := n.NS.Bridge("br0", "192.0.2.1/24"); err != nil {
		t.Fatal(err)
	}
	if err := n.NS.TapOn("br0", "tap0"); err != nil {
		t.Fatal(err)
	}
	n.advertise()
	n.StartIronic(netip.MustParseAddr("192.0.2.1"), netbootMAC, time.Minute)
	machines := filepath.Join(t.TempDir(), "machines")
	line := netbootMAC + " ipa-insecure=1 test.secret=" + netbootSecret + "\n"
	if err := os.WriteFile(machines, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	// It is interrupted at the end of the test, and not killed.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, append([]string{
		"netboot", "--interface=br0", "--api-url=" + n.Ironic.URL(), "--machines=" + machines, "--offline",
		"--dir=" + filepath.Join(testenv.Top(t), "build"),
		"--append=loglevel=4 ipa-debug=1 ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 " + qemu.KernelHints,
	}, flags...)...)
	cmd.Stdout = io.MultiWriter(&n.log, t.Output())
	cmd.Stderr = cmd.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	wait, err := n.NS.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := wait(); err != nil {
			t.Errorf("interrupted: got %v, want success", err)
		}
	})
	n.waitLine(t, `msg="waiting for machines" interface=br0 url=http://192\.0\.2\.1:8069/ machines="1 listed"`)
	return n
}

// advertise answers the router solicitations of iPXE, which otherwise repeats them for 15 to 20 seconds.
func (n *netboot) advertise() {
	n.T.Helper()
	var advertiser *server.Advertiser
	if err := n.NS.Do(func() (err error) {
		advertiser, err = server.ListenAdvertiser(n.T.Context(), nil, "br0")
		return err
	}); err != nil {
		n.T.Fatal(err)
	}
	n.T.Cleanup(func() {
		if err := advertiser.Close(); err != nil {
			n.T.Error(err)
		}
	})
}

// waitLine waits for a line of the command.
func (n *netboot) waitLine(t *testing.T, expression string) {
	t.Helper()
	ctx := rig.Soon(t)
	for {
		found, changed := n.log.Matches(expression)
		if found {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the command wrote no line %q", expression)
		}
	}
}

// boots starts the machine and waits for the heartbeat of its agent and the line of the command.
func (n *netboot) boots(t *testing.T, c qemu.Config, line string) {
	t.Helper()
	c.Name, c.Dir, c.NetNS = t.Name(), t.TempDir(), n.NS.Path()
	c.Memory = cmp.Or(c.Memory, 1024*rig.MiB)
	nic := qemu.NIC{MAC: netbootMAC, Netdev: "tap,ifname=tap0,script=no,downscript=no,vnet_hdr=off", Boot: 1}
	nic.NoROM = c.Firmware != qemu.BIOS
	c.NICs = []qemu.NIC{nic}
	machine, err := qemu.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	n.Machine = machine
	t.Cleanup(func() {
		_ = machine.Stop() // it may have ended already
		if t.Failed() {
			t.Logf("the console ends with\n%s", machine.Console().Tail(80))
		}
	})
	n.waitLine(t, fmt.Sprintf(`msg="machine booted" mac=%s address=192\.0\.2\.\d+ %s`, netbootMAC, line))
	n.WaitAgent(t)
	if found, _ := n.log.Matches(netbootSecret); found {
		t.Error("the command has logged a parameter of the machine")
	}
}

// noPXE makes OVMF boot by HTTP.
func noPXE() []string {
	return []string{
		"-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=n",
		"-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n",
	}
}

// TestNetboot boots the ramdisk by UEFI HTTP boot from ironroot netboot, which assigns the address, to the first
// heartbeat.
func TestNetboot(t *testing.T) {
	t.Parallel()
	n := startNetboot(t, "--range=192.0.2.10-192.0.2.20")
	n.boots(t, qemu.Config{Firmware: qemu.UEFI, Extra: noPXE()}, `firmware="UEFI HTTP boot, amd64" loader=snponly\.efi`)
	record, err := n.Node.Command(rig.Soon(t), "poll.get_hardware_info", nil, true)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"01-` + strings.ReplaceAll(netbootMAC, ":", "-") + `"`; !strings.Contains(string(record.Result), want) {
		t.Errorf("inventory: got %s, want the interface %s that the machine was booted from", record.Result, want)
	}
}

// TestLittleMemoryNetwork starts machines with 256 MiB of memory from the network, to the first heartbeat.
//
// Parity: R11 (memory)
func TestLittleMemoryNetwork(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		firmware qemu.Firmware
		line     string
	}{
		{qemu.BIOS, `firmware="iPXE, amd64"`},
		{qemu.UEFI, `firmware="UEFI PXE, amd64"`},
	} {
		t.Run(string(tt.firmware), func(t *testing.T) {
			n := startNetboot(t, "--range=192.0.2.10-192.0.2.20", "--append=loglevel=4 "+qemu.KernelHints)
			n.boots(t, qemu.Config{Firmware: tt.firmware, Memory: 256 * rig.MiB}, tt.line)
		})
	}
}
