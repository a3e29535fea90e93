package block

import (
	"encoding/json"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
)

// Disks are in the order of lsblk, as ironic-python-agent calls it: root device hints select the first one that
// matches.
func TestDisksAreSortedAsByLsblk(t *testing.T) {
	testenv.Programs(t, "lsblk")
	tr := newTree(t)
	for name, number := range map[string]string{
		"nvme0n1": "259:0", "sda": "8:0", "sdaa": "65:160", "sdb": "8:16", "sdk": "8:160", "vda": "254:0",
		"md127": "9:127", "dm-0": "253:0",
	} {
		attributes := map[string]string{"dev": number + "\n"}
		switch name {
		case "md127":
			attributes["md/level"] = "raid1\n"
		case "dm-0":
			attributes["dm/uuid"], attributes["dm/name"] = "mpath-3600c0ff000d1\n", "map\n"
		}
		tr.device(name, "", 1<<30, attributes)
		tr.link("sys/devices/virtual/block/"+name, "sys/dev/block/"+number)
	}
	for upper, lower := range map[string][]string{"md127": {"sda", "sdb"}, "dm-0": {"sdk"}} {
		for _, name := range lower {
			tr.link("sys/devices/virtual/block/"+name, "sys/devices/virtual/block/"+upper+"/slaves/"+name)
			tr.link("sys/devices/virtual/block/"+upper, "sys/devices/virtual/block/"+name+"/holders/"+upper)
		}
	}
	out, err := exec.CommandContext(t.Context(), "lsblk", "--sysroot", tr.root, "-bia", "--json", "-oKNAME").Output()
	var listed struct{ BlockDevices []struct{ KName string } }
	if err != nil || json.Unmarshal(out, &listed) != nil || len(listed.BlockDevices) < 8 {
		t.Fatalf("lsblk: %v %s", err, out)
	}
	var want []string
	for _, d := range listed.BlockDevices {
		if d.KName != "sdk" && !slices.Contains(want, d.KName) { // sdk is a path of dm-0
			want = append(want, d.KName)
		}
	}
	disks, err := Disks(t.Context(), tr.system())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range disks {
		got = append(got, d.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// A disk whose number cannot be read must not become the first one that matches root device hints.
func TestDiskWithoutNumberIsLast(t *testing.T) {
	tr := newTree(t)
	tr.device("sda", "", 1<<30, nil)
	tr.device("vda", "", 1<<30, map[string]string{"dev": "254:0\n"})
	disks, err := Disks(t.Context(), tr.system())
	if err != nil || len(disks) != 2 || disks[0].Name != "vda" {
		t.Errorf("got %v and error %v, want vda and sda", disks, err)
	}
}
