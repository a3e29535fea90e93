package block

import (
	"slices"
	"testing"
)

// Disks are in the order of their device numbers: root device hints select the first one that matches.
func TestDisksAreSortedByNumber(t *testing.T) {
	tr := newTree(t)
	for name, number := range map[string]string{
		"nvme0n1": "259:0", "sdaa": "65:160", "sdb": "8:16", "sdc": "8:32", "vda": "254:0", "sdk": "8:160",
	} {
		tr.device(name, "", 1<<30, map[string]string{"dev": number + "\n"})
	}
	disks, err := Disks(t.Context(), tr.system())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range disks {
		got = append(got, d.Name)
	}
	if want := []string{"sdb", "sdc", "sdk", "sdaa", "vda", "nvme0n1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
