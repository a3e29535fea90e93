//go:build linux

package conformance

import (
	"maps"
	"slices"
	"strings"

	"ironroot/lab/qemu"
)

// raid contains the recorded scenarios of software RAID. Those that write to disks take several seconds each: all but
// the ones in short run only with make test-long.
func raid() group {
	unrecorded := unrecordedArrays().scenarios
	g := raidGroup("raid", func(name string) bool {
		return !slices.ContainsFunc(unrecorded, func(s scenario) bool { return s.name == name })
	})
	short := []string{
		"level 1 and 0", "level 1 and 6", "nvme", "separate disks", "volume_name", "volume_name of 30", "size fraction",
		"delete/two", "delete/nothing", "delete/arguments", "apply/delete_existing", "apply/too large", "apply/empty",
		"apply/other disks", "apply/no software",
	}
	for i, s := range g.scenarios {
		refused := strings.HasPrefix(s.name, "invalid/") || strings.HasPrefix(s.name, "refused/")
		g.scenarios[i].long = !refused && !slices.Contains(short, s.name)
	}
	return g
}

// unrecordedArrays contains the scenarios of software RAID without a recording. In an emulated machine, parted and
// mdadm take a minute for each.
func unrecordedArrays() group {
	names := []string{"all disks", "MAX first", "hints", "the same hint twice"}
	for _, s := range slices.Concat(raidKeep(), raidBoot(), raidRejectedAfterWrites()) {
		names = append(names, s.name)
	}
	return raidGroup("arrays", func(name string) bool { return slices.Contains(names, name) })
}

// raidGroup returns a group of the scenarios of software RAID for which want returns true. In the machine of
// ironic-python-agent, the kernel starts new arrays read-only until the first write, because their resync would keep an
// emulated machine busy. Disks are zeros outside of what the steps write, so that it does not matter how far a resync
// has got.
func raidGroup(name string, want func(name string) bool) group {
	// modprobe in the machine of ironic-python-agent reads the agent's parameters as the kernel's command line.
	// Ironroot's kernel does not, so that start_ro has no effect there.
	g := group{
		name: name, shared: true, shape: shape{append: noMultipath},
		start: scenario{cmdline: noMultipath + " md_mod.start_ro=1"},
	}
	for _, serial := range []string{"D1", "D2", "D3", "D4"} {
		g.shape.disks = append(g.shape.disks, disk{Disk: qemu.Disk{Bus: qemu.SCSI, Size: 4 * gib, Serial: serial}})
	}
	for _, serial := range []string{"N1", "N2"} {
		g.shape.disks = append(g.shape.disks, disk{Disk: qemu.Disk{Bus: qemu.NVMe, Size: 4 * gib, Serial: serial}})
	}
	all := slices.Concat(raidInvalid(), raidDelete(), raidLevels(), raidApply(), raidKeep(), raidBoot(),
		raidRejectedAfterWrites())
	for _, s := range all {
		s.others = !strings.HasPrefix(s.name, "invalid/") && !strings.HasPrefix(s.name, "refused/")
		if want(s.name) {
			g.scenarios = append(g.scenarios, s)
		}
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

// noArrays deletes the arrays of an earlier scenario.
func noArrays() []request { return []request{hidden(deleteArrays(nil))} }

// noTables also erases the partition tables that a failed step left.
func noTables() []request {
	return append(noArrays(), hidden(step("clean", "erase_devices_metadata", nil, nil)))
}

// createArrays is the step create_configuration. Keys of node replace those of the usual one.
func createArrays(config any, node object) request {
	node = with(object{"target_raid_config": config}, node)
	return step("clean", "create_configuration", node, object{"interface": "raid"})
}

func deleteArrays(node object) request {
	return step("clean", "delete_configuration", node, object{"interface": "raid"})
}

func applyArrays(args object) request {
	return step("deploy", "apply_configuration", nil, object{"interface": "raid", "args": args})
}

// creation is a scenario that creates arrays on disks without any.
func creation(name string, config any, node object, disks ...string) scenario {
	return scenario{name: name, disks: disks, do: append(noArrays(), createArrays(config, node))}
}

func raidLevels() []scenario {
	mirror := array("1", 1, "D1", "D2")
	named := func(name string) object { return with(mirror, object{"volume_name": name}) }
	return []scenario{
		creation("level 1 MAX", arrays(array("1", "MAX", "D1", "D2")), nil, "D1", "D2"),
		creation("level 1", arrays(mirror), nil, "D1", "D2"),
		creation("level 1 and 0", arrays(mirror, array("0", "MAX", "D1", "D2")), nil, "D1", "D2"),
		creation("level 1 and 1+0", arrays(array("1", 1, "D1", "D2", "D3", "D4"),
			array("1+0", "MAX", "D1", "D2", "D3", "D4")), nil,
			"D1", "D4"),
		creation("level 1 and 5", arrays(array("1", 1, "D1", "D2", "D3"), array("5", "MAX", "D1", "D2", "D3")), nil,
			"D1", "D3"),
		creation("level 1 and 6", arrays(array("1", 1, "D1", "D2", "D3", "D4"),
			array("6", 2, "D1", "D2", "D3", "D4")), nil, "D2", "D4"),
		creation("all disks", arrays(array("1", 1), array("6", "MAX")), nil, "D1", "D4", "N1", "N2"),
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
			array("0", "MAX", "D1", "D2")), nil, "D1"),
		creation("hints", arrays(with(mirror, object{"physical_disks": []any{
			object{"name": "/dev/nvme0n1"}, object{"size": 4, "serial": "s== D3"},
		}})), nil, "D3"),
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
		creation("bios", config, mode("boot_mode:bios"), "D1"),
		creation("bios gpt", config, mode("boot_mode:bios,disk_label:gpt"), "D1"),
		creation("bios msdos", config, mode("boot_mode:bios,disk_label:msdos"), "D1"),
		creation("mode of the ramdisk", config, mode(""), "D1"),
		creation("secure boot", config, mode("boot_mode:bios,secure_boot:true"), "D1"),
		creation("mode of the instance", config, object{
			"properties":    object{"capabilities": "boot_mode:uefi"},
			"instance_info": object{"deploy_boot_mode": "bios"},
		}, "D1"),
	}
}

// raidInvalid are configurations that are refused, or contain no software RAID.
func raidInvalid() []scenario {
	mirror := array("1", 1, "D1", "D2")
	second := array("0", 1, "D1", "D2")
	var scenarios []scenario
	for _, tt := range []struct {
		name   string
		config any
		node   object
	}{
		{name: "no configuration", config: nil},
		{name: "empty configuration", config: object{}},
		{name: "configuration of text", config: "text"},
		{name: "configuration of a list", config: []any{mirror}},
		{name: "no entries", config: arrays([]any{}...)},
		{name: "entries null", config: object{"logical_disks": nil}},
		{name: "entries of text", config: object{"logical_disks": "text"}},
		{name: "entry of text", config: arrays("text")},
		{name: "other keys only", config: object{"other": 1}},
		{name: "no controller", config: arrays(with(mirror, object{"controller": nil}))},
		{name: "other controller", config: arrays(with(mirror, object{"controller": "RAID.Integrated.1-1"}))},
		{name: "two controllers", config: arrays(mirror, with(second, object{"controller": "RAID.Integrated.1-1"}))},
		{name: "second without a controller", config: arrays(mirror, with(second, object{"controller": nil}))},
		{name: "controller in capitals", config: arrays(with(mirror, object{"controller": "Software"}))},
		{name: "three arrays", config: arrays(mirror, second, array("1", 2, "D1", "D2"))},
		{name: "first of level 0", config: arrays(array("0", 1, "D1", "D2"))},
		{name: "first of level 5", config: arrays(array("5", 1, "D1", "D2", "D3"), mirror)},
		{name: "first of level 1+0", config: arrays(array("1+0", 1, "D1", "D2", "D3", "D4"))},
		{name: "second of level 3", config: arrays(mirror, with(second, object{"raid_level": "3"}))},
		{name: "second of level 10", config: arrays(mirror, with(second, object{"raid_level": "10"}))},
		{name: "second of level JBOD", config: arrays(mirror, with(second, object{"raid_level": "JBOD"}))},
		{name: "level as a number", config: arrays(with(mirror, object{"raid_level": 1}))},
		{name: "second level as a number", config: arrays(mirror, with(second, object{"raid_level": 0}))},
		{name: "no level", config: arrays(with(mirror, object{"raid_level": nil}))},
		{name: "second without a level", config: arrays(mirror, with(second, object{"raid_level": nil}))},
		{name: "second without a size", config: arrays(mirror, with(second, object{"size_gb": nil}))},
		{name: "MAX twice", config: arrays(array("1", "MAX", "D1", "D2"), array("0", "MAX", "D1", "D2"))},
		{name: "the same name twice", config: arrays(with(mirror, object{"volume_name": "a"}),
			with(second, object{"volume_name": "a"}))},
		{name: "two root volumes", config: arrays(with(mirror, object{"is_root_volume": true}),
			with(second, object{"is_root_volume": true}))},
		{name: "many problems", config: arrays(with(second, object{
			"physical_disks": "D1", "controller": "x",
			"size_gb": "MAX",
		}),
			array("7", "MAX"), array("1", 1))},
		{name: "one disk", config: arrays(array("1", 1, "D1"))},
		{name: "no disks", config: arrays(with(mirror, object{"physical_disks": []any{}}))},
		{name: "disks of text", config: arrays(with(mirror, object{"physical_disks": "D1 D2"}))},
		{name: "disks of an object", config: arrays(with(mirror, object{"physical_disks": object{"serial": "D1"}}))},
		{name: "disks of a list of texts", config: arrays(with(mirror, object{"physical_disks": []any{"D1", "D2"}}))},
		{name: "unknown disk", config: arrays(array("1", 1, "D1", "D9"))},
		{name: "a disk twice", config: arrays(array("1", 1, "D1", "D1"))},
		{name: "volume_name required", config: arrays(mirror), node: object{
			"properties": object{"skip_block_devices": []any{object{"volume_name": "kept"}}},
		}},
	} {
		scenarios = append(scenarios, scenario{
			name: "invalid/" + tt.name, disks: []string{"D1"}, do: []request{createArrays(tt.config, tt.node)},
		})
	}
	return scenarios
}

// raidRejectedAfterWrites returns configurations that ironic-python-agent rejects only after it has written to the
// disks.
func raidRejectedAfterWrites() []scenario {
	mirror := array("1", 1, "D1", "D2")
	var scenarios []scenario
	for _, tt := range []struct {
		name   string
		config object
	}{
		{"no size", arrays(with(mirror, object{"size_gb": nil}))},
		{"size 0", arrays(with(mirror, object{"size_gb": 0}))},
		{"negative size", arrays(with(mirror, object{"size_gb": -2}))},
		{"size null", arrays(object{
			"controller": "software", "raid_level": "1", "size_gb": nil, "physical_disks": bySerial("D1", "D2"),
		})},
		{"size max", arrays(with(mirror, object{"size_gb": "max"}))},
		{"size too large", arrays(array("1", 100, "D1", "D2"))},
		{"size of the whole disk", arrays(array("1", 4, "D1", "D2"))},
		{"sum too large", arrays(array("1", 3, "D1", "D2"), array("0", 3, "D1", "D2"))},
		{"level 5 of two", arrays(mirror, array("5", 1, "D1", "D2"))},
		{"level 6 of three", arrays(array("1", 1, "D1", "D2", "D3"), array("6", 1, "D1", "D2", "D3"))},
		{"name empty", arrays(with(mirror, object{"volume_name": ""}))},
		{"name with a space", arrays(with(mirror, object{"volume_name": "a b"}))},
		{"name with a slash", arrays(with(mirror, object{"volume_name": "a/b"}))},
		{"name of 40", arrays(with(mirror, object{"volume_name": "abcdefghijklmnopqrstuvwxyz12345678901234"}))},
		{"name as a number", arrays(with(mirror, object{"volume_name": 7}))},
		{"is_root_volume as text", arrays(with(mirror, object{"is_root_volume": "yes"}))},
		{"unknown hint", arrays(with(mirror, object{"physical_disks": []any{
			object{"colour": "red"},
			object{"serial": "D2"},
		}}))},
		{"invalid hint", arrays(with(mirror, object{"physical_disks": []any{
			object{"size": "large"},
			object{"serial": "D2"},
		}}))},
	} {
		scenarios = append(scenarios, scenario{
			name: "late/" + tt.name, disks: []string{"D1", "D2"}, do: append(noTables(), createArrays(tt.config, nil)),
		})
	}
	return scenarios
}

func raidApply() []scenario {
	first := arrays(array("1", 1, "D1", "D2"))
	next := arrays(array("1", 2, "D1", "D2"), array("0", "MAX", "D1", "D2"))
	applied := func(name string, args object) scenario {
		return scenario{name: "apply/" + name, disks: []string{"D1"}, do: append(noArrays(),
			hidden(createArrays(first, nil)), applyArrays(args))}
	}
	rejected := func(name string, args object) scenario {
		return scenario{name: "refused/" + name, do: []request{applyArrays(args)}}
	}
	return []scenario{
		applied("replaces", object{"raid_config": next}),
		applied("delete_existing", object{"raid_config": next, "delete_existing": true}),
		applied("delete_existing false", object{"raid_config": next, "delete_existing": false}),
		applied("delete_existing null", object{"raid_config": next, "delete_existing": nil}),
		applied("delete_existing text", object{"raid_config": next, "delete_existing": "false"}),
		applied("delete_existing 0", object{"raid_config": next, "delete_existing": 0}),
		applied("the same", object{"raid_config": first}),
		applied("other disks", object{"raid_config": arrays(array("1", 1, "D3", "D4"))}),
		applied("invalid", object{"raid_config": arrays(array("0", 1, "D1", "D2"))}),
		applied("too large", object{"raid_config": arrays(array("1", 100, "D1", "D2"))}),
		applied("empty", object{"raid_config": object{}}),
		applied("no entries", object{"raid_config": arrays([]any{}...)}),
		applied("no software", object{"raid_config": arrays(object{"raid_level": "1", "size_gb": 1})}),
		applied("null", object{"raid_config": nil}),
		rejected("no configuration", object{}),
		rejected("text", object{"raid_config": "text"}),
		rejected("list", object{"raid_config": []any{1}}),
		rejected("more arguments", object{"raid_config": first, "more": 1}),
		rejected("wrong argument", object{"target_raid_config": first}),
		{name: "apply/service", disks: []string{"D1"}, do: append(noArrays(),
			step("service", "apply_configuration", nil, object{
				"interface": "raid", "args": object{"raid_config": first},
			}))},
		{
			name: "apply/service create", disks: []string{"D1"},
			do: append(noArrays(), step("service", "create_configuration",
				object{"target_raid_config": first}, object{"interface": "raid"})),
		},
		{
			name: "apply/as a clean step", disks: []string{"D1"},
			do: append(noArrays(), step("clean", "apply_configuration", nil, object{
				"interface": "raid", "args": object{"raid_config": first},
			})),
		},
		{
			name: "apply/create as a deploy step", disks: []string{"D1"},
			do: append(noArrays(), step("deploy", "create_configuration",
				object{"target_raid_config": first}, object{"interface": "raid"})),
		},
		{name: "apply/create twice", disks: []string{"D1"}, do: append(noArrays(), createArrays(first, nil),
			createArrays(first, nil))},
		{
			name: "apply/create other disks", disks: []string{"D1", "D3"},
			do: append(noArrays(), hidden(createArrays(first, nil)),
				createArrays(arrays(array("1", 1, "D3", "D4")), nil)),
		},
	}
}

func raidDelete() []scenario {
	deleted := func(name string, config object, disks ...string) scenario {
		return scenario{name: "delete/" + name, disks: disks, do: append(noArrays(), hidden(createArrays(config, nil)),
			deleteArrays(nil))}
	}
	mirror := array("1", 1, "D1", "D2")
	return []scenario{
		{name: "delete/nothing", disks: []string{"D1"}, do: append(noArrays(), deleteArrays(nil))},
		{name: "delete/arguments", do: []request{step("clean", "delete_configuration", nil, object{
			"interface": "raid", "args": object{"more": 1},
		})}},
		deleted("one", arrays(mirror), "D1", "D2"),
		deleted("two", arrays(mirror, array("0", "MAX", "D1", "D2")), "D1", "D2"),
		deleted("separate", arrays(mirror, array("0", "MAX", "D3", "N1")), "D1", "D2", "D3", "N1"),
		deleted("level 6", arrays(array("1", 1), array("6", 1)), "D1", "N2"),
		{name: "delete/service", disks: []string{"D1"}, do: append(noArrays(),
			hidden(createArrays(arrays(mirror), nil)),
			step("service", "delete_configuration", nil, object{"interface": "raid"}))},
		{name: "delete/msdos", disks: []string{"D1", "D2"}, do: append(noArrays(),
			hidden(createArrays(arrays(mirror), object{
				"properties": object{"capabilities": "boot_mode:bios"},
			})), deleteArrays(nil))},
		{
			name: "delete/then create", disks: []string{"D1", "D2"},
			do: append(noArrays(), hidden(createArrays(arrays(mirror), nil)),
				deleteArrays(nil), createArrays(arrays(array("1", "MAX", "D1", "D2")), nil)),
		},
	}
}

// raidKeep are the scenarios of arrays that skip_block_devices names.
func raidKeep() []scenario {
	names := func(names ...string) object {
		var list []any
		for _, name := range names {
			list = append(list, object{"volume_name": name})
		}
		return object{"properties": object{"skip_block_devices": list}}
	}
	kept := with(array("1", 1, "D1", "D2"), object{"volume_name": "kept"})
	other := with(array("0", 2, "D1", "D2"), object{"volume_name": "other"})
	apart := with(array("0", 2, "D3", "D4"), object{"volume_name": "apart"})
	keep := func(name string, before object, disks []string, do ...request) scenario {
		return scenario{name: "keep/" + name, disks: disks, do: append(append(noArrays(),
			hidden(createArrays(before, nil))), do...)}
	}
	two, four := []string{"D1", "D2"}, []string{"D1", "D2", "D3", "D4"}
	return []scenario{
		keep("delete", arrays(kept), two, deleteArrays(names("kept"))),
		keep("delete its neighbour", arrays(kept, other), two, deleteArrays(names("kept"))),
		keep("delete another one", arrays(kept, apart), four, deleteArrays(names("kept"))),
		keep("delete all but both", arrays(kept, other), two, deleteArrays(names("kept", "other"))),
		keep("delete by another name", arrays(kept), two, deleteArrays(names("unknown"))),
		keep("create again", arrays(kept), two, createArrays(arrays(kept), names("kept"))),
		keep("create both again", arrays(kept, other), two, createArrays(arrays(kept, other), names("kept"))),
		keep("create another one", arrays(kept), four, createArrays(arrays(kept, apart), names("kept"))),
		keep("create without it", arrays(kept), four, createArrays(arrays(with(apart, object{"raid_level": "1"})),
			names("kept"))),
		keep("create beside an unknown one", arrays(kept, apart), two, createArrays(arrays(kept), names("kept"))),
		keep("apply again", arrays(kept, apart), four, step("deploy", "apply_configuration", names("kept"), object{
			"interface": "raid", "args": object{"raid_config": arrays(kept, apart)},
		})),
	}
}
