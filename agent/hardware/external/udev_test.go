package external

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/storage/block"
)

// Links have the names that udev gives them (60-persistent-storage.rules).
func TestLinks(t *testing.T) {
	for _, c := range []struct {
		device block.Device
		want   []string
	}{
		{
			block.Device{
				Transport: "virtio", Serial: "se rial", ByPaths: []string{"/dev/disk/by-path/pci-0000:00:04.0"},
			},
			[]string{"disk/by-path/pci-0000:00:04.0", "disk/by-id/virtio-se_rial"},
		},
		{
			block.Device{Transport: "nvme", Model: "QEMU NVMe Ctrl", Serial: "nv-1", WWN: "eui.0025388b710116a1"},
			[]string{"disk/by-id/nvme-eui.0025388b710116a1", "disk/by-id/nvme-QEMU_NVMe_Ctrl_nv-1"},
		},
		{
			block.Device{
				Transport: "sata", Model: "QEMU HARDDISK", Serial: "QM00001", WWN: "0x5000c500a1b2c3d4",
				WWID: "35000c500a1b2c3d4",
			},
			[]string{"disk/by-id/wwn-0x5000c500a1b2c3d4", "disk/by-id/ata-QEMU_HARDDISK_QM00001"},
		},
		{
			block.Device{
				Transport: "sas", Serial: "X", WWN: "0x6000c500a1b2c3d4", WWNWithExtension: "0x6000c500a1b2c3d45",
				WWID: "36000c500a1b2c3d45",
			},
			[]string{"disk/by-id/wwn-0x6000c500a1b2c3d45", "disk/by-id/scsi-36000c500a1b2c3d45"},
		},
		{block.Device{Transport: "usb", Model: "../.."}, nil},
		{block.Device{Transport: "virtio", Serial: "../a/b\n"}, []string{"disk/by-id/virtio-.._a_b"}},
	} {
		if diff := cmp.Diff(c.want, linksOf(c.device)); diff != "" {
			t.Errorf("%+v: links differ (-want +got):\n%s", c.device, diff)
		}
	}
}

// Properties contain no line breaks, which would begin other properties.
func TestProperties(t *testing.T) {
	want := []string{"ID_MODEL=a_b", "ID_BUS=nvme", "ID_PATH=pci-1"}
	got := propertiesOf(block.Device{
		Model: "a\nb", WWN: "x\nS:planted", Transport: "nvme", ByPath: "/dev/disk/by-path/pci-1",
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("properties differ (-want +got):\n%s", diff)
	}
}
