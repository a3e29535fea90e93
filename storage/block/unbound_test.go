package block

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/storage/sysfs"
)

// putPCI adds a PCI function with the named links to a machine.
func putPCI(t *testing.T, s sysfs.Root, address, class string, links ...string) {
	t.Helper()
	dir := "bus/pci/devices/" + address
	putSys(t, s, map[string]string{
		dir + "/class": class + "\n", dir + "/vendor": "0x1000\n", dir + "/device": "0x005d\n",
	})
	for _, link := range links {
		if err := os.Symlink("../elsewhere", s.Sys(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
}

// Storage controllers without a driver are listed, except virtual functions. The kernel removes the link when the
// driver's probe fails.
func TestUnboundControllers(t *testing.T) {
	s := sysfs.Root{Path: t.TempDir()}
	if got, err := UnboundControllers(t.Context(), s); len(got) != 0 || err != nil {
		t.Errorf("no PCI: got %v and %v, want none", got, err)
	}
	putPCI(t, s, "0000:00:1f.2", "0x010601", "driver")
	putPCI(t, s, "0000:02:00.0", "0x020000")
	putPCI(t, s, "0000:3b:00.0", "0x010400")
	putPCI(t, s, "0000:3b:00.1", "0x010400", "physfn")
	putPCI(t, s, "10000:01:00.0", "0x010802")
	want := []UnboundController{
		{Address: "0000:3b:00.0", ID: "1000:005d", Class: "0x010400"},
		{Address: "10000:01:00.0", ID: "1000:005d", Class: "0x010802"},
	}
	putSys(t, s, map[string]string{"bus/pci/devices/0000:01:00.0": "/"}) // unplugged
	got, err := UnboundControllers(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	// A function that cannot be described does not hide the others.
	putSys(t, s, map[string]string{"bus/pci/devices/0000:01:00.0/class": "/"})
	got, err = UnboundControllers(t.Context(), s)
	if !errors.Is(err, ErrUnreadable) || !errors.Is(err, unix.EISDIR) ||
		!strings.Contains(err.Error(), "PCI function 0000:01:00.0: ") {
		t.Errorf("got %v, want %v that names 0000:01:00.0", err, ErrUnreadable)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("others: -want +got:\n%s", diff)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := UnboundControllers(cancelled, s); !errors.Is(err, context.Canceled) || len(got) > 0 {
		t.Errorf("cancelled: got %v and %v, want %v", got, err, context.Canceled)
	}
	file := sysfs.Root{Path: t.TempDir()}
	putSys(t, file, map[string]string{"bus/pci/devices": ""})
	got, err = UnboundControllers(t.Context(), file)
	if !errors.Is(err, unix.ENOTDIR) || !strings.HasPrefix(err.Error(), "list storage controllers: ") {
		t.Errorf("no directory: got %v and %v, want %v", got, err, unix.ENOTDIR)
	}
}
