package block

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The names are udev's (path_id of systemd 257), without the directory.
func TestByPath(t *testing.T) {
	const pci = "pci0000:00/0000:00:02.0/0000:03:00.0/"
	for name, tt := range map[string]struct {
		hardware string // below /sys/devices
		// Below /sys/class; "device/": of the block device; "/": below /sys/devices; "=> ", "-> ": links.
		files map[string]string
		want  []string
	}{
		"sda SAS, of the adapter": {
			pci + "host0/port-0:1/end_device-0:1/target0:0:1/0:0:1:0",
			map[string]string{"sas_port/port-0:1/num_phys": "1", "sas_device/end_device-0:1/phy_identifier": "2"},
			[]string{"pci-0000:03:00.0-sas-phy2-lun-0"},
		},
		"sda SAS, of an expander": {
			pci + "host0/port-0:0/expander-0:0/port-0:0:4/end_device-0:0:4/target0:0:4/0:0:4:0",
			map[string]string{
				"sas_port/port-0:0:4/num_phys": "1", "sas_device/end_device-0:0:4/phy_identifier": "4",
				"sas_device/expander-0:0/sas_address": "0x500056b31234abff",
			},
			[]string{"pci-0000:03:00.0-sas-exp0x500056b31234abff-phy4-lun-0"},
		},
		"sda SAS, of a wide port, high unit number": {
			pci + "host0/port-0:1/end_device-0:1/target0:0:1/0:0:1:16385",
			map[string]string{
				"sas_port/port-0:1/num_phys": "4", "sas_device/end_device-0:1/sas_address": "0x5000c500a1b2c3d5",
			},
			[]string{"pci-0000:03:00.0-sas-0x5000c500a1b2c3d5-lun-0x4001000000000000"},
		},
		"sda Fibre Channel": {
			pci + "host4/rport-4:0-2/target4:0:0/4:0:0:7",
			map[string]string{
				"fc_host/host4/port_name": "0x1", "fc_transport/target4:0:0/port_name": "0x50060e8012345678",
			},
			[]string{"pci-0000:03:00.0-fc-0x50060e8012345678-lun-7"},
		},
		"sda iSCSI, by software": {
			"platform/host5/session1/target5:0:0/5:0:0:1",
			map[string]string{
				"iscsi_host/host5/x": "", "iscsi_connection/connection1:0/persistent_address": "192.0.2.7",
				"iscsi_connection/connection1:0/persistent_port": "3260",
				"iscsi_session/session1/targetname":              "iqn.2001-04.org.example:disk",
			},
			[]string{"ip-192.0.2.7:3260-iscsi-iqn.2001-04.org.example:disk-lun-1"},
		},
		"sda SATA, off the PCI bus": {
			"platform/APMC0D33:00/ata1/host0/target0:0:0/0:0:0:0",
			map[string]string{"ata_port/ata1/port_no": "1", "scsi_host/host0/proc_name": "ahci_platform"},
			[]string{"platform-APMC0D33:00-ata-1", "platform-APMC0D33:00-ata-1.0"},
		},
		"vda virtio, host bridge of a device tree": {
			"platform/4010000000.pcie/pci0000:00/0000:00:03.0/virtio2", nil,
			[]string{"platform-4010000000.pcie-pci-0000:00:03.0", "virtio-platform-4010000000.pcie-pci-0000:00:03.0"},
		},
		"nvme0n1 NVMe in a PCI domain of its own": {
			"pci0000:64/0000:64:00.5/pci10002:00/10002:00:02.0/10002:01:00.0/nvme/nvme0",
			map[string]string{"device/nsid": "1"},
			[]string{"pci-0000:64:00.5-pci-10002:01:00.0-nvme-1"},
		},
		"nvme1n2 NVMe, head of several paths": {
			"virtual/nvme-subsystem/nvme-subsys1",
			map[string]string{"device/nsid": "5", "-> nvme/nvme1": pci + "nvme/nvme1"},
			[]string{"pci-0000:03:00.0-nvme-5"},
		},
		"sda USB 2, behind hubs": {
			"pci0000:00/0000:00:14.0/usb1/1-14/1-14.1/1-14.1.3/1-14.1.3:1.0/host7/target7:0:0/7:0:0:1",
			map[string]string{
				"/pci0000:00/0000:00:14.0/usb1/bDeviceProtocol": "01", "/pci0000:00/0000:00:14.0/usb1/speed": "480",
			},
			[]string{
				"pci-0000:00:14.0-usb-0:14.1.3:1.0-scsi-0:0:0:1", "pci-0000:00:14.0-usbv2-0:14.1.3:1.0-scsi-0:0:0:1",
			},
		},
		"sda USB 3": {
			"pci0000:00/0000:00:14.0/usb2/2-3/2-3:1.0/host7/target7:0:0/7:0:0:0",
			map[string]string{"/pci0000:00/0000:00:14.0/usb2/bDeviceProtocol": "03"},
			[]string{"pci-0000:00:14.0-usb-0:3:1.0-scsi-0:0:0:0", "pci-0000:00:14.0-usbv3-0:3:1.0-scsi-0:0:0:0"},
		},
		"mmcblk0 eMMC, controller of a device tree": {
			"platform/soc/3f202000.mmc/mmc_host/mmc0/mmc0:0001",
			map[string]string{"=> platform/soc/3f202000.mmc/subsystem": "bus/platform"},
			[]string{"platform-3f202000.mmc"},
		},
		"mmcblk0 eMMC, controller that ACPI names": {
			"pci0000:00/80860F14:00/mmc_host/mmc0/mmc0:0001",
			map[string]string{"=> pci0000:00/80860F14:00/subsystem": "bus/platform"},
			[]string{"platform-80860F14:00"},
		},
		"mmcblk1 card in a reader on the PCI bus": {
			pci + "rtsx_pci_sdmmc.0/mmc_host/mmc1/mmc1:aaaa",
			map[string]string{"=> " + pci + "rtsx_pci_sdmmc.0/subsystem": "bus/platform"},
			[]string{"pci-0000:03:00.0-platform-rtsx_pci_sdmmc.0"},
		},
		"mmcblk0 eMMC, controller on the PCI bus": {
			"pci0000:00/0000:00:1c.0/mmc_host/mmc0/mmc0:0001",
			map[string]string{"=> pci0000:00/0000:00:1c.0/subsystem": "bus/pci"},
			nil,
		},
		"sda Hyper-V, first generation": {
			"LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/f8b3781a-1e82-4818-a1c3-63d806ec15bb/host3/" +
				"target3:0:0/3:0:0:0",
			map[string]string{
				"/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/" +
					"f8b3781a-1e82-4818-a1c3-63d806ec15bb/device_id": "{f8b3781a-1e82-4818-a1c3-63d806ec15bb}",
			},
			[]string{"acpi-VMBUS:00-vmbus-f8b3781a1e824818a1c363d806ec15bb-lun-0"},
		},
		"sda Hyper-V, bus as a platform device": {
			"platform/ACPI0004:00/VMBUS:00/f8b3781a-1e82-4818-a1c3-63d806ec15bb/host3/target3:0:1/3:0:1:10",
			map[string]string{
				"/platform/ACPI0004:00/VMBUS:00/" +
					"f8b3781a-1e82-4818-a1c3-63d806ec15bb/device_id": "{f8b3781a-1e82-4818-a1c3-63d806ec15bb}",
			},
			[]string{"platform-VMBUS:00-vmbus-f8b3781a1e824818a1c363d806ec15bb-lun-10"},
		},
		"sda Hyper-V, old kernel": {
			"LNXSYSTM:00/device:00/PNP0A03:00/device:07/VMBUS:01/vmbus_0_1/host0/target0:0:0/0:0:0:0",
			map[string]string{
				"/LNXSYSTM:00/device:00/PNP0A03:00/device:07/VMBUS:01/" +
					"vmbus_0_1/device_id": "{00000000-0000-8899-0000-000000000000}",
			},
			[]string{"acpi-VMBUS:01-vmbus-00000000000088990000000000000000-lun-0"},
		},
		"sda Hyper-V, without an identifier": {
			"LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/f8b3781a-1e82-4818-a1c3-63d806ec15bb/host3/" +
				"target3:0:0/3:0:0:0",
			nil, nil,
		},
		"sda Hyper-V, second generation": {
			"LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/MSFT1000:00/f8b3781a-1e82-4818-a1c3-63d806ec15bb/host0/" +
				"target0:0:0/0:0:0:1",
			nil,
			[]string{"acpi-MSFT1000:00-scsi-0:0:0:1"},
		},
		"nvme0n1 NVMe passed through by Hyper-V": {
			"LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/2e7c5dee-7ad3-4a34-9f6b-000000000000/pci7ad3:00/" +
				"7ad3:00:00.0/nvme/nvme0",
			map[string]string{"device/nsid": "1"},
			[]string{"acpi-VMBUS:00-pci-7ad3:00:00.0-nvme-1"},
		},
		"xvda Xen": {"vbd-51712", nil, []string{"xen-vbd-51712"}},
		// Up to version 253 udev named it nvme-1, regardless of its subsystem. Later versions create no name.
		"nvme3n1 NVMe over fabrics": {
			"virtual/nvme-fabrics/ctl/nvme3",
			map[string]string{"device/nsid": "1", "device/address": "traddr=192.0.2.7,trsvcid=4420"},
			nil,
		},
		"nvme4n1 NVMe over fabrics, head of several paths": {
			"virtual/nvme-subsystem/nvme-subsys4",
			map[string]string{"device/nsid": "1", "-> nvme/nvme4": "virtual/nvme-fabrics/ctl/nvme4"},
			nil,
		},
		"sda SCSI, no transport known, nothing above": {"virtual/x/host1/target1:0:0/1:0:0:0", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			block, _, _ := strings.Cut(name, " ")
			attributes := map[string]string{}
			for file, content := range tt.files {
				if link, ok := strings.CutPrefix(file, "=> "); ok {
					tr.link("sys/"+content, "sys/devices/"+link)
				} else if link, ok := strings.CutPrefix(file, "-> "); ok {
					tr.mkdir("sys/devices/" + content)
					tr.link("sys/devices/"+content, "sys/class/"+link)
				} else if own, ok := strings.CutPrefix(file, "device/"); ok {
					attributes[own] = content
				} else if device, ok := strings.CutPrefix(file, "/"); ok {
					tr.file("sys/devices/"+device, content+"\n")
				} else {
					tr.file("sys/class/"+file, content+"\n")
				}
			}
			tr.device(block, tt.hardware, gib, attributes)
			disks, err := Disks(context.Background(), tr.system())
			if err != nil || len(disks) != 1 {
				t.Fatalf("got %v and %v, want one disk", disks, err)
			}
			var got []string
			for _, path := range disks[0].ByPaths {
				got = append(got, strings.TrimPrefix(path, byPathDir))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
