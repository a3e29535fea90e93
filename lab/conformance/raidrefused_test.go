//go:build linux

package conformance

import "slices"

// raidRefusedGroup contains configurations without software RAID, and those that an agent refuses.
func raidRefusedGroup() group {
	return raidGroup("raidrefused", slices.Concat(raidInvalid(), raidArguments(), raidRejectedAfterWrites()))
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
			name: "invalid/" + tt.name, disks: []string{"D1"}, unwritten: true,
			do: []request{createArrays(tt.config, tt.node)},
		})
	}
	return scenarios
}

// raidRejectedAfterWrites returns configurations that ironic-python-agent rejects only after it has written to the
// disks, or accepts.
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
		s := withoutArrays("after writes/"+tt.name, []string{"D1", "D2"}, createArrays(tt.config, nil))
		// The scenario before it can leave partition tables.
		s.unwritten = true
		s.clear = append(s.clear, step("clean", "erase_devices_metadata", nil, nil))
		scenarios = append(scenarios, s)
	}
	return scenarios
}

// raidArguments are arguments that apply_configuration refuses.
func raidArguments() []scenario {
	rejected := func(name string, args object) scenario {
		return scenario{name: "arguments/" + name, unwritten: true, do: []request{applyArrays(args)}}
	}
	return []scenario{
		rejected("no configuration", object{}),
		rejected("text", object{"raid_config": "text"}),
		rejected("list", object{"raid_config": []any{1}}),
		rejected("more arguments", object{"raid_config": arrays(array("1", 1, "D1", "D2")), "more": 1}),
		rejected("wrong argument", object{"target_raid_config": arrays(array("1", 1, "D1", "D2"))}),
	}
}
