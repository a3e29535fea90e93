package block

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Links have the names that udev gives them (60-persistent-storage.rules).
func TestLinks(t *testing.T) {
	for _, c := range []struct {
		device Device
		want   []string
	}{
		{
			Device{
				Transport: "virtio", Serial: "se rial", ByPaths: []string{"/dev/disk/by-path/pci-0000:00:04.0"},
			},
			[]string{"/dev/disk/by-path/pci-0000:00:04.0", "/dev/disk/by-id/virtio-se_rial"},
		},
		{
			Device{Transport: "nvme", Model: "QEMU NVMe Ctrl", Serial: "nv-1", WWN: "eui.0025388b710116a1"},
			[]string{"/dev/disk/by-id/nvme-eui.0025388b710116a1", "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nv-1"},
		},
		{
			Device{Transport: "nvme", Model: "QEMU NVMe Ctrl", Serial: "nv-1", NSID: "12"},
			[]string{"/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nv-1", "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nv-1_12"},
		},
		{
			Device{
				Transport: "sata", Model: "QEMU HARDDISK", Serial: "QM00001", WWN: "0x5000c500a1b2c3d4",
				WWID: "35000c500a1b2c3d4",
			},
			[]string{"/dev/disk/by-id/wwn-0x5000c500a1b2c3d4", "/dev/disk/by-id/ata-QEMU_HARDDISK_QM00001"},
		},
		{
			Device{
				Transport: "sas", Serial: "X", WWN: "0x6000c500a1b2c3d4", WWNWithExtension: "0x6000c500a1b2c3d45",
				WWID: "36000c500a1b2c3d45",
			},
			[]string{"/dev/disk/by-id/wwn-0x6000c500a1b2c3d45", "/dev/disk/by-id/scsi-36000c500a1b2c3d45"},
		},
		{Device{Transport: "usb", Model: "../.."}, nil},
		{Device{Transport: "virtio", Serial: "../a/b\n"}, []string{"/dev/disk/by-id/virtio-.._a_b"}},
	} {
		if diff := cmp.Diff(c.want, c.device.Links()); diff != "" {
			t.Errorf("%+v: links differ (-want +got):\n%s", c.device, diff)
		}
	}
}
