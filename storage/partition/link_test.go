package partition

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// FindLink finds a partition by the names that blkid gives udev (60-persistent-storage.rules).
func TestFindLink(t *testing.T) {
	testenv.Programs(t, "sgdisk", "mkfs.ext4", "mkfs.vfat", "blkid")
	image := testenv.SparseFile(t, 32*mib)
	testenv.Run(t, "sgdisk", "-n", "1:2048:+8M", "-c", "1:a /b\\ü", "-n", "2:20480:+8M", "-n", "3:40960:+4M", image)
	device := testenv.Loop(t, image, 512)
	sys := sysfs.Root{}
	if err := Sync(t.Context(), sys, device); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "mkfs.ext4", "-q", "-L", "the\t/root ü", device+"p1")
	testenv.Run(t, "mkfs.vfat", "-n", "SAME", device+"p2")
	testenv.Run(t, "mkfs.vfat", "-n", "SAME", device+"p3")
	disks := []block.Device{{
		Name: filepath.Base(device), Path: device, Transport: "virtio", Serial: "S 1",
		ByPaths: []string{block.LinkDir + "by-path/pci-1"},
	}}
	names := map[string]string{} // what blkid tells udev of the first partition
	for line := range strings.Lines(testenv.Run(t, "blkid", "-p", "-o", "udev", device+"p1")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		names[key] = value
	}
	for link, want := range map[string]string{
		"by-label/" + names["ID_FS_LABEL_ENC"]:        "p1",
		"by-uuid/" + names["ID_FS_UUID_ENC"]:          "p1",
		"by-partuuid/" + names["ID_PART_ENTRY_UUID"]:  "p1",
		"by-partlabel/" + names["ID_PART_ENTRY_NAME"]: "p1",
		"by-path/pci-1":          "disk",
		"by-path/pci-1-part3":    "p3",
		"by-id/virtio-S_1":       "disk",
		"by-id/virtio-S_1-part2": "p2",
		"by-id/virtio-S_1-part4": "",
		"by-path/pci-1-part":     "",
		"by-label/SAME":          "several",
		"by-label/none":          "",
		"by-label/":              "",
		"by-partlabel/":          "",
		"by-colour/red":          "",
		"by-uuid/" + strings.ToUpper(names["ID_FS_UUID"]): "",
	} {
		got, err := FindLink(t.Context(), sys, disks, block.LinkDir+link)
		switch want {
		case "":
			if !errors.Is(err, ErrNoLink) {
				t.Errorf("%s: got %q, %v, want %v", link, got, err, ErrNoLink)
			}
		case "several":
			if err == nil || !strings.Contains(err.Error(), device+"p2, "+device+"p3") {
				t.Errorf("%s: got %q, %v, want an error with both", link, got, err)
			}
		default:
			if want = device + strings.TrimPrefix(want, "disk"); got != want || err != nil {
				t.Errorf("%s: got %q, %v, want %s", link, got, err, want)
			}
		}
	}
	// udev links by label and UUID to file systems, not to the members of arrays, which have the label and UUID of
	// their array.
	member, err := os.OpenFile(device+"p3", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	superblock := testenv.RAID{Name: "data", Level: 1, Size: 4 * mib}.Superblock(4096)
	if _, err := member.WriteAt(superblock, 4096); err != nil {
		t.Fatal(err)
	}
	if err := member.Close(); err != nil {
		t.Fatal(err)
	}
	if fs, err := block.Probe(t.Context(), device+"p3"); err != nil || fs.Type != "linux_raid_member" ||
		fs.Label != "data" {
		t.Fatalf("got %+v and %v, want a member of the array data", fs, err)
	}
	if got, err := FindLink(t.Context(), sys, disks, block.LinkDir+"by-label/data"); !errors.Is(err, ErrNoLink) {
		t.Errorf("member of an array: got %q, %v, want %v", got, err, ErrNoLink)
	}
	// A disk that cannot be read has no label, and the others are found.
	gone := append(disks, block.Device{Name: "gone", Path: "/dev/gone"})
	label := block.LinkDir + "by-label/" + names["ID_FS_LABEL_ENC"]
	if got, err := FindLink(t.Context(), sys, gone, label); got != device+"p1" || err != nil {
		t.Errorf("got %q, %v, want %sp1", got, err, device)
	}
	if _, err := FindLink(t.Context(), sys, gone, block.LinkDir+"by-label/none"); !errors.Is(err, ErrNoLink) ||
		!strings.Contains(err.Error(), "/dev/gone") {
		t.Errorf("got %v, want %v and the disk that was not read", err, ErrNoLink)
	}
}
