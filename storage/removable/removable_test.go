package removable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

const usb = "pci0000:00/0000:00:14.0/usb1/1-4/1-4:1.0/host5/target5:0:0/5:0:0:0"

// plug adds a device below a bus, whose device node is a link to an image.
func plug(t *testing.T, root, name, bus, kind, image string, size int64) {
	t.Helper()
	device := filepath.Join(root, "sys/devices", bus)
	write(t, filepath.Join(device, "type"), kind)
	write(t, filepath.Join(device, "block", name, "size"), fmt.Sprint(size/512))
	write(t, filepath.Join(device, "block", name, "removable"), "1")
	for _, class := range []string{"sys/class/block", "sys/block"} {
		link(t, filepath.Join(device, "block", name), filepath.Join(root, class, name))
	}
	link(t, device, filepath.Join(device, "block", name, "device"))
	if image != "" {
		link(t, image, filepath.Join(root, "dev", name))
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func isoImage(t *testing.T, label string) string {
	t.Helper()
	testenv.Programs(t, "genisoimage")
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image.iso")
	write(t, filepath.Join(dir, "etc/ironic-python-agent.d/a.conf"), "[DEFAULT]\n")
	write(t, filepath.Join(dir, "etc/ironic-python-agent.d/directory/b.conf"), "b")
	if err := os.Symlink("/etc/shadow", filepath.Join(dir, "etc/ironic-python-agent.d/c.conf")); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "genisoimage", "-quiet", "-r", "-V", label, "-publisher", "me", "-o", image, dir)
	return image
}

func floppyImage(t *testing.T, label string) string {
	t.Helper()
	testenv.Programs(t, "mkfs.vfat", "mcopy")
	image, file := testenv.SparseFile(t, 1<<20), filepath.Join(t.TempDir(), "parameters.txt")
	write(t, file, "a=b")
	testenv.Run(t, "mkfs.vfat", "-n", label, image)
	testenv.Run(t, "mcopy", "-i", image, file, "::/PARAMETERS.TXT")
	return image
}

func TestVolumes(t *testing.T) {
	root := t.TempDir()
	plug(t, root, "sr0", "pci0000:00/ata1/host1/target1:0:0/1:0:0:0", "5", isoImage(t, "config-2"), 1<<20)
	plug(t, root, "sr1", "pci0000:00/ata2/host2/target2:0:0/2:0:0:0", "5", "", 1<<20) // without a node
	plug(t, root, "sda", "pci0000:00/ata3/host3/target3:0:0/3:0:0:0", "0", floppyImage(t, "ir-vfd-dev"), 1<<20)
	plug(t, root, "sdb", usb, "0", floppyImage(t, "ir-vfd-dev"), 1<<20)
	plug(t, root, "sdc", usb+"/second", "0", floppyImage(t, "ir-vfd-dev"), 4<<30)
	plug(t, root, "sdd", usb+"/third", "0", testenv.SparseFile(t, 1<<20), 1<<20) // nothing on it
	part := filepath.Join(root, "sys/devices", usb, "block/sdb/sdb1")
	write(t, filepath.Join(part, "partition"), "1")
	write(t, filepath.Join(part, "size"), "2048")
	link(t, part, filepath.Join(root, "sys/class/block/sdb1"))
	link(t, isoImage(t, "config-2"), filepath.Join(root, "dev/sdb1"))

	volumes, problems, err := Volumes(context.Background(), sysfs.Root{Path: root})
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	var got []string
	for _, v := range volumes {
		defer v.Close()
		got = append(got, v.Device.Name+" "+v.Label+" "+v.Publisher)
	}
	if diff := cmp.Diff([]string{"sdb ir-vfd-dev ", "sr0 config-2 me"}, got); diff != "" {
		t.Fatal(diff)
	}
	floppy, iso := volumes[0], volumes[1]
	if data, err := floppy.ReadFile("parameters.txt", 10); err != nil || string(data) != "a=b" {
		t.Errorf("floppy: got %q, %v", data, err)
	}
	if _, err := floppy.ReadFile("parameters.txt", 2); err == nil {
		t.Error("a file above the limit: no error")
	}
	names, err := iso.Files("etc/ironic-python-agent.d")
	if diff := cmp.Diff([]string{"a.conf"}, names); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for path, want := range map[string]error{
		"etc/ironic-python-agent.d/none.conf": fs.ErrNotExist, "ETC/ironic-python-agent.d/a.conf": fs.ErrNotExist,
		"etc/ironic-python-agent.d/a.conf/b": fs.ErrNotExist, "/etc/ironic-python-agent.d/a.conf": fs.ErrInvalid,
		"etc/../etc/ironic-python-agent.d/a.conf": fs.ErrInvalid, "": fs.ErrInvalid,
	} {
		if data, err := iso.ReadFile(path, 100); !errors.Is(err, want) {
			t.Errorf("%q: got %q, %v, want %v", path, data, err, want)
		}
	}
	if data, err := iso.ReadFile("etc/ironic-python-agent.d/c.conf", 1<<20); err == nil {
		t.Errorf("a link was followed: %q", data)
	}
}

// A medium that cannot be read is reported, and the others are opened.
func TestBroken(t *testing.T) {
	root := t.TempDir()
	broken := filepath.Join(t.TempDir(), "directory") // reading a directory fails
	if err := os.Mkdir(broken, 0o755); err != nil {
		t.Fatal(err)
	}
	plug(t, root, "sr0", "pci0000:00/ata1/host1/target1:0:0/1:0:0:0", "5", broken, 1<<20)
	plug(t, root, "sr1", "pci0000:00/ata2/host2/target2:0:0/2:0:0:0", "5", isoImage(t, "config-2"), 1<<20)
	volumes, problems, err := Volumes(context.Background(), sysfs.Root{Path: root})
	if err != nil || len(volumes) != 1 || len(problems) != 1 || problems[0].Device != "/dev/sr0" {
		t.Fatalf("got %d volumes, problems %v, %v, want 1 volume and a problem of /dev/sr0",
			len(volumes), problems, err)
	}
	_ = volumes[0].Close()
}
