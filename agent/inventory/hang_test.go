package inventory

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/inventory/machinetest"
)

// A driver that hangs costs one fact and a warning that names the file, not the inventory.
func TestHangingFile(t *testing.T) {
	sys := machinetest.System(t, "dell-r640")
	path := sys.Sys("class/dmi/id/product_serial")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil { // nobody writes to it
		t.Fatal(err)
	}
	t.Cleanup(func() { // lets the forgotten reader go
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			_ = f.Close()
		}
	})
	var log bytes.Buffer
	inv, err := New(Options{System: sys, Log: slog.New(slog.NewTextHandler(&log, nil))}).Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v := inv.SystemVendor; v.SerialNumber != "" || v.Manufacturer != "Dell Inc." {
		t.Errorf("got %+v, want all but the serial number", v)
	}
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), path) {
		t.Errorf("got the log %q, want a warning that names %s", &log, path)
	}
}

// deafBMC answers nothing until the test is over.
type deafBMC struct{ until <-chan struct{} }

func (b deafBMC) lan(byte, byte, byte) ([]byte, error) {
	<-b.until
	return nil, context.Canceled
}

func (deafBMC) Close() error { return nil }

func TestBMCHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := tree(t, "testdata/qemu.tree")
		put(t, sys.Root, "dev/ipmi0", func(path string) error { return os.Symlink("/dev/null", path) })
		var log bytes.Buffer
		s := New(Options{System: sys, Log: slog.New(slog.NewTextHandler(&log, nil))})
		over := make(chan struct{})
		s.ipmi = func() (bmc, error) { return deafBMC{over}, nil }
		for _, want := range []time.Duration{bmcTimeout, 0} { // it is asked once in the process's life
			started := time.Now()
			if got := s.bmc(t.Context()); got != (bmcAddresses{}) {
				t.Errorf("got %+v, want nothing", got)
			}
			if took := time.Since(started); took != want {
				t.Errorf("got an answer after %v, want one after %v", took, want)
			}
		}
		if !strings.Contains(log.String(), "BMC did not answer") || !strings.Contains(log.String(), "ipmi0") {
			t.Errorf("got the log %q, want a warning that names the device", &log)
		}
		close(over)
	})
}
