package removable

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/storage/nfit"
	"ironroot/storage/nfit/nfittest"
	"ironroot/storage/sysfs"
)

// The ISO that the firmware has loaded to a RAM disk is a medium. Persistent memory with the same content is not.
func TestRAMDisk(t *testing.T) {
	root := t.TempDir()
	iso := isoImage(t, "config-2")
	info, err := os.Stat(iso)
	if err != nil {
		t.Fatal(err)
	}
	nfittest.Machine(t, root,
		nfit.Range{Index: 1, Type: nfittest.Persistent, Base: 4 << 30, Size: uint64(info.Size())},
		nfit.Range{Index: 2, Type: nfit.VirtualCD, Base: 8 << 30, Size: uint64(info.Size())})
	link(t, iso, filepath.Join(root, "dev/pmem1"))
	link(t, iso, filepath.Join(root, "dev/pmem2"))
	opened, problems, err := Volumes(t.Context(), sysfs.Root{Path: root})
	if err != nil || len(problems) > 0 || len(opened) != 1 || opened[0].Device.Name != "pmem2" {
		t.Fatalf("got volumes %v, problems %v and %v, want pmem2", opened, problems, err)
	}
	defer opened[0].Close()
	if opened[0].Label != "config-2" {
		t.Errorf("got label %q, want config-2", opened[0].Label)
	}
}

// A truncated ISO is a problem that says so, even if the files that are looked for are there.
func TestTruncatedRAMDisk(t *testing.T) {
	root := t.TempDir()
	iso := isoImage(t, "config-2")
	info, err := os.Stat(iso)
	if err != nil {
		t.Fatal(err)
	}
	size := info.Size() - 2048
	if err := os.Truncate(iso, size); err != nil {
		t.Fatal(err)
	}
	nfittest.Machine(t, root, nfit.Range{Index: 2, Type: nfit.VirtualCD, Base: 8 << 30, Size: uint64(size)})
	link(t, iso, filepath.Join(root, "dev/pmem2"))
	opened, problems, err := Volumes(t.Context(), sysfs.Root{Path: root})
	if err != nil || len(opened) > 0 || len(problems) != 1 || problems[0].Device != "/dev/pmem2" {
		t.Fatalf("got volumes %v, problems %v and %v, want a problem of /dev/pmem2", opened, problems, err)
	}
	if got := problems[0].Err.Error(); !strings.Contains(got, "truncated") {
		t.Errorf("got %q, want an error that says that the volume is truncated", got)
	}
}
