//go:build linux

package conformance

import (
	"fmt"
	"slices"
	"strings"

	"ironroot/lab/qemu"
)

// erase, metadata and skip contain the scenarios of steps that erase disks. Each scenario of erase and metadata has a
// disk of its own. The scenarios of skip share smallDisks. Disks are prepared before the machine starts, because it
// does not notice later changes. All disks that a scenario does not erase are protected. There are three groups because
// ironic-python-agent runs several programs for each disk of a machine.
func erase() group { return erasing("erase", slices.Concat(eraseAll(), eraseExpress())) }

func metadata() group { return erasing("metadata", eraseMetadata()) }

func skip() group {
	g := erasing("skip", nil)
	g.scenarios = append(eraseSeveral(g.only), eraseSkipped(g.only)...)
	return g
}

// erasing returns a group of scenarios that erase one disk each. If erasures is empty, its disks are smallDisks.
func erasing(name string, erasures []erasure) group {
	g := group{name: name, shared: true, shape: shape{disks: []disk{{
		Disk: qemu.Disk{Bus: qemu.SCSI, Size: 5 * gib, Serial: "ROOT"},
	}}}}
	g.start.config = "disk_wait_attempts = 1\n" // the first command would wait for a root disk that is not protected
	for _, e := range erasures {
		g.shape.disks = append(g.shape.disks, e.disk)
	}
	if len(erasures) == 0 {
		g.shape.disks = append(g.shape.disks, smallDisks()...)
	}
	for _, e := range erasures {
		node := object{"properties": g.only(e.disk.Serial), "driver_internal_info": e.internal}
		g.scenarios = append(g.scenarios, scenario{
			name: e.name, disks: []string{e.disk.Serial}, passes: e.step == "erase_devices",
			do: []request{step("clean", e.step, node, nil)},
		})
	}
	return g
}

// only returns properties of a node that protect all disks of the group but those with the serial numbers.
func (g group) only(serials ...string) object {
	others := ""
	for _, d := range g.shape.disks {
		if !slices.Contains(serials, d.Serial) {
			others += " <or> " + d.Serial
		}
	}
	return skipping(object{"serial": strings.TrimSpace(others)})
}

// erasure is a scenario that erases one disk.
type erasure struct {
	name     string
	disk     disk
	step     string
	internal object // driver_internal_info
}

// skipping returns properties of a node that protect disks.
func skipping(hints ...any) object { return object{"skip_block_devices": hints} }

// smallDiskSize is the size of most disks.
const smallDiskSize = 32 * mib

// full is a disk that is full of the planted text.
func full(d qemu.Disk) disk {
	if d.Size == 0 {
		d.Size = smallDiskSize
	}
	return disk{Disk: d, prepare: func(path string) error { return plant(path, 0, d.Size) }}
}

func scsi(serial string) qemu.Disk { return qemu.Disk{Bus: qemu.SCSI, Serial: serial, NoDiscard: true} }

func eraseAll() []erasure {
	one := func(name string, d disk, internal object) erasure {
		return erasure{name: "all/" + name, disk: d, step: "erase_devices", internal: internal}
	}
	on := func(bus qemu.Bus, serial string) disk {
		return full(qemu.Disk{Bus: bus, Serial: serial, NoDiscard: true})
	}
	return []erasure{
		one("scsi", full(scsi("A1")), nil),
		one("no zeros", full(scsi("A2")), object{"agent_erase_devices_zeroize": false}),
		one("three passes", full(scsi("A3")), object{"agent_erase_devices_iterations": 3}),
		one("zeros only", full(scsi("A4")), object{"agent_erase_devices_iterations": 0}),
		one("no passes", full(scsi("A5")), object{
			"agent_erase_devices_iterations": 0,
			"agent_erase_devices_zeroize":    false,
		}),
		one("iterations text", full(scsi("A6")), object{"agent_erase_devices_iterations": "2"}),
		one("iterations of no number", full(scsi("A7")), object{"agent_erase_devices_iterations": "many"}),
		one("zeroize text", full(scsi("A8")), object{"agent_erase_devices_zeroize": "False"}),
		one("4096", full(qemu.Disk{Bus: qemu.SCSI, Serial: "A10", Sector: 4096, NoDiscard: true}), nil),
		one("sata", on(qemu.SATA, "A11"), nil),
		one("virtio", on(qemu.Virtio, "A14"), nil),
		one("nvme", on(qemu.NVMe, "A15"), nil),
		one("nvme without secure erase", on(qemu.NVMe, "A16"), object{"agent_enable_nvme_secure_erase": false}),
		one("partitions", disk{Disk: scsi("A18"), prepare: gpt("ext4", "planted")}, nil),
		one("discard", full(qemu.Disk{Bus: qemu.SCSI, Serial: "A20"}), object{"agent_enable_discard_erase": true}),
		one("superblock of an array", disk{
			Disk: scsi("A21"), prepare: sequence(sized(memberSize), member("raid1-1.2", 4096)),
		}, nil),
	}
}

func eraseMetadata() []erasure {
	var scenarios []erasure
	for i, tt := range []struct {
		name    string
		disk    qemu.Disk
		prepare func(string) error
	}{
		{"planted", qemu.Disk{}, func(path string) error { return plant(path, 0, smallDiskSize) }},
		{"gpt", qemu.Disk{}, gpt("ext4", "planted")},
		{"gpt on nvme", qemu.Disk{Bus: qemu.NVMe}, gpt("ext4", "planted")},
		{"gpt 4096", qemu.Disk{Sector: 4096}, gpt4096},
		{"backup gpt only", qemu.Disk{}, backupGPT},
		{"protective mbr only", qemu.Disk{}, protectiveMBR},
		{"mbr", qemu.Disk{}, dosTable("start=2048, size=32768, type=83, bootable\nstart=34816, type=c\n", 1)},
		{
			"mbr with logical partitions",
			qemu.Disk{},
			dosTable("start=2048, size=32768, type=83\nstart=34816, type=5\n"+
				"start=36864, size=20480, type=83\nstart=59392, type=83\n", 5),
		},
		{"ext4", qemu.Disk{}, makeFS("ext4")},
		{"vfat", qemu.Disk{}, makeFS("vfat")},
		{"xfs", qemu.Disk{Size: 320 * mib}, makeFS("xfs")},
		{"btrfs", qemu.Disk{Size: 128 * mib}, makeFS("btrfs")},
		{"iso", qemu.Disk{}, makeISO},
		{"lvm", qemu.Disk{}, physicalVolume(0)},
		{"lvm on a partition", qemu.Disk{}, partitioned(physicalVolume(mib))},
		{"luks", qemu.Disk{}, luks(1)},
		{"zfs", qemu.Disk{Size: 64 * mib}, zfs},
		{"two file systems", qemu.Disk{}, sequence(makeFS("ext4"), luks(1))},
		{"superblock of an array 1.2", qemu.Disk{Size: memberSize}, member("raid1-1.2", 4096)},
		{"gpt with a superblock", qemu.Disk{}, partitioned(member("raid1-1.2", mib+4096))},
	} {
		d := tt.disk
		d.Serial, d.NoDiscard = fmt.Sprintf("M%d", i+1), true
		if d.Bus == "" {
			d.Bus = qemu.SCSI
		}
		if d.Size == 0 {
			d.Size = smallDiskSize
		}
		scenarios = append(scenarios, erasure{
			name: "metadata/" + tt.name, disk: disk{Disk: d, prepare: sequence(sized(d.Size), tt.prepare)},
			step: "erase_devices_metadata",
		})
	}
	return scenarios
}

func eraseExpress() []erasure {
	one := func(name, serial string, bus qemu.Bus, internal object) erasure {
		return erasure{
			name: "express/" + name, step: "erase_devices_express", internal: internal,
			disk: disk{
				Disk:    qemu.Disk{Bus: bus, Serial: serial, Size: smallDiskSize, NoDiscard: true},
				prepare: gpt("ext4", "planted"),
			},
		}
	}
	return []erasure{
		one("scsi", "X1", qemu.SCSI, nil),
		one("sata", "X2", qemu.SATA, nil),
		one("nvme", "X3", qemu.NVMe, nil),
		one("nvme without secure erase", "X4", qemu.NVMe, object{"agent_enable_nvme_secure_erase": false}),
	}
}

// smallDisks returns the disks that the scenarios of skip name: two pairs to erase together, one to erase alone, two
// that stay, one that is read-only, and two with partitions that other machines share.
func smallDisks() []disk {
	readOnly := full(scsi("RO"))
	readOnly.ReadOnly = true
	return []disk{
		full(scsi("B1")), full(scsi("B2")), full(scsi("B3")), full(scsi("B4")), full(scsi("B5")), full(scsi("KEPT")),
		full(scsi("NEGATED")), readOnly,
		{Disk: scsi("VMFS"), prepare: sequence(sized(smallDiskSize), dosTable("start=2048, type=fb\n", 1))},
		{Disk: scsi("VMFS2"), prepare: sequence(sized(smallDiskSize), dosTable("start=2048, type=fb\n", 1))},
	}
}

func eraseSeveral(only func(...string) object) []scenario {
	readOnly := object{"properties": only("RO")}
	skipReadOnly := object{"properties": only("RO"), "driver_internal_info": object{"agent_erase_skip_read_only": true}}
	guarded := object{"properties": only("VMFS")}
	unguarded := object{"properties": only("VMFS2"), "driver_internal_info": object{"wipe_special_filesystems": false}}
	erase := func(name, step_ string, node object, disks ...string) scenario {
		return scenario{
			name: name, disks: disks, passes: step_ == "erase_devices", do: []request{step("clean", step_, node, nil)},
		}
	}
	return []scenario{
		erase("several/in parallel", "erase_devices", object{
			"properties": only("B1", "B2"), "driver_internal_info": object{"disk_erasure_concurrency": 4},
		}, "B1", "B2", "KEPT"),
		erase("several/metadata", "erase_devices_metadata", object{"properties": only("B3", "B4")}, "B3", "B4",
			"KEPT"),
		erase("several/concurrency 0", "erase_devices", object{
			"properties": only("B5"), "driver_internal_info": object{"disk_erasure_concurrency": 0},
		}, "B5"),
		erase("read-only/all", "erase_devices", readOnly, "RO"),
		erase("read-only/all permitted", "erase_devices", skipReadOnly, "RO"),
		erase("read-only/metadata", "erase_devices_metadata", readOnly, "RO"),
		erase("read-only/metadata permitted", "erase_devices_metadata", skipReadOnly, "RO"),
		erase("read-only/express", "erase_devices_express", readOnly, "RO"),
		erase("shared/metadata", "erase_devices_metadata", guarded, "VMFS"),
		erase("shared/express", "erase_devices_express", guarded, "VMFS"),
		erase("shared/all", "erase_devices", guarded, "VMFS"),
		erase("shared/permitted", "erase_devices_metadata", unguarded, "VMFS2"),
	}
}

// eraseSkipped are scenarios that must not erase KEPT or NEGATED.
func eraseSkipped(only func(...string) object) []scenario {
	var scenarios []scenario
	add := func(name, step_ string, properties object, disks ...string) {
		scenarios = append(scenarios, scenario{
			name: "skip/" + name, disks: disks, passes: step_ == "erase_devices",
			do: []request{step("clean", step_, object{"properties": properties}, nil)},
		})
	}
	all := object{"size": "<= 100"}
	for _, step := range []string{"erase_devices", "erase_devices_metadata", "erase_devices_express"} {
		add("all "+step, step, skipping(all), "KEPT")
		add("unknown and all "+step, step, skipping(object{"serial": "UNKNOWN"}, all), "KEPT")
		add("volume and all "+step, step, skipping(object{"volume_name": "none"}, all), "KEPT")
	}
	add("by name pattern", "erase_devices", skipping(object{"name": "<in> /dev/"}), "KEPT")
	others := only("KEPT")["skip_block_devices"].([]any)[0]
	kept := func(name string, hint any) {
		add(name, "erase_devices_metadata", skipping(hint, others), "KEPT")
	}
	kept("several keys", object{"serial": "KEPT", "size": "<= 100"})
	kept("by or", object{"serial": "<or> KEPT <or> ROOT"})
	kept("by in", object{"serial": "<in> EPT"})
	kept("in small letters", object{"serial": "kept"})
	add("negated", "erase_devices_metadata", skipping(object{"serial": "s!= NEGATED"}), "NEGATED")
	add("by name", "erase_devices_metadata", skipping(object{"name": "/dev/sda"}, all), "KEPT")
	add("unknown key", "erase_devices_metadata", skipping(all, object{"colour": "red"}), "KEPT")
	add("invalid size", "erase_devices_metadata", skipping(all, object{"size": "large"}), "KEPT")
	add("list of texts", "erase_devices_metadata", skipping(all, "KEPT"), "KEPT")
	add("text", "erase_devices_metadata", object{"skip_block_devices": "KEPT"}, "KEPT")
	return scenarios
}
