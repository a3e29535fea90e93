package facts

import (
	"path/filepath"
	"strings"
	"testing"

	"ironroot/lab/qemu"
)

// The inventory of a machine that boots by UEFI matches Debian's tools. Its BMC has addresses. The other machine of
// these tests boots by BIOS.
//
// Parity: G9, F12
func TestUEFI(t *testing.T) {
	f := examine(t, qemu.Config{
		Firmware: qemu.UEFI, Extra: startBMC(t), SMBIOS: []string{"type=1,manufacturer=Maker,product=Model 9"},
		Disks: []qemu.Disk{{Bus: qemu.Virtio, File: filepath.Join(t.TempDir(), "disk"), Size: 5 << 30}},
	}, 1, "facts-collectors=default BOOTIF=52:54:00:FA:c7:01")
	checkBoot(t, f, "uefi", "52:54:00:FA:c7:01")
	t.Run("vendor", func(t *testing.T) { checkVendor(t, f) })
	t.Run("cpu", func(t *testing.T) { checkCPU(t, f) })
	t.Run("memory", func(t *testing.T) { checkMemory(t, f, 1024) })
	i := f.ours(t).Inventory
	if got, want := text(i.BMCAddress), bmcV4.String(); got != want {
		t.Errorf("got BMC address %q, want %q", got, want)
	}
	if got, want := text(i.BMCV6Address), bmcV6.String(); got != want {
		t.Errorf("got BMC IPv6 address %q, want %q", got, want)
	}
	if got, want := text(i.BMCMAC), "3c:ec:ef:7a:a0:aa"; got != want {
		t.Errorf("got BMC MAC address %q, want %q", got, want)
	}
	ipmitool := f.sections("ipmi.txt")["8"]
	for _, want := range []string{text(i.BMCAddress), text(i.BMCV6Address), text(i.BMCMAC)} {
		if !strings.Contains(ipmitool, want) {
			t.Errorf("ipmitool does not know %q of channel 8:\n%s", want, ipmitool)
		}
	}
}

// checkBoot checks the boot mode, the boot interface and the host name.
func checkBoot(t *testing.T, f found, mode, bootif string) {
	t.Helper()
	o := f.ours(t)
	b := o.Inventory.Boot
	if b.CurrentBootMode != mode || text(b.PXEInterface) != bootif || text(o.BootInterface) != bootif {
		t.Errorf("got boot %s, %q and boot_interface %q, want %s and twice %q",
			b.CurrentBootMode, text(b.PXEInterface), text(o.BootInterface), mode, bootif)
	}
	if want := f.text("hostname.txt"); o.Inventory.Hostname != want || want != "node-7.example.org" {
		t.Errorf("got host name %q, want %q, which is node-7.example.org", o.Inventory.Hostname, want)
	}
}

// checkSilentBMC checks the values for a BMC without addresses. The BMC is QEMU's own simulator, which has no LAN
// channel according to ipmitool.
func checkSilentBMC(t *testing.T, f found) {
	i := f.ours(t).Inventory
	if text(i.BMCAddress) != "0.0.0.0" || text(i.BMCV6Address) != "::/0" || i.BMCMAC != nil {
		t.Errorf("got BMC %q, %q and %q, want 0.0.0.0, ::/0 and none",
			text(i.BMCAddress), text(i.BMCV6Address), text(i.BMCMAC))
	}
	for channel, said := range f.sections("ipmi.txt") {
		if strings.Contains(said, "IP Address  ") || strings.Contains(said, "Could not open device") {
			t.Errorf("ipmitool of channel %s: got %s, want an answer without an address", channel, said)
		}
	}
}
