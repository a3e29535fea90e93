package block

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWhatIsADisk has one row for every kind of device that could be mistaken for a disk or missed. Disks are those
// that ironic-python-agent selects from lsblk's list: type disk, RAID arrays and multipath maps, without floppies, RAM
// disks and devices of size 0. Removable, read-only, zoned and tiny disks are included.
func TestWhatIsADisk(t *testing.T) {
	const scsi = "pci0000:00/0000:00:06.0/host8/target8:0:%d/8:0:%d:0"
	for n, tt := range []struct {
		what, name string
		hardware   string // "scsi": a SCSI device; "": none, as of a virtual block device
		size       int64
		files      map[string]string
		want       string // type and what is special; "" where it is no disk
	}{
		{
			"sectors of 4 KiB", "sda", "scsi", gib,
			map[string]string{"device/type": "0", "queue/logical_block_size": "4096"},
			"disk 4096/4096",
		},
		{"emulated sectors", "sda", "scsi", gib, map[string]string{"device/type": "0"}, "disk 512/4096"},
		{"read-only", "sda", "scsi", gib, map[string]string{"ro": "1"}, "disk 512/4096 read-only"},
		{"removable", "sda", "scsi", gib, map[string]string{"removable": "1"}, "disk 512/4096 removable"},
		{"card reader without a card", "sda", "scsi", 0, map[string]string{"removable": "1"}, ""},
		{"tiny", "sda", "scsi", 512, nil, "disk 512/4096"},
		{
			"host-managed zones", "sda", "scsi", gib,
			map[string]string{"device/type": "20", "queue/zoned": "host-managed"},
			"disk 512/4096 host-managed",
		},
		{
			"host-aware zones", "sda", "scsi", gib,
			map[string]string{"device/type": "0", "queue/zoned": "host-aware"},
			"disk 512/4096 host-aware",
		},
		{
			"without zones", "sda", "scsi", gib,
			map[string]string{"device/type": "0", "queue/zoned": "none"},
			"disk 512/4096",
		},
		{"write-once", "sda", "scsi", gib, map[string]string{"device/type": "4"}, ""},
		{"magneto-optical", "sda", "scsi", gib, map[string]string{"device/type": "7"}, ""},
		{"reduced command set", "sda", "scsi", gib, map[string]string{"device/type": "14"}, ""},
		{"optical drive", "sr0", "scsi", gib, map[string]string{"device/type": "5"}, ""},
		{"card", "mmcblk0", "pci0000:00/0000:00:08.0/mmc_host/mmc0/mmc0:0001", gib, nil, "disk 512/4096"},
		{
			"boot area", "mmcblk0boot0", "pci0000:00/0000:00:08.0/mmc_host/mmc0/mmc0:0001", 4 << 20,
			map[string]string{"ro": "1"},
			"",
		},
		{
			"second boot area, writable",
			"mmcblk10boot1", "pci0000:00/0000:00:08.0/mmc_host/mmc0/mmc0:0001", 4 << 20, nil, "",
		},
		{"replay protected memory", "mmcblk0rpmb", "pci0000:00/0000:00:08.0/mmc_host/mmc0/mmc0:0001", 4 << 20, nil, ""},
		{
			"general purpose area", "mmcblk0gp0", "pci0000:00/0000:00:08.0/mmc_host/mmc0/mmc0:0001", 4 << 20, nil,
			"disk 512/4096",
		},
		{"persistent memory", "pmem0", "", gib, nil, "disk 512/4096"},
		{
			"path of a namespace", "nvme0c0n1", "pci0000:00/0000:00:01.0/nvme/nvme0", gib,
			map[string]string{"hidden": "1"},
			"",
		},
		{"floppy", "fd0", "", 1440 << 10, nil, ""},
		{"RAM disk", "ram0", "", gib, nil, ""},
		{"compressed RAM", "zram0", "", gib, nil, ""},
		{"loop", "loop0", "", gib, nil, ""},
		{"network block device without server", "nbd0", "", 0, nil, ""},
		{"array", "md0", "", gib, map[string]string{"md/level": "raid10"}, "raid10 512/4096"},
		{"array that does not run", "md127", "", 0, map[string]string{"md/level": ""}, ""},
		{"container of arrays", "md127", "", 0, map[string]string{"md/level": "container"}, ""},
		{"concatenation", "md0", "", gib, map[string]string{"md/level": "linear"}, ""},
		{"firmware RAID", "dm-0", "", gib, map[string]string{"dm/uuid": "DMRAID-isw_a_b"}, "dmraid 512/4096"},
		{"logical volume", "dm-0", "", gib, map[string]string{"dm/uuid": "LVM-abc"}, ""},
		{"encrypted", "dm-0", "", gib, map[string]string{"dm/uuid": "CRYPT-LUKS2-abc"}, ""},
		{"map of nobody", "dm-0", "", gib, map[string]string{"dm/uuid": ""}, ""},
		{"partition of firmware RAID", "dm-1", "", gib, map[string]string{"dm/uuid": "part1-DMRAID-isw_a_b"}, ""},
	} {
		t.Run(tt.what, func(t *testing.T) {
			if tt.hardware == "scsi" {
				tt.hardware = fmt.Sprintf(scsi, n, n)
			}
			tr := newTree(t)
			tr.device(tt.name, tt.hardware, tt.size, tt.files)
			list, err := Disks(t.Context(), tr.system())
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, d := range list {
				got += fmt.Sprintf("%s %d/%d", d.Type, d.LogicalSector, d.PhysicalSector)
				for word, is := range map[string]bool{
					" read-only": d.ReadOnly, " removable": d.Removable, " " + d.Zoned: d.Zoned != "",
				} {
					if is {
						got += word
					}
				}
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The paths of a multipath map are not listed. Its partitions and other disks are. Two paths without a map are two
// disks.
func TestMultipath(t *testing.T) {
	names := func(tr tree) map[string]string {
		list, err := Disks(t.Context(), tr.system())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, d := range list {
			got[d.Name] = d.Type + " " + d.WWN
		}
		return got
	}
	const wwn = "0x600c0ff000d1a2b3c4d5e6f708091011"
	tr := newTree(t)
	for n, name := range []string{"sda", "sdb", "sdc"} {
		id := "\x60\x0c\x0f\xf0\x00\xd1\xa2\xb3\xc4\xd5\xe6\xf7\x08\x09\x10\x11"
		if name == "sdc" {
			id = "\x50\x00\xc5\x00\xa1\xb2\xc3\xd4"
		}
		tr.device(name, fmt.Sprintf("pci0000:00/0000:00:06.0/host%d/target%d:0:0/%d:0:0:0", n, n, n), gib,
			map[string]string{
				"device/type": "0", "device/vpd_pg83": page(0x83, naa(id)),
			})
	}
	paths := map[string]string{"sda": "disk " + wwn, "sdb": "disk " + wwn, "sdc": "disk 0x5000c500a1b2c3d4"}
	if diff := cmp.Diff(paths, names(tr)); diff != "" {
		t.Errorf("without a map (-want +got):\n%s", diff)
	}
	tr.device("dm-0", "", gib,
		map[string]string{"dm/uuid": "mpath-3600c0ff000d1a2b3c4d5e6f708091011", "dm/name": "mpatha"})
	for _, path := range []string{"sda", "sdb"} {
		tr.link("sys/class/block/"+path, "sys/devices/virtual/block/dm-0/slaves/"+path)
	}
	const id = "-mpath-3600c0ff000d1a2b3c4d5e6f708091011"
	for name, uuid := range map[string]string{
		"dm-7": "part1" + id, "dm-3": "part12" + id, "dm-4": "part2-mpath-other", "dm-5": "LVM-abc",
		"dm-6": "part0" + id,
	} {
		tr.device(name, "", gib/2, map[string]string{"dm/uuid": uuid, "queue/logical_block_size": "4096"})
		tr.link("sys/class/block/"+name, "sys/devices/virtual/block/dm-0/holders/"+name)
		tr.link("sys/class/block/dm-0", "sys/devices/virtual/block/"+name+"/slaves/dm-0")
	}
	tr.device("md5", "", gib/2, map[string]string{"md/level": "raid1"})
	tr.link("sys/class/block/dm-7", "sys/devices/virtual/block/md5/slaves/dm-7")
	want := maps.Clone(paths)
	delete(want, "sda")
	delete(want, "sdb")
	want["dm-0"], want["md5"] = "mpath "+wwn, "raid1 "
	if diff := cmp.Diff(want, names(tr)); diff != "" {
		t.Errorf("with a map (-want +got):\n%s", diff)
	}
	components, err := Components(tr.system(), "/dev/dm-0")
	if diff := cmp.Diff([]string{"/dev/sda", "/dev/sdb"}, components); err != nil || diff != "" {
		t.Errorf("components: %v, -want +got:\n%s", err, diff)
	}
	components, err = Components(tr.system(), "md5")
	if diff := cmp.Diff([]string{"/dev/dm-7", "/dev/dm-0"}, components); err != nil || diff != "" {
		t.Errorf("components of an array on the map: %v, -want +got:\n%s", err, diff)
	}
	parts, err := Partitions(t.Context(), tr.system(), "/dev/dm-0")
	if err != nil || len(parts) != 2 {
		t.Fatalf("partitions: got %v and %v, want two", parts, err)
	}
	for i, want := range []Device{{Path: "/dev/dm-7", Number: 1}, {Path: "/dev/dm-3", Number: 12}} {
		got := parts[i]
		if got.Path != want.Path || got.Number != want.Number || got.Type != "part" || got.LogicalSector != 4096 {
			t.Errorf("partition: got %+v, want %s, of the map's own sectors", got, want.Path)
		}
		if path := PartitionPath(tr.system(), "/dev/dm-0", want.Number); path != want.Path {
			t.Errorf("path of partition %d: got %s, want %s", want.Number, path, want.Path)
		}
	}
	for disk, want := range map[string]string{
		"dm-0": "mpath-3600c0ff000d1a2b3c4d5e6f708091011", "dm-7": "", "sda": "", "md5": "", "none": "",
	} {
		if got := MapUUID(tr.system(), disk); got != want {
			t.Errorf("map UUID of %s: got %q, want %q", disk, got, want)
		}
	}
	if disk, err := Find(tr.system(), "dm-0"); err != nil || len(disk.ByPaths) != 2 ||
		disk.WWID != "3600c0ff000d1a2b3c4d5e6f708091011" {
		t.Errorf("got %+v and %v, want the map to be known by the places of its paths", disk, err)
	}
}
