package removable

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// isPanic checks that err is a contained panic and names everything in want.
func isPanic(t *testing.T, err error, want ...string) {
	t.Helper()
	var caught *goroutine.PanicError
	if !errors.As(err, &caught) {
		t.Errorf("got error %v, want a panic", err)
		return
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got error %v, want one that names %s", err, part)
		}
	}
}

// A medium whose file system causes a panic is a problem of that medium. It is closed, and the others are opened.
func TestVolumesContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	root := t.TempDir()
	for i, name := range []string{"sr0", "sr1", "sr2"} {
		bus := "pci0000:00/ata" + string(rune('1'+i)) + "/host1/target1:0:0/1:0:0:0"
		plug(t, root, name, bus, "5", testenv.SparseFile(t, 1<<20), 1<<20)
	}
	var file *os.File
	opened, problems, err := volumes(t.Context(), sysfs.Root{Path: root}, block.IsVirtualMedia, func(v *Volume) error {
		if v.Device.Name == "sr1" {
			file = v.file
			panic("in the file system")
		}
		v.files = fstest.MapFS{}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range opened {
		defer v.Close()
	}
	if len(opened) != 2 || opened[0].Device.Name != "sr0" || opened[1].Device.Name != "sr2" {
		t.Errorf("got %d volumes, want those of sr0 and sr2", len(opened))
	}
	if len(problems) != 1 || problems[0].Device != "/dev/sr1" {
		t.Fatalf("got problems %v, want one of /dev/sr1", problems)
	}
	isPanic(t, problems[0].Err)
	if err := file.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("close of the medium with the panic: got %v, want %v", err, os.ErrClosed)
	}
}

// A panic while a file or a directory is read is an error that names it and its device.
func TestReadContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	v := brokenVolume(func() error { panic("in the file system") })
	_, err := v.ReadFile("file", 1)
	isPanic(t, err, "file on /dev/sr0")
	_, err = v.ReadFile("broken/file", 1)
	isPanic(t, err, "broken/file on /dev/sr0")
	_, err = v.Files("broken")
	isPanic(t, err, "broken on /dev/sr0")
}

// A panic while a device is described is the error of that device.
func TestVolumesContainsPanicOfDevice(t *testing.T) {
	testenv.ExpectPanics(t)
	root := t.TempDir()
	plug(t, root, "sdb", usb, "0", floppyImage(t, "ir-vfd-dev"), 1<<20)
	plug(t, root, "sr0", "pci0000:00/ata1/host1/target1:0:0/1:0:0:0", "5", isoImage(t, "config-2"), 1<<20)
	sys := sysfs.Root{Path: root}
	opened, problems, err := volumes(t.Context(), sys, func(_ sysfs.Root, name string) (bool, error) {
		if name == "sdb" {
			panic("in sysfs")
		}
		return block.IsVirtualMedia(sys, name)
	}, (*Volume).probe)
	if err != nil || len(opened) != 1 || opened[0].Device.Name != "sr0" || len(problems) != 1 ||
		problems[0].Device != "/dev/sdb" {
		t.Fatalf("got volumes %v, problems %v and %v, want sr0 and the panic of sdb", opened, problems, err)
	}
	defer opened[0].Close()
	isPanic(t, problems[0].Err, "in sysfs")
}
