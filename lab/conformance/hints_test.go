//go:build linux

package conformance

import (
	"crypto/sha256"
	"encoding/hex"

	"ironroot/lab/qemu"
)

// hintMarker is a text in the image that the scenarios of hints deploy.
const hintMarker = "the image of the conformance suite for hints"

// The world wide names of the disks for hints.
const (
	scsiWWN = 0x5000c50015ea71ac
	sataWWN = 0x50014ee20b3f4a77
)

// hints are the scenarios of the choice of the root disk. The names of SCSI, SATA and USB disks depend on the order in
// which the kernel finds them, so that no scenario selects several of them. All of them precede virtio disks, and those
// precede NVMe disks.
func hints() group {
	g := group{name: "hints", shared: true, start: scenario{
		cmdline: "ipa-image-download-connection-retries=0 ipa-disk-wait-attempts=1",
	}}
	g.shape = shape{
		disks: []disk{
			{Disk: qemu.Disk{Bus: qemu.Virtio, Size: 6 * gib, Serial: "virt-A"}},
			{Disk: qemu.Disk{Bus: qemu.Virtio, Size: 5 * gib, Serial: "VIRT B"}},
			{Disk: qemu.Disk{Bus: qemu.SCSI, Size: 7 * gib, Serial: "SCSI-7F", WWN: scsiWWN}},
			{Disk: qemu.Disk{Bus: qemu.SCSI, Size: 7*gib + 512*mib, Serial: "SCSI-4K", Sector: 4096}},
			{Disk: qemu.Disk{Bus: qemu.SATA, Size: 8 * gib, Serial: "WD-77", WWN: sataWWN}},
			{Disk: qemu.Disk{Bus: qemu.NVMe, Size: 4*gib + 256*mib, Serial: "nvme0815"}},
			{Disk: qemu.Disk{Bus: qemu.USB, Size: 8 * gib, Serial: "USBSTICK1"}},
			{Disk: qemu.Disk{Bus: qemu.Virtio, Size: 3 * gib, Serial: "SMALL"}},
		},
		extra: []string{
			"-set", "device.disk2.vendor=ACME", "-set", "device.disk2.product=Fast Disk X1",
			"-set", "device.disk2.rotation_rate=1", "-set", "device.disk3.vendor=ACME",
			"-set", "device.disk3.product=100", "-set", "device.disk4.model=WDC WD40/EFRX: 68",
		},
	}
	image := hintImage()
	sum := sha256.Sum256(image)
	info := imageInfo("hints.raw", "hints.raw", "raw", true, object{"os_hash_value": hex.EncodeToString(sum[:])})
	g.publish = func(m *machine) { m.images.Bytes("hints.raw", image) }
	add := func(name string, properties, instance object, requests ...request) {
		node := object{"properties": properties, "instance_info": instance}
		g.scenarios = append(g.scenarios, scenario{name: name, node: node, marker: hintMarker, do: append([]request{
			hidden(command("deploy.get_deploy_steps", object{"node": nodeWith(node), "ports": ports()})),
			command("standby.prepare_image", object{"image_info": info, "configdrive": nil}),
		}, requests...)})
	}
	for _, tt := range hintTable() {
		add(tt.name, object{"root_device": tt.hints}, object{})
	}
	for _, tt := range skipTable() {
		add(tt.name, tt.properties, object{})
	}
	add("instance_info first", object{"root_device": object{"serial": "virt-A"}},
		object{"root_device": object{"serial": "VIRT B"}}, command("standby.get_partition_uuids", object{}))
	add("instance_info empty", object{"root_device": object{"serial": "virt-A"}}, object{"root_device": object{}})
	return g
}

// hintImage is an image with an MBR, one partition, and the marker.
func hintImage() []byte {
	data := make([]byte, 512<<10)
	copy(data, mbr(0x11223344, mbrPartition{0x83, 64, 128}))
	copy(data[64<<10:], hintMarker)
	return data
}

type hintRow struct {
	name  string
	hints any
}

func hintTable() []hintRow {
	var rows []hintRow
	add := func(name string, hints any) { rows = append(rows, hintRow{name, hints}) }
	one := func(name string, value any) { add(name+": "+encode(value), object{name: value}) }
	two := func(name string, value, size any) {
		add(name+": "+encode(value)+", size: "+encode(size), object{name: value, "size": size})
	}

	add("no hints", object{})
	add("null", nil)
	one("serial", "virt-A")
	one("serial", "VIRT-a")
	one("serial", " virt b ")
	one("serial", "s== VIRT B")
	one("serial", "<in> 0815")
	one("serial", "<in> ")
	one("serial", "<or> nobody <or> scsi-7f <or> none")
	one("serial", "<or> nobody")
	one("serial", "<all-in> SCSI 7F")
	one("serial", "s> vir")
	one("serial", "s>= w")
	one("serial", "nobody")
	one("serial", "virt")
	one("serial", "== virt-A")
	one("serial", "")
	one("serial", 77)
	one("serial", nil)
	one("serial", []string{"virt-A"})

	one("model", "Fast Disk X1")
	one("model", "fast  disk x1")
	one("model", "<in> disk x")
	one("model", "<in> qemu nvme")
	one("model", "QEMU NVMe Ctrl")
	one("model", "<in> wd40/efrx:")
	one("model", "none")
	one("model", "100")
	one("model", "== 100")
	one("model", ">= 100")
	one("model", "<all-in> fast disk")
	one("model", "<range-in> [ 1 2 ]")

	one("vendor", "ata")
	one("vendor", "0x1af4")
	one("vendor", "none")
	two("vendor", "acme", 7)
	two("vendor", "s!= acme", 7)

	one("wwn", "0x5000c50015ea71ac")
	one("wwn", "0X5000C50015EA71AC")
	one("wwn", "5000c50015ea71ac")
	one("wwn", "<in> 50014ee2")
	one("wwn", "none")
	one("wwn", "<in> nvme")
	one("wwn", "s!= 0x5000c50015ea71ac")
	one("wwn_with_extension", "0x5000c50015ea71ac")
	one("wwn_with_extension", "0x50014ee20b3f4a77")
	one("wwn_vendor_extension", "0x50014ee20b3f4a77")

	one("size", 5)
	one("size", "5")
	one("size", 4)
	one("size", "== 6")
	one("size", "<= 3")
	one("size", "< 4")
	one("size", "<or> 5 <or> 6")
	one("size", "<in> 5")
	one("size", "s== 5")
	one("size", "s< 6")
	one("size", "<range-in> [ 4 5 ]")
	one("size", "<all-in> 5")
	one("size", 0)
	one("size", -5)
	one("size", 5.5)
	one("size", "5.0")
	one("size", "five")
	one("size", "")
	one("size", true)
	one("size", nil)
	one("size", ">= 5 <= 5")
	one("size", "99999999999999999999")

	two("rotational", false, 7)
	two("rotational", true, 5)
	two("rotational", "false", "<= 4")
	two("rotational", "no", 7)
	two("rotational", "0", 7)
	two("rotational", 1, 5)
	one("rotational", false)
	one("rotational", "maybe")
	one("rotational", nil)
	one("rotational", "")
	one("rotational", 2)

	one("name", "/dev/nvme0n1")
	one("name", "/DEV/VDA")
	one("name", "s== /dev/vdb")
	one("name", "<in> nvme")
	one("name", "vda")
	one("name", "/dev/disk/by-id/nvme")
	one("name", "<or> /dev/nvme9n1 <or> /dev/vdb")
	one("hctl", "<in> :0:2:0")
	one("hctl", "<in> :0:3:")
	one("hctl", "9:9:9:9")
	one("hctl", "none")
	one("tran", "nvme")
	one("tran", "usb")
	one("tran", "sata")

	add("serial and size", object{"serial": "virt-A", "size": 6})
	add("serial and another size", object{"serial": "virt-A", "size": 5})
	add("vendor, rotational and size", object{"vendor": "acme", "rotational": false, "size": ">= 4"})
	add("vendor, model and serial", object{"vendor": "<in> ac", "model": "<in> disk", "serial": "s>= scsi"})
	add("unknown key", object{"serial": "virt-A", "colour": "blue"})
	add("upper case key", object{"Serial": "virt-A"})
	add("volume_name", object{"volume_name": "data"})
	add("a text", "virt-A")
	add("a list", []object{{"serial": "virt-A"}})
	return rows
}

type skipRow struct {
	name       string
	properties object
}

func skipTable() []skipRow {
	var rows []skipRow
	add := func(name string, skip, root any) {
		properties := object{"skip_block_devices": skip}
		if root != nil {
			properties["root_device"] = root
		}
		rows = append(rows, skipRow{"skip " + name, properties})
	}
	add("the default", []object{{"serial": "nvme0815"}}, nil)
	add("two", []object{{"serial": "nvme0815"}, {"serial": "virt b"}}, nil)
	add("by size", []object{{"size": "<= 5"}}, nil)
	add("by two hints", []object{{"serial": "nvme0815", "size": 5}}, nil)
	add("all", []object{{"size": "> 0"}}, nil)
	add("all but a small one", []object{{"size": ">= 4"}}, nil)
	add("the hinted disk", []object{{"serial": "virt-A"}}, object{"serial": "virt-A"})
	add("another disk", []object{{"serial": "virt b"}}, object{"serial": "virt-A"})
	add("one of the hinted disks", []object{{"serial": "scsi-7f"}}, object{"vendor": "acme"})
	add("nothing", []object{}, nil)
	add("an absent disk", []object{{"serial": "nobody"}}, nil)
	add("a volume", []object{{"volume_name": "data"}}, nil)
	add("a volume and a disk", []object{{"volume_name": "data"}, {"serial": "nvme0815"}}, nil)
	add("invalid hint", []object{{"colour": "blue"}}, nil)
	add("invalid size", []object{{"size": "large"}}, object{"serial": "virt-A"})
	add("an empty entry", []object{{}}, nil)
	add("no list", object{"serial": "nvme0815"}, nil)
	add("null", nil, nil)
	return rows
}
