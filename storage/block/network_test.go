package block

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNetwork has one row for each way in which the kernel reaches a disk. The trees were read from Linux 6.1.
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
					local, err := d.IsLocal()
					if d.Network != c.want || local != (c.want == "") || err != nil {
						t.Errorf("got network %q, local %t, error %v, want %q", d.Network, local, err, c.want)
					}
					return
				}
			}
			t.Errorf("got disks %+v, want %s among them", list, c.device)
		})
	}
}

// If it cannot be read how a disk is reached, it is not known whether that is over a network. A disk that is known to
// be reached over a network has no error.
func TestNetworkUnread(t *testing.T) {
	const (
		scsi      = "pci0000:00/0000:00:07.0/host0/target0:0:0/0:0:0:0"
		subsystem = "virtual/nvme-subsystem/nvme-subsys0"
	)
	unreadable := func(t *testing.T, path string) {
		t.Helper()
		if err := os.Symlink("/proc/self/mem", path); err != nil { // reading it fails with EIO
			t.Fatal(err)
		}
	}
	loops := func(t *testing.T, path string) { // resolving it fails with ELOOP
		t.Helper()
		if err := os.Symlink(path, path); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		device, hardware string
		files            map[string]string // of the device
		damage           func(*testing.T, tree)
		want             string
	}{
		"SCSI driver": {"sda", scsi, nil, func(t *testing.T, tr tree) {
			t.Helper()
			tr.mkdir("sys/class/scsi_host/host0")
			unreadable(t, tr.system().Sys("class/scsi_host/host0/proc_name"))
		}, unix.EIO.Error()},
		"SCSI transport": {"sda", scsi, nil, func(t *testing.T, tr tree) {
			t.Helper()
			tr.mkdir("sys/class/fc_host")
			loops(t, tr.system().Sys("class/fc_host/host0"))
		}, unix.ELOOP.Error()},
		"SCSI address": {"sda", "", nil, nil, "sda has no SCSI address"},
		"device": {"vda", "", nil, func(t *testing.T, tr tree) {
			t.Helper()
			loops(t, tr.system().Sys("class/block/vda/device"))
		}, "too many links"},
		"NVMe transport": {"nvme0n1", "pci0000:00/0000:00:02.0/nvme/nvme0", nil, func(t *testing.T, tr tree) {
			t.Helper()
			unreadable(t, tr.system().Sys("class/block/nvme0n1/device/transport"))
		}, unix.EIO.Error()},
		"NVMe controller":    {"nvme0n1", "", nil, nil, "controller of nvme0n1: "},
		"NVMe without paths": {"nvme0n1", subsystem, nil, nil, "nvme0n1 has no controller"},
		"NVMe controller of a subsystem": {"nvme0n1", subsystem, nil, func(t *testing.T, tr tree) {
			t.Helper()
			tr.link("sys/devices/gone", "sys/devices/"+subsystem+"/nvme0")
		}, "controller of nvme0n1: "},
		"member": {
			"md0", "", map[string]string{"md/level": "raid1\n", "slaves/sdz": ""}, nil, "block device sdz: ",
		},
		"members": {"md0", "", map[string]string{"md/level": "raid1\n"}, func(t *testing.T, tr tree) {
			t.Helper()
			loops(t, tr.system().Sys("class/block/md0/slaves"))
		}, unix.ELOOP.Error()},
		"disk of a member": {
			"md0", "", map[string]string{"md/level": "raid1\n", "slaves/nvme0n1": ""}, func(t *testing.T, tr tree) {
				t.Helper()
				tr.device("nvme0n1", "", gib, nil)
			}, "controller of nvme0n1: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			tr.device(c.device, c.hardware, gib, c.files)
			if c.damage != nil {
				c.damage(t, tr)
			}
			d, err := Find(tr.system(), c.device)
			if err != nil {
				t.Fatal(err)
			}
			local, err := d.IsLocal()
			if local || err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "/dev/"+c.device) {
				t.Errorf("got local %t and error %v, want %q", local, err, c.want)
			}
			d.Network = "fc"
			if local, err := d.IsLocal(); local || err != nil {
				t.Errorf("disk of a network: got local %t and error %v", local, err)
			}
		})
	}
}
