//go:build linux

package conformance

import "slices"

// raidDeleteGroup contains the scenarios that delete or keep arrays.
func raidDeleteGroup() group {
	return raidGroup("raiddelete", slices.Concat(raidDelete(), raidKeep()), "delete/two", "delete/nothing",
		"delete/arguments", "keep/delete its neighbour", "keep/create both again", "keep/apply again")
}

// raidApplyGroup contains the scenarios of apply_configuration, and those that create arrays on a machine that has
// some already.
func raidApplyGroup() group {
	return raidGroup("raidapply", raidApply(), "apply/delete_existing", "apply/too large", "apply/empty",
		"apply/other disks", "apply/no software", "apply/create other disks")
}

// applyArrays is the step apply_configuration.
func applyArrays(args object) request {
	return step("deploy", "apply_configuration", nil, object{"interface": "raid", "args": args})
}

func raidDelete() []scenario {
	deleted := func(name string, config object, disks ...string) scenario {
		return withoutArrays("delete/"+name, disks, hidden(createArrays(config, nil)), deleteArrays(nil))
	}
	mirror, two := array("1", 1, "D1", "D2"), []string{"D1", "D2"}
	return []scenario{
		withoutArrays("delete/nothing", []string{"D1"}, deleteArrays(nil)),
		{name: "delete/arguments", unwritten: true, do: []request{step("clean", "delete_configuration", nil, object{
			"interface": "raid", "args": object{"more": 1},
		})}},
		deleted("one", arrays(mirror), "D1", "D2"),
		deleted("two", arrays(mirror, array("0", "MAX", "D1", "D2")), "D1", "D2"),
		deleted("separate", arrays(mirror, array("0", "MAX", "D3", "N1")), "D1", "D2", "D3", "N1"),
		deleted("level 6", arrays(array("1", 1), array("6", 1)), "D1", "D2", "D3", "D4", "N1", "N2"),
		withoutArrays("delete/service", two, hidden(createArrays(arrays(mirror), nil)),
			step("service", "delete_configuration", nil, object{"interface": "raid"})),
		withoutArrays("delete/msdos", two, hidden(createArrays(arrays(mirror), object{
			"properties": object{"capabilities": "boot_mode:bios"},
		})), deleteArrays(nil)),
		withoutArrays("delete/then create", two, hidden(createArrays(arrays(mirror), nil)), deleteArrays(nil),
			createArrays(arrays(array("1", "MAX", "D1", "D2")), nil)),
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
		do = append([]request{hidden(createArrays(before, nil))}, do...)
		return withoutArrays("keep/"+name, disks, do...)
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
		keep("create beside an unknown one", arrays(kept, apart), four, createArrays(arrays(kept), names("kept"))),
		keep("apply again", arrays(kept, apart), four, step("deploy", "apply_configuration", names("kept"), object{
			"interface": "raid", "args": object{"raid_config": arrays(kept, apart)},
		})),
	}
}

func raidApply() []scenario {
	first := arrays(array("1", 1, "D1", "D2"))
	next := arrays(array("1", 2, "D1", "D2"), array("0", "MAX", "D1", "D2"))
	disks := []string{"D1", "D2"}
	applied := func(name string, args object) scenario {
		return withoutArrays("apply/"+name, disks, hidden(createArrays(first, nil)), applyArrays(args))
	}
	return []scenario{
		applied("replaces", object{"raid_config": next}),
		applied("delete_existing", object{"raid_config": next, "delete_existing": true}),
		applied("delete_existing false", object{"raid_config": next, "delete_existing": false}),
		applied("delete_existing null", object{"raid_config": next, "delete_existing": nil}),
		applied("delete_existing text", object{"raid_config": next, "delete_existing": "false"}),
		applied("delete_existing 0", object{"raid_config": next, "delete_existing": 0}),
		applied("the same", object{"raid_config": first}),
		withoutArrays("apply/other disks", []string{"D1", "D2", "D3", "D4"}, hidden(createArrays(first, nil)),
			applyArrays(object{"raid_config": arrays(array("1", 1, "D3", "D4"))})),
		applied("invalid", object{"raid_config": arrays(array("0", 1, "D1", "D2"))}),
		applied("too large", object{"raid_config": arrays(array("1", 100, "D1", "D2"))}),
		applied("empty", object{"raid_config": object{}}),
		applied("no entries", object{"raid_config": arrays([]any{}...)}),
		applied("no software", object{"raid_config": arrays(object{"raid_level": "1", "size_gb": 1})}),
		applied("null", object{"raid_config": nil}),
		withoutArrays("apply/service", disks, step("service", "apply_configuration", nil, object{
			"interface": "raid", "args": object{"raid_config": first},
		})),
		withoutArrays("apply/service create", disks, step("service", "create_configuration",
			object{"target_raid_config": first}, object{"interface": "raid"})),
		withoutArrays("apply/as a clean step", disks, step("clean", "apply_configuration", nil, object{
			"interface": "raid", "args": object{"raid_config": first},
		})),
		withoutArrays("apply/create as a deploy step", disks, step("deploy", "create_configuration",
			object{"target_raid_config": first}, object{"interface": "raid"})),
		withoutArrays("apply/create twice", disks, createArrays(first, nil), createArrays(first, nil)),
		withoutArrays("apply/create other disks", []string{"D1", "D2", "D3", "D4"}, hidden(createArrays(first, nil)),
			createArrays(arrays(array("1", 1, "D3", "D4")), nil)),
	}
}
