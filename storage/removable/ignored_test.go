package removable

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// Ignored disks are small USB disks that are neither removable nor write-protected, with the labels of their file
// systems.
func TestIgnoredDisks(t *testing.T) {
	root := t.TempDir()
	for i, name := range []string{"sdb", "sdc", "sdd", "sde"} {
		port, image, size := []string{"1", "2", "3", "4"}[i], floppyImage(t, "ir-vfd-dev"), int64(1<<20)
		if name == "sde" {
			image = testenv.SparseFile(t, 1<<20)
		}
		if name == "sdd" {
			size = 4 << 30
		}
		plug(t, root, name,
			"pci0000:00/0000:00:14.0/usb1/1-"+port+"/1-"+port+":1.0/host"+port+"/target"+port+":0:0/"+port+":0:0:0",
			"0", image, size)
		if name != "sdb" {
			write(t, root+"/sys/class/block/"+name+"/removable", "0")
		}
	}
	got := map[string]string{}
	ignored, err := IgnoredDisks(t.Context(), sysfs.Root{Path: root})
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range ignored {
		got[found.Device.Name] = found.Label
	}
	if diff := cmp.Diff(map[string]string{"sdc": "ir-vfd-dev", "sde": ""}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
