package removable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
	"ironroot/storage/tree"
)

const cdrom = "pci0000:00/ata1/host1/target1:0:0/1:0:0:0"

// brokenVolume has a directory and a file that cannot be read, and a file that can.
func brokenVolume(err error) *Volume {
	list := func() ([]tree.Node, error) { return nil, err }
	return &Volume{Device: block.Device{Path: "/dev/sr0"}, root: tree.Node{List: func() ([]tree.Node, error) {
		return []tree.Node{
			{Name: "broken", List: list},
			{Name: "file", Size: 1, Read: func(int64) ([]byte, error) { return nil, err }},
			{Name: "good", Size: 2, Read: func(int64) ([]byte, error) { return []byte("ok"), nil }},
		}, nil
	}}}
}

// An error of the medium is not an empty file or directory, nor one that does not exist. It names path and device.
func TestReadErrors(t *testing.T) {
	broken := errors.New("medium error")
	v := brokenVolume(broken)
	for _, test := range []struct {
		name string
		read func() (any, error)
		want string
	}{
		{"file", func() (any, error) { return v.ReadFile("file", 10) }, "file on /dev/sr0: medium error"},
		{"directory", func() (any, error) { return v.Files("broken") }, "broken on /dev/sr0: medium error"},
		{
			"file in a directory", func() (any, error) { return v.ReadFile("broken/a", 10) },
			"broken/a on /dev/sr0: medium error",
		},
		{
			"directory in a directory", func() (any, error) { return v.Files("broken/a") },
			"broken/a on /dev/sr0: medium error",
		},
	} {
		got, err := test.read()
		if !errors.Is(err, broken) || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v and error %v, want %s", test.name, got, err, test.want)
		}
	}
	if names, err := v.Files("file"); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("files of a file: got %v and error %v, want an error", names, err)
	}
	if names, err := v.Files("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("files of a missing directory: got %v and error %v, want %v", names, err, fs.ErrNotExist)
	}
	if data, err := v.ReadFile("good", 2); err != nil || string(data) != "ok" {
		t.Errorf("got %q and error %v, want ok", data, err)
	}
}

// If names of a FAT file system differ only in case, the first is the file.
func TestFirstOfNames(t *testing.T) {
	content := func(s string) func(int64) ([]byte, error) {
		return func(int64) ([]byte, error) { return []byte(s), nil }
	}
	v := &Volume{foldCase: true, root: tree.Node{List: func() ([]tree.Node, error) {
		return []tree.Node{
			{Name: "PARAMS.TXT", Size: 5, Read: content("first")},
			{Name: "params.txt", Size: 5, Read: content("later")},
		}, nil
	}}}
	if data, err := v.ReadFile("params.txt", 5); err != nil || string(data) != "first" {
		t.Errorf("got %q and error %v, want first", data, err)
	}
}

// After Close, the device is no longer in use: it can be ejected.
func TestClose(t *testing.T) {
	root := t.TempDir()
	plug(t, root, "sdb", usb, "0", floppyImage(t, "ir-vfd-dev"), 1<<20)
	opened, problems, err := Volumes(t.Context(), sysfs.Root{Path: root})
	if err != nil || len(problems) > 0 || len(opened) != 1 {
		t.Fatalf("got volumes %v, problems %v and error %v, want one volume", opened, problems, err)
	}
	if err := opened[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := opened[0].file.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second close: got %v, want %v", err, os.ErrClosed)
	}
	if err := opened[0].Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second Close: got %v, want %v", err, os.ErrClosed)
	}
}

// Devices that cannot be listed are an error. Otherwise the machine would start without the configuration of
// its medium.
func TestListError(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "sys/block"), "not a directory")
	sys := sysfs.Root{Path: root}
	if opened, problems, err := Volumes(t.Context(), sys); err == nil {
		t.Errorf("got volumes %v and problems %v, want an error", opened, problems)
	}
	if ignored, err := IgnoredDisks(t.Context(), sys); err == nil {
		t.Errorf("got ignored disks %v, want an error", ignored)
	}
}

// A device node that cannot be opened is a problem. A device without a node is none.
func TestOpenError(t *testing.T) {
	root := t.TempDir()
	plug(t, root, "sr0", cdrom, "5", "sr0", 1<<20) // a link to itself
	plug(t, root, "sdb", usb, "0", "", 1<<20)
	opened, problems, err := Volumes(t.Context(), sysfs.Root{Path: root})
	if err != nil || len(opened) > 0 || len(problems) != 1 || problems[0].Device != "/dev/sr0" {
		t.Errorf("got volumes %v, problems %v and error %v, want a problem of /dev/sr0", opened, problems, err)
	}
}
