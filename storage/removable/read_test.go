package removable

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

const cdrom = "pci0000:00/ata1/host1/target1:0:0/1:0:0:0"

// failingFS calls fail when a file or directory of these names is read, and returns its error.
type failingFS struct {
	fstest.MapFS
	names []string
	fail  func() error
}

func (f failingFS) ReadFile(name string) ([]byte, error) {
	if slices.Contains(f.names, name) {
		return nil, f.fail()
	}
	return f.MapFS.ReadFile(name)
}

func (f failingFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if slices.Contains(f.names, name) {
		return nil, f.fail()
	}
	return f.MapFS.ReadDir(name)
}

func (f failingFS) Stat(name string) (fs.FileInfo, error) {
	if slices.Contains(f.names, path.Dir(name)) {
		return nil, f.fail()
	}
	return f.MapFS.Stat(name)
}

// brokenVolume has a directory and a file that cannot be read, and a file that can.
func brokenVolume(fail func() error) *Volume {
	files := fstest.MapFS{"broken": {Mode: fs.ModeDir}, "file": {Data: []byte("x")}, "good": {Data: []byte("ok")}}
	return &Volume{Device: block.Device{Path: "/dev/sr0"}, files: failingFS{files, []string{"broken", "file"}, fail}}
}

// An error of the medium is not an empty file or directory, nor one that does not exist. It names path and device.
func TestReadErrors(t *testing.T) {
	broken := errors.New("medium error")
	v := brokenVolume(func() error { return &fs.PathError{Op: "read", Path: "x", Err: broken} })
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
