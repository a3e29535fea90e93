//go:build linux

package boot_test

import (
	"testing"

	"ironroot/initramfs"
	"ironroot/lab/qemu"
)

// TestServerHardware boots the generic kernel with the server set on a machine full of different adapters.
//
// Parity: R13 (modules)
func TestServerHardware(t *testing.T) {
	disks := t.TempDir()
	disk := func(bus qemu.Bus) qemu.Disk {
		return qemu.Disk{Bus: bus, File: disks + "/" + string(bus), Size: 16 << 20}
	}
	m := start(t, ramdisk(t, initramfs.Options{Init: programs + "modules"}), "quiet", func(c *qemu.Config) {
		c.Disks = []qemu.Disk{disk(qemu.Virtio), disk(qemu.SATA), disk(qemu.NVMe), disk(qemu.SCSI), disk(qemu.USB)}
		c.NICs = []qemu.NIC{{}, {Model: "e1000e"}}
		c.Extra = []string{
			"-device", "megasas", "-device", "mptsas1068", "-device", "ipmi-bmc-sim,id=bmc",
			"-device", "isa-ipmi-kcs,bmc=bmc",
		}
	})
	expect(t, m, "modules are loaded", "the kernel got its file system")
	// Host protected areas are shown.
	expect(t, m, `parameter module=libata ignore_hpa=1\b`)
	for _, name := range []string{
		"virtio_net", "e1000e", "virtio_blk", "ahci", "nvme", "virtio_scsi", "sd_mod", "usb_storage", "xhci_pci",
		"megaraid_sas", "mptsas", "ipmi_si", "ipmi_devintf",
	} {
		expect(t, m, `loaded module=`+name+`\b`)
	}
}

// TestAdapterWithoutModule boots the agent on a machine whose only network adapter has a driver that no module group
// contains.
func TestAdapterWithoutModule(t *testing.T) {
	m := start(t, delivered(t), "quiet ipa-api-url=http://192.0.2.1:6385", func(c *qemu.Config) {
		c.Memory = 512 << 20
		c.Extra = []string{"-netdev", "user,id=old", "-device", "tulip,netdev=old"}
	})
	const reason = `network adapter 0000:00:[0-9a-f]{2}\.0 \(PCI ID 1011:0019\) needs modules? (de4x5, )?tulip(, ` +
		`[a-z0-9_]+)*, which this image lacks`
	expect(t, m, "network adapter without a link.*"+reason, "what to do: "+reason)
}
