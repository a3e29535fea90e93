package block

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// A disk whose identity cannot be read differs from one without the attribute.
func TestUnreadIdentity(t *testing.T) {
	tr := newTree(t)
	tr.device("vda", "pci0000:00/0000:00:04.0/virtio1", gib, map[string]string{"serial": "S1\n"})
	tr.device("vdb", "pci0000:00/0000:00:05.0/virtio2", gib, nil) // virtio disks have no WWN
	tr.device("sda", "pci0000:00/0000:00:07.0/host0/target0:0:0/0:0:0:0", gib, nil)
	tr.device("dm-0", "", gib,
		map[string]string{"dm/uuid": "mpath-3600c0ff000d1\n", "slaves/sda": "", "slaves/vdb": ""})
	tr.device("dm-1", "", gib, map[string]string{"dm/uuid": "mpath-3600c0ff000d2\n", "slaves/vda": ""})
	unread := func(name string) error {
		t.Helper()
		d, err := Find(tr.system(), name)
		if err != nil {
			t.Fatal(err)
		}
		return d.Unread
	}
	for _, name := range []string{"vda", "vdb", "sda", "dm-0", "dm-1"} {
		if err := unread(name); err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
	}
	for _, tt := range []struct{ name, file string }{
		{"vda", "serial"},
		{"sda", "device/vpd_pg83"},
		{"sda", "device/vpd_pg80"},
		{"sda", "device/model"},
		{"vdb", "device/vendor"},
	} {
		path := tr.system().Sys("class/block", tt.name, tt.file)
		_ = os.Remove(path)                                        // there may be none
		if err := os.Symlink("/proc/self/mem", path); err != nil { // reading it fails with EIO
			t.Fatal(err)
		}
		if err := unread(tt.name); !errors.Is(err, unix.EIO) {
			t.Errorf("%s, %s: got %v, want %v", tt.name, tt.file, err, unix.EIO)
		}
		if tt.name == "sda" { // a path of the map
			if err := unread("dm-0"); !errors.Is(err, unix.EIO) {
				t.Errorf("dm-0, %s of sda: got %v, want %v", tt.file, err, unix.EIO)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// A path of a multipath map that the kernel does not describe has only a name.
func TestVanishedPath(t *testing.T) {
	tr := newTree(t)
	tr.device("dm-0", "", gib, map[string]string{"dm/uuid": "mpath-3600c0ff000d1\n", "slaves/sda": ""})
	d, err := Find(tr.system(), "dm-0")
	if want := (Device{Name: "sda", Path: "/dev/sda"}); err != nil || cmp.Diff([]Device{want}, d.Components) != "" {
		t.Errorf("got %+v and %v, want %+v", d.Components, err, want)
	}
}
