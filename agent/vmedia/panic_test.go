package vmedia

import (
	"context"
	"errors"
	"testing"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/removable"
	"ironroot/storage/sysfs"
)

// A panic while media are opened is an error of Load, and the media are read again later.
func TestOpenContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	m := newMachine(t)
	m.attach("sda", usb, "0", "S", floppy(t, "ir-vfd-dev", "parameters.txt", "ipa-api-url=http://floppy"), mib)
	o := m.options(cmdline)
	o.limit = readable
	o.drives = opening{open: func() ([]*removable.Volume, []*removable.Problem, error) {
		panic("in a file system")
	}}
	media := New(o)
	params, err := media.Load(t.Context())
	var caught *goroutine.PanicError
	if !errors.Is(err, ErrMedia) || !errors.As(err, &caught) || params["ipa-api-url"] != "http://cmdline" {
		t.Errorf("got parameters %v and %v, want those of the command line, %v and the panic", params, err, ErrMedia)
	}
	media.drives = removableDrives{}
	if params, err := media.Again(t.Context()); err != nil || params["ipa-api-url"] != "http://floppy" {
		t.Errorf("read again: got parameters %v and %v, want those of the floppy", params, err)
	}
}

// A medium whose content causes a panic is not used; the next one is.
func TestUseContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	media := New(Options{})
	volumes := []*removable.Volume{{Device: block.Device{Path: "/dev/sda"}}, {Device: block.Device{Path: "/dev/sdb"}}}
	first := func(volumes []*removable.Volume) *removable.Volume {
		if len(volumes) == 0 {
			return nil
		}
		return volumes[0]
	}
	var read []string
	used := media.use(volumes, first, func(v *removable.Volume) error {
		read = append(read, v.Device.Path)
		if v == volumes[0] {
			panic("in a parser")
		}
		return nil
	})
	if !used || len(read) != 2 {
		t.Errorf("got used %v after %v, want the second medium", used, read)
	}
	var caught *goroutine.PanicError
	if len(media.problems) != 1 || !errors.As(media.problems[0], &caught) {
		t.Errorf("got problems %v, want the panic", media.problems)
	}
}

// A panic of a visit is returned as an error.
func TestLookContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	media := New(newMachine(t).options(cmdline))
	done, err := media.look(t.Context(), func([]*removable.Volume) (bool, error) { panic("in a visitor") })
	var caught *goroutine.PanicError
	if done || !errors.As(err, &caught) {
		t.Errorf("got done %v and error %v, want the panic", done, err)
	}
}

// A wait that ends while the disks are being listed does not count as a medium that cannot be read.
func TestLookEndsWithTheWait(t *testing.T) {
	for range 1000 {
		media := New(newMachine(t).options(cmdline))
		ctx, cancel := context.WithCancel(t.Context())
		media.drives = opening{open: func() ([]*removable.Volume, []*removable.Problem, error) {
			cancel()
			return nil, nil, ctx.Err()
		}}
		done, err := media.look(ctx, func([]*removable.Volume) (bool, error) { return true, nil })
		if done || !errors.Is(err, context.Canceled) || media.failed {
			t.Fatalf("got done %v, error %v and failed %v, want only the end of the wait", done, err, media.failed)
		}
	}
}

// opening implements drives with another function that opens media.
type opening struct {
	removableDrives
	open func() ([]*removable.Volume, []*removable.Problem, error)
}

func (o opening) volumes(context.Context, sysfs.Root) ([]*removable.Volume, []*removable.Problem, error) {
	return o.open()
}
