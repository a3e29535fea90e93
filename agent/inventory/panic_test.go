package inventory

import (
	"context"
	"errors"
	"testing"
	"time"

	"ironroot/agent/config"
	"ironroot/internal/goroutine"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/testenv"
	"ironroot/netboot/lldp"
	"ironroot/storage/block"
)

// brokenNeighbours panics when LLDP frames are requested.
type brokenNeighbours struct{}

func (brokenNeighbours) WaitLLDP(context.Context, time.Duration) (map[string]lldp.Frame, error) {
	panic("in a frame")
}

// A fact that causes a panic is missing from the inventory, which contains the others. A panic while disks are listed
// is an error.
func TestCollectContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	oops := func() { panic("oops") }
	fill := func(change func(*Source, *Options)) (*Inventory, error) {
		o := Options{
			System: tree(t, "testdata/qemu.tree"),
			Disks:  disktest.List{{Path: "/dev/sda"}},
		}
		change(nil, &o)
		s := New(o)
		change(s, &o)
		return s.Collect(t.Context())
	}
	whole, err := fill(func(*Source, *Options) {})
	if err != nil || len(whole.Interfaces) == 0 || whole.Memory.Total == 0 || whole.SystemVendor.ProductName == "" {
		t.Fatalf("got inventory %+v and %v, want the whole one", whole, err)
	}
	for name, change := range map[string]func(*Source, *Options){
		"boot": func(_ *Source, o *Options) { o.Config = &config.Live{} }, // without a snapshot
		"LLDP": func(_ *Source, o *Options) {
			o.Neighbours = brokenNeighbours{}
			o.Config = config.NewLive(&config.Config{CollectLLDP: true})
		},
	} {
		got, err := fill(change)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(got.Interfaces) != len(whole.Interfaces) || len(got.Disks) != 1 ||
			got.SystemVendor != whole.SystemVendor {
			t.Errorf("%s: got inventory %+v, want everything else of %+v", name, got, whole)
		}
	}
	_, err = fill(func(_ *Source, o *Options) {
		o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) { oops(); return nil, nil })
	})
	var caught *goroutine.PanicError
	if !errors.As(err, &caught) {
		t.Errorf("disks: got %v, want the panic", err)
	}
}
