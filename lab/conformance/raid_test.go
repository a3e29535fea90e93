//go:build linux

package conformance

import (
	"maps"
	"slices"

	"ironroot/lab/qemu"
)

// raid contains the scenarios that create software RAID on disks without any.
func raid() group {
	return raidGroup("raid", slices.Concat(raidLevels(), raidBoot()), "level 1 and 0", "level 1 and 6", "nvme",
		"separate disks", "hints", "volume_name", "volume_name of 30", "size fraction", "bios", "bios gpt")
}

// raidGroup returns a group in a machine with six disks for software RAID. In the machine of ironic-python-agent, the
// kernel starts new arrays read-only until the first write, because their resync would keep an emulated machine busy.
// Each scenario that creates or deletes arrays begins without arrays, on disks that are all zeros, so that it does not
// matter how far a resync has got. With ironic-python-agent it takes up to two minutes, with this ramdisk several
// seconds if arrays are created. short names the scenarios that also run without the tag long.
func raidGroup(name string, scenarios []scenario, short ...string) group {
	// modprobe in the machine of ironic-python-agent reads the agent's parameters as the kernel's command line.
	// Ironroot's kernel does not, so that they have no effect there. With create_on_open, a slow udev creates the
	// device of a deleted array again, without members, which ironic-python-agent can never delete.
	g := group{
		name: name, shared: true, shape: shape{append: noMultipath},
		start: scenario{cmdline: noMultipath + " md_mod.start_ro=1 md_mod.create_on_open=0"},
	}
	for _, serial := range []string{"D1", "D2", "D3", "D4"} {
		g.shape.disks = append(g.shape.disks, disk{Disk: qemu.Disk{Bus: qemu.SCSI, Size: 4 * gib, Serial: serial}})
	}
	for _, serial := range []string{"N1", "N2"} {
		g.shape.disks = append(g.shape.disks, disk{Disk: qemu.Disk{Bus: qemu.NVMe, Size: 4 * gib, Serial: serial}})
	}
	for _, s := range scenarios {
		s.long = len(s.clear) > 0 && !s.unwritten && !slices.Contains(short, s.name)
		g.scenarios = append(g.scenarios, s)
	}
	return g
}

// array is an entry of logical_disks on the disks with the given serial numbers, or on all disks.
func array(level string, size any, serials ...string) object {
	entry := object{"controller": "software", "raid_level": level, "size_gb": size}
	if len(serials) > 0 {
		entry["physical_disks"] = bySerial(serials...)
	}
	return entry
}

func bySerial(serials ...string) []any {
	var hints []any
	for _, serial := range serials {
		hints = append(hints, object{"serial": serial})
	}
	return hints
}

// with returns an object with other values for some keys. nil removes a key.
func with(o, replaced object) object {
	result := joined(o, replaced)
	maps.DeleteFunc(result, func(_ string, value any) bool { return value == nil })
	return result
}

func arrays(entries ...any) object { return object{"logical_disks": entries} }

// createArrays is the step create_configuration. Keys of node replace keys of the usual one.
func createArrays(config any, node object) request {
	node = with(object{"target_raid_config": config}, node)
	return step("clean", "create_configuration", node, object{"interface": "raid"})
}

// withoutArrays returns a scenario that begins without arrays, on empty disks.
func withoutArrays(name string, disks []string, do ...request) scenario {
	return scenario{
		name: name, disks: disks, clear: []request{deleteArrays(nil)}, prepared: "blank", before: blank, do: do,
	}
}

// creation is a scenario that creates arrays.
func creation(name string, config any, node object, disks ...string) scenario {
	return withoutArrays(name, disks, createArrays(config, node))
}

func deleteArrays(node object) request {
	return step("clean", "delete_configuration", node, object{"interface": "raid"})
}

func raidLevels() []scenario {
	mirror := array("1", 1, "D1", "D2")
	four := []string{"D1", "D2", "D3", "D4"}
	named := func(name string) object { return with(mirror, object{"volume_name": name}) }
	return []scenario{
		creation("level 1 MAX", arrays(array("1", "MAX", "D1", "D2")), nil, "D1", "D2"),
		creation("level 1", arrays(mirror), nil, "D1", "D2"),
		creation("level 1 and 0", arrays(mirror, array("0", "MAX", "D1", "D2")), nil, "D1", "D2"),
		creation("level 1 and 1+0", arrays(array("1", 1, "D1", "D2", "D3", "D4"),
			array("1+0", "MAX", "D1", "D2", "D3", "D4")), nil, four...),
		creation("level 1 and 5", arrays(array("1", 1, "D1", "D2", "D3"), array("5", "MAX", "D1", "D2", "D3")), nil,
			four[:3]...),
		creation("level 1 and 6", arrays(array("1", 1, "D1", "D2", "D3", "D4"),
			array("6", 2, "D1", "D2", "D3", "D4")), nil, four...),
		creation("all disks", arrays(array("1", 1), array("6", "MAX")), nil, append(four, "N1", "N2")...),
		creation("MAX first", arrays(array("1", "MAX", "D1", "D2"), array("1", 1, "D1", "D2")), nil, "D1", "D2"),
		creation("separate disks", arrays(mirror, array("0", "MAX", "D3", "D4")), nil, "D1", "D2", "D3", "D4"),
		creation("disks in common", arrays(mirror, array("0", 2, "D2", "D3")), nil, "D1", "D2", "D3"),
		creation("nvme", arrays(array("1", 1, "N1", "N2"), array("0", "MAX", "N1", "N2")), nil, "N1", "N2"),
		creation("scsi and nvme", arrays(array("1", "MAX", "D4", "N1")), nil, "D4", "N1"),
		creation("volume_name", arrays(named("root.vol-1_A")), nil, "D1", "D2"),
		creation("volume_name of 30", arrays(named("abcdefghijklmnopqrstuvwxyz1234")), nil, "D1", "D2"),
		creation("size text", arrays(array("1", "1", "D1", "D2")), nil, "D1", "D2"),
		creation("size fraction", arrays(array("1", 1.5, "D1", "D2")), nil, "D1", "D2"),
		creation("more keys", with(arrays(with(mirror, object{
			"disk_type": "hdd", "interface_type": "scsi", "number_of_physical_disks": 2, "share_physical_disks": true,
			"raid_type": "mirror", "is_root_volume": false,
		})), object{"last_updated": "2026-01-01", "more": []any{1}}), nil, "D1", "D2"),
		creation("is_root_volume", arrays(with(mirror, object{"is_root_volume": true}),
			array("0", "MAX", "D1", "D2")), nil, "D1", "D2"),
		creation("hints", arrays(with(mirror, object{"physical_disks": []any{
			object{"hctl": "<in> :0:3:0"}, object{"size": 4, "serial": "s== D3"},
		}})), nil, "D3", "D4"),
		creation("hints with operators", arrays(with(mirror, object{"physical_disks": []any{
			object{"serial": "<or> N2 <or> D4"}, object{"size": ">= 4", "serial": "<in> 2"},
		}})), nil, "D1", "D2", "D4", "N2"),
		creation("the same hint twice", arrays(with(mirror, object{"physical_disks": []any{
			object{"serial": "<in> N"}, object{"serial": "<in> N"},
		}})), nil, "N1", "N2"),
	}
}

func raidBoot() []scenario {
	config := arrays(array("1", 1, "D1", "D2"), array("0", "MAX", "D1", "D2"))
	mode := func(capabilities string) object { return object{"properties": object{"capabilities": capabilities}} }
	return []scenario{
		creation("bios", config, mode("boot_mode:bios"), "D1", "D2"),
		creation("bios gpt", config, mode("boot_mode:bios,disk_label:gpt"), "D1", "D2"),
		creation("bios msdos", config, mode("boot_mode:bios,disk_label:msdos"), "D1", "D2"),
		creation("mode of the ramdisk", config, mode(""), "D1", "D2"),
		creation("secure boot", config, mode("boot_mode:bios,secure_boot:true"), "D1", "D2"),
		creation("mode of the instance", config, object{
			"properties":    object{"capabilities": "boot_mode:uefi"},
			"instance_info": object{"deploy_boot_mode": "bios"},
		}, "D1", "D2"),
	}
}
