package softraid

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/storage/md"
	"ironroot/storage/raid"
)

func TestArrays(t *testing.T) {
	named := md.Superblock{Name: "host:data", Level: "raid1", Devices: 2, ArraySize: 10 << 30}
	nameless := md.Superblock{Level: "raid1", Devices: 2, ArraySize: 10 << 30}
	other := md.Superblock{Name: "data:root", Level: "raid5", Devices: 3, ArraySize: 20 << 30}
	invalid := named
	invalid.Problem = md.ErrInvalid
	long := md.Superblock{Name: "a-volume-name-of-31-characters-", Level: "raid1"}
	const skip = `"properties": {"skip_block_devices": [{"volume_name": "data"}, {"name": "/dev/sda"}]}`
	software := func(fields string) string {
		return `"raid_config": {"logical_disks": [{"controller": "software", ` + fields + `}]}`
	}
	const data = `"volume_name": "data", `
	for _, tt := range []struct {
		name, node         string
		array              md.Superblock
		protected, created bool
	}{
		{"nothing said", `"name": "n"`, named, false, false},
		{"no arrays", `"raid_config": {}, "properties": {}`, named, false, false},
		{"null", `"raid_config": null, "properties": {"skip_block_devices": null}`, named, false, false},
		{"protected", skip, named, true, false},
		{"host of that name", skip, other, false, false},
		{"nameless array", skip, nameless, false, false},
		{"invalid superblock", skip + ", " + software(data+`"raid_level": "1"`), invalid, false, false},
		{"protected and created", skip + ", " + software(data+`"raid_level": "1", "size_gb": 10`), named, true, true},
		{"as large as possible", skip + ", " + software(data+`"raid_level": "1", "size_gb": "MAX"`), named, true, true},
		{"other level", skip + ", " + software(data+`"raid_level": "0", "size_gb": 10`), named, false, true},
		{"other size", skip + ", " + software(data+`"raid_level": "1", "size_gb": 13`), named, false, true},
		{"size rounded", skip + ", " + software(data+`"raid_level": "1", "size_gb": 12`), named, true, true},
		{
			"size of each member", `"properties": {"skip_block_devices": [{"volume_name": "root"}]}, ` +
				software(`"volume_name": "root", "raid_level": "5", "size_gb": 100`),
			md.Superblock{
				Name: "any:root", Level: "raid5", Devices: 5, DataSize: 99.5 * (1 << 30), ArraySize: 398 << 30,
			},
			true, true,
		},
		{"created, nothing else known", software(data + `"raid_level": 1`), named, false, true},
		{
			"created, name cut off",
			software(`"volume_name": "a-volume-name-of-31-characters-and-more"`), long, false, true,
		},
		{
			"created, other long name",
			software(`"volume_name": "a-volume-name-of-30-characters", "raid_level": "1"`), long, false, false,
		},
		{"created, begins alike", software(`"volume_name": "host:database"`), named, false, false},
		{"created, other name", software(`"volume_name": "root", "raid_level": "1"`), named, false, false},
		{"created, host of that name", software(data + `"raid_level": "5"`), other, false, false},
		{"entry without name, level", software(`"raid_level": "1"`), named, false, true},
		{"entry without name, other level", software(`"raid_level": "5"`), named, false, false},
		{
			"entry without name, RAID 10", software(`"raid_level": "1+0"`),
			md.Superblock{Name: "x", Level: "raid10"},
			false, true,
		},
		{
			"entry without name, ESP", software(`"raid_level": "1"`),
			md.Superblock{Name: "any:esp", Level: "raid1", Version: "1.0"},
			false, false,
		},
		{
			"entry without name, not an ESP", software(`"raid_level": "1"`),
			md.Superblock{Name: "any:esp", Level: "raid1", Version: "1.2"},
			false, true,
		},
		{"entry without name and level", software(`"size_gb": 5`), named, false, true},
		{"nameless array, level", software(data + `"raid_level": "1"`), nameless, false, true},
		{"nameless array, other level", software(data + `"raid_level": "0"`), nameless, false, false},
		{"controller in hardware", `"raid_config": {"logical_disks": [{"controller": "PERC", "volume_name": "data"},` +
			` {"volume_name": "data"}]}`, named, false, false},
	} {
		n, err := node.FromJSON([]byte(fmt.Sprintf(`{"uuid": "u", %s}`, tt.node)))
		if err != nil {
			t.Fatal(err)
		}
		arrays, err := RulesOf(n)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := arrays.Protected(tt.array); got != tt.protected {
			t.Errorf("%s: got protected %v, want %v", tt.name, got, tt.protected)
		}
		if got := arrays.Created(tt.array); (got != "") != tt.created {
			t.Errorf("%s: got created %q, want %v", tt.name, got, tt.created)
		} else if named := strings.Contains(tt.node, `"software", "volume_name"`); got != "" &&
			strings.Contains(got, "volume_name") != named {
			t.Errorf("%s: got %q, want the volume_name in it: %v", tt.name, got, named)
		}
	}
	if _, err := RulesOf(nil); err != nil {
		t.Errorf("no node: %v", err)
	}
	for _, fields := range []string{
		`"raid_config": 5`, `"raid_config": {"logical_disks": 5}`, `"raid_config": {"logical_disks": [5]}`,
	} {
		n, err := node.FromJSON([]byte(`{"uuid": "u", ` + fields + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := RulesOf(n); err == nil {
			t.Errorf("%s: got no error", fields)
		}
	}
	for value, got := range map[string]string{`5`: "5", `""`: `""`, `null`: "<nil>"} {
		n, err := node.FromJSON([]byte(
			`{"uuid": "u", "properties": {"skip_block_devices": [{}, {"volume_name": ` + value + `}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		want := "entry 2 of skip_block_devices: volume_name: got " + got + ", want a name"
		if _, err := RulesOf(n); err == nil || err.Error() != want {
			t.Errorf("volume_name %s: got error %v, want %s", value, err, want)
		}
	}
}

// A protected name must belong to one array whose members are consistent.
func TestArraysCheckNames(t *testing.T) {
	n, err := node.FromJSON([]byte(`{"uuid": "u", "properties": {"skip_block_devices": [{"volume_name": "data"},
		{"volume_name": "other"}]},
		"raid_config": {"logical_disks": [{"controller": "software", "volume_name": "other", "raid_level": "1",
		"size_gb": 10}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	arrays, err := RulesOf(n)
	if err != nil {
		t.Fatal(err)
	}
	member := func(number int, change func(*raid.Member)) raid.Member {
		m := raid.Member{Device: block.Device{Path: fmt.Sprintf("/dev/sd%c", 'a'+number)}, Superblock: md.Superblock{
			UUID: "u-1", Name: "host:data", Level: "raid5", Devices: 3, ArraySize: 10 << 30, Number: number,
			Role: number, Events: 8,
		}}
		if change != nil {
			change(&m)
		}
		return m
	}
	first, second := member(0, nil), member(1, nil)
	for _, tt := range []struct {
		name   string
		member raid.Member
		want   string
	}{
		{"third member", member(2, nil), ""},
		{"stopped between two updates", member(2, func(m *raid.Member) { m.Events = 9 }), ""},
		{"replaced member", member(2, func(m *raid.Member) { m.Number = 7 }), ""},
		{"spare", member(3, func(m *raid.Member) { m.Role = -1 }), ""},
		{"other name", member(0, func(m *raid.Member) { m.UUID, m.Name = "u-2", "host:scratch" }), ""},
		{"invalid", member(0, func(m *raid.Member) { m.UUID, m.Problem = "u-2", md.ErrInvalid }), ""},
		{"other host", member(2, func(m *raid.Member) { m.Name = "tenant:data" }), ""},
		{"other array", member(2, func(m *raid.Member) { m.UUID = "u-2" }), "members have different UUIDs"},
		{
			"other array, other host", member(2, func(m *raid.Member) { m.UUID, m.Name = "u-2", "data" }),
			"members have different UUIDs",
		},
		{"other level", member(2, func(m *raid.Member) { m.Level = "raid1" }), "members have different levels"},
		{
			"other number of members", member(2, func(m *raid.Member) { m.Devices = 4 }),
			"members have different numbers of devices",
		},
		{"other size", member(2, func(m *raid.Member) { m.ArraySize++ }), "members have different sizes"},
		{"role twice", member(2, func(m *raid.Member) { m.Role = 1 }), "two members have role 1"},
		{"number twice", member(2, func(m *raid.Member) { m.Number = 1 }), "two members have number 1"},
		{
			"number twice, spare", member(2, func(m *raid.Member) { m.Number, m.Role = 1, -1 }),
			"two members have number 1",
		},
		{"role that the array lacks", member(3, nil), "a member has role 3 of 3"},
		{"former member", member(2, func(m *raid.Member) { m.Events = 6 }), "events of members differ by 2"},
		{"later member", member(2, func(m *raid.Member) { m.Events = 100 }), "events of members differ by 92"},
	} {
		members := []raid.Member{first, second, tt.member}
		err := arrays.CheckNames(members).Of(first.Superblock)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: got %v, want no error", tt.name, err)
			}
			continue
		}
		size, number := fmt.Sprintf("%d bytes", tt.member.ArraySize), fmt.Sprintf("number %d,", tt.member.Number)
		path, uuid := tt.member.Device.Path, tt.member.UUID
		for _, want := range []string{
			tt.want, `"data"`, "/dev/sda", "/dev/sdb", path, "u-1", uuid, size, number, "10737418240 bytes",
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want an error with %q", tt.name, err, want)
			}
		}
	}
	// Arrays of another name do not matter.
	scratch := member(2, func(m *raid.Member) { m.UUID, m.Name = "u-2", "host:scratch" })
	rivals := []raid.Member{first, member(2, func(m *raid.Member) { m.UUID = "u-3" }), scratch}
	if err := arrays.CheckNames(rivals).Of(scratch.Superblock); err != nil {
		t.Errorf("array without a protected name: got %v, want no error", err)
	}
	// An array whose level differs from raid_config is not protected and does not make the name ambiguous.
	real := raid.Member{Device: block.Device{Path: "/dev/sda"}, Superblock: md.Superblock{
		UUID: "u-1", Name: "other", Level: "raid1", Devices: 2, ArraySize: 10 << 30,
	}}
	foreign := real
	foreign.UUID, foreign.Level = "u-2", "raid0"
	if err := arrays.CheckNames([]raid.Member{real, foreign}).Of(real.Superblock); err != nil {
		t.Errorf("array that raid_config contradicts: got %v, want no error", err)
	}
}

// The error of an ambiguous name is short: it starts with the two members that differ.
func TestArraysAmbiguousLimit(t *testing.T) {
	var members []raid.Member
	for i := range 1280 {
		members = append(members,
			raid.Member{Device: block.Device{Path: fmt.Sprintf("/dev/sd%d", i)}, Superblock: md.Superblock{
				UUID: "u-1", Level: "raid1", Devices: 1280, ArraySize: 4096, Number: i, Role: i,
			}})
	}
	members[700].UUID = "u-2"
	err := raid.Array(members).CheckConsistent()
	if err == nil {
		t.Fatal("got no error")
	}
	const start = "members have different UUIDs: /dev/sd0 " +
		"(UUID u-1, raid1 of 1280, 4096 bytes, number 0, role 0, events 0), /dev/sd700 (UUID u-2"
	text := err.Error()
	const end = ", and 1264 more"
	if !strings.HasPrefix(text, start) || !strings.HasSuffix(text, end) || strings.Count(text, "/dev/") != 16 {
		t.Errorf("got %s, want 16 devices after %s", text, start)
	}
}

// The name of an array is unmatched if no member has it, or if raid_config has another array of the name.
func TestArraysUnmatched(t *testing.T) {
	n := nodeFrom(t, `{"uuid": "u",
		"properties": {"skip_block_devices": [{"volume_name": "root"}, {"volume_name": "data"},
		{"volume_name": "none"}]},
		"raid_config": {"logical_disks": [{"controller": "software", "volume_name": "data", "raid_level": "1",
		"size_gb": "MAX"}]}}`)
	arrays, err := RulesOf(n)
	if err != nil {
		t.Fatal(err)
	}
	members := []raid.Member{
		{Superblock: md.Superblock{Name: "root", Level: "raid1"}},
		{Superblock: md.Superblock{Name: "data", Level: "raid0"}},
	}
	if got := arrays.Unmatched(members); !slices.Equal(got, []string{"data", "none"}) {
		t.Errorf("got %q, want data and none", got)
	}
}

// A node whose skip list or RAID configuration cannot be parsed is an error: an ignored array would be erased.
func TestInvalidRules(t *testing.T) {
	for _, fields := range []string{
		`"properties": {"skip_block_devices": 5}`, `"properties": {"skip_block_devices": [5]}`,
		`"properties": {"skip_block_devices": "sda"}`,
		`"properties": {"skip_block_devices": [{"volume_name": 5}]}`,
		`"properties": {"skip_block_devices": [{"volume_name": ""}]}`,
		`"properties": {"skip_block_devices": [{"volume_name": null}]}`,
		`"raid_config": []`, `"raid_config": "raid"`, `"raid_config": {"logical_disks": {}}`,
		`"raid_config": {"logical_disks": ["a"]}`, `"raid_config": {"logical_disks": [{}, null]}`,
	} {
		if rules, err := RulesOf(nodeFrom(t, `{"uuid": "u", `+fields+`}`)); err == nil {
			t.Errorf("%s: got %v and no error", fields, rules)
		}
	}
	for text, want := range map[string]int{
		"null": 0, "{}": 0, `{"logical_disks": null}`: 0, `{"logical_disks": []}`: 0, `{"logical_disks": [{}]}`: 1,
		`{"logical_disks":[{"a":"b"},{"c":"d"}]}`: 2,
	} {
		rules, err := RulesOf(nodeFrom(t, `{"uuid": "u", "raid_config": `+text+`}`))
		if err != nil || len(rules.config.volumes) != want {
			t.Errorf("%s: got %+v and %v, want %d volumes", text, rules, err, want)
		}
	}
	if rules, err := RulesOf(nodeFrom(t, `{"uuid": "u"}`)); err != nil || !rules.IsEmpty() {
		t.Errorf("without raid_config: got %v and %v, want none", rules, err)
	}
}

func nodeFrom(t *testing.T, text string) *node.Node {
	t.Helper()
	n, err := node.FromJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// FuzzRules parses objects that a server sends in place of a node. Each entry of logical_disks is a volume, or an
// error.
func FuzzRules(f *testing.F) {
	f.Add([]byte(`{"uuid": "u", "properties": {"skip_block_devices": [{"volume_name": "a"}]}, ` +
		`"raid_config": {"logical_disks": [{"size_gb": 1, "raid_level": "1+0", "physical_disks": [{"size": 5}]}]}}`))
	f.Add([]byte(`{"uuid": 1, "instance_info": [], "properties": 7, "raid_config": "x", "driver_info": null}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := node.FromStep(data)
		if err != nil {
			return
		}
		rules, err := RulesOf(n)
		if config, ok := n.Raw()["raid_config"].(map[string]any); ok && err == nil {
			if list, _ := config["logical_disks"].([]any); len(rules.config.volumes) != len(list) {
				t.Errorf("got %d volumes, want %d or an error", len(rules.config.volumes), len(list))
			}
		}
	})
}
