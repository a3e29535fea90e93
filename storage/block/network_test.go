package block

import (
	"strings"
	"testing"
)

// TestNetwork has one row for each way in which the kernel reaches a disk. The trees are those of Linux 6.1.
func TestNetwork(t *testing.T) {
	const pci = "pci0000:00/0000:00:02.0/0000:03:00.0/"
	for name, c := range map[string]struct {
		device, hardware string
		files            map[string]string // below /sys; "=> " is a link to a path below /sys
		want             string
	}{
		"SATA": {"sda", "pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0/2:0:0:0", map[string]string{
			"class/scsi_host/host2/proc_name": "ahci",
		}, ""},
		"SAS": {"sda", pci + "host0/port-0:1/end_device-0:1/target0:0:1/0:0:1:0", map[string]string{
			"class/sas_host/host0/x": "",
		}, ""},
		"virtio": {"vda", "pci0000:00/0000:00:04.0/virtio1", nil, ""},
		"iSCSI, by software": {"sda", "platform/host5/session1/target5:0:0/5:0:0:1", map[string]string{
			"class/iscsi_host/host5/x": "", "class/scsi_host/host5/proc_name": "iscsi_tcp",
		}, "iscsi"},
		"iSCSI, by an adapter": {"sda", pci + "host5/session1/target5:0:0/5:0:0:1", map[string]string{
			"class/iscsi_host/host5/x": "", "class/scsi_host/host5/proc_name": "qla4xxx",
		}, "iscsi"},
		"Fibre Channel": {"sda", pci + "host4/rport-4:0-2/target4:0:0/4:0:0:7", map[string]string{
			"class/fc_host/host4/symbolic_name": "QLE2742 FW:v9.08.02 DVR:v10.02.07",
		}, "fc"},
		"FCoE": {"sda", "virtual/net/eth0.100/ctlr_0/host4/rport-4:0-2/target4:0:0/4:0:0:7", map[string]string{
			"class/fc_host/host4/symbolic_name": "fcoe v0.1 over eth0.100",
		}, "fcoe"},
		"SRP": {"sda", pci + "infiniband_srp/host6/target6:0:0/6:0:0:0", map[string]string{
			"class/scsi_host/host6/proc_name": "ib_srp",
		}, "srp"},
		"NVMe on PCIe": {"nvme0n1", pci + "nvme/nvme0", map[string]string{
			"devices/" + pci + "nvme/nvme0/transport": "pcie",
		}, ""},
		"NVMe on PCIe, several paths": {"nvme0n1", "virtual/nvme-subsystem/nvme-subsys0", map[string]string{
			"devices/virtual/nvme-subsystem/nvme-subsys0/nvme0": "=> devices/" + pci + "nvme/nvme0",
			"devices/" + pci + "nvme/nvme0/transport":           "pcie",
		}, ""},
		"NVMe of Apple": {"nvme0n1", "platform/soc/393cc0000.nvme/nvme/nvme0", map[string]string{
			"devices/platform/soc/393cc0000.nvme/nvme/nvme0/transport": "apple-nvme",
		}, ""},
		"NVMe on PCIe, of a kernel without the attribute": {"nvme0n1", pci + "nvme/nvme0", nil, ""},
		"NVMe over TCP": {"nvme0n1", "virtual/nvme-fabrics/ctl/nvme0", map[string]string{
			"devices/virtual/nvme-fabrics/ctl/nvme0/transport": "tcp",
		}, "nvme-tcp"},
		"NVMe over RDMA": {"nvme0n1", "virtual/nvme-fabrics/ctl/nvme0", map[string]string{
			"devices/virtual/nvme-fabrics/ctl/nvme0/transport": "rdma",
		}, "nvme-rdma"},
		"NVMe over FC, several paths": {"nvme1n1", "virtual/nvme-subsystem/nvme-subsys1", map[string]string{
			"devices/virtual/nvme-subsystem/nvme-subsys1/nvme3": "=> devices/virtual/nvme-fabrics/ctl/nvme3",
			"devices/virtual/nvme-fabrics/ctl/nvme3/transport":  "fc",
		}, "nvme-fc"},
		"NVMe over Fabrics, transport not readable": {"nvme0n1", "virtual/nvme-fabrics/ctl/nvme0", nil, "nvme-fabrics"},
		"network block device":                      {"nbd0", "", nil, "nbd"},
		"Ceph":                                      {"rbd0", "", nil, "rbd"},
		"DRBD":                                      {"drbd0", "", nil, "drbd"},
		"ATA over Ethernet":                         {"etherd!e1.2", "", nil, "aoe"},
		"multipath map of Fibre Channel": {"dm-0", "", map[string]string{
			"devices/virtual/block/dm-0/dm/uuid": "mpath-3600c0ff000d1", "class/fc_host/host4/x": "",
			"devices/" + pci + "host4/rport-4:0-2/target4:0:0/4:0:0:7/block/sdb/size": "1",
			"devices/" + pci + "host4/rport-4:0-2/target4:0:0/4:0:0:7/block/sdb/device": "=> devices/" +
				pci + "host4/rport-4:0-2/target4:0:0/4:0:0:7",
			"class/block/sdb": "=> devices/" + pci + "host4/rport-4:0-2/target4:0:0/4:0:0:7/block/sdb",
			"devices/virtual/block/dm-0/slaves/sdb": "=> devices/" +
				pci + "host4/rport-4:0-2/target4:0:0/4:0:0:7/block/sdb",
		}, "fc"},
		"array with a partition of a network block device": {"md0", "", map[string]string{
			"devices/virtual/block/md0/md/level": "raid1", "devices/virtual/block/md0/slaves/nbd1p1/x": "",
			"devices/virtual/block/nbd1/size":             "4096",
			"devices/virtual/block/nbd1/nbd1p1/partition": "1", "devices/virtual/block/nbd1/nbd1p1/size": "8",
			"class/block/nbd1":   "=> devices/virtual/block/nbd1",
			"class/block/nbd1p1": "=> devices/virtual/block/nbd1/nbd1p1",
		}, "nbd"},
		"array with a partition of a local disk": {"md0", "", map[string]string{
			"devices/virtual/block/md0/md/level": "raid1", "devices/virtual/block/md0/slaves/vda1/x": "",
			"devices/virtual/block/vda/size":           "4096",
			"devices/virtual/block/vda/vda1/partition": "1", "devices/virtual/block/vda/vda1/size": "8",
			"class/block/vda": "=> devices/virtual/block/vda", "class/block/vda1": "=> devices/virtual/block/vda/vda1",
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			tr.device(c.device, c.hardware, gib, nil)
			for file, content := range c.files {
				if target, isLink := strings.CutPrefix(content, "=> "); isLink {
					tr.link("sys/"+target, "sys/"+file)
				} else {
					tr.file("sys/"+file, content+"\n")
				}
			}
			list, err := Disks(t.Context(), tr.system())
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range list {
				if d.Name == c.device {
					if d.Network != c.want {
						t.Errorf("got network %q, want %q", d.Network, c.want)
					}
					return
				}
			}
			t.Errorf("got disks %+v, want %s among them", list, c.device)
		})
	}
}
