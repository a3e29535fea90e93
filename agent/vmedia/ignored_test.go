package vmedia

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// A disk that looks like a medium but has not its flags is named once, with the reason. Other USB disks are not.
func TestIgnoredMediaWarning(t *testing.T) {
	m := newMachine(t)
	m.attach("sda", usb, "0", "Stick", floppy(t, "ir-vfd-dev", "parameters.txt", "a=b"), mib)
	m.attach("sdb", usb, "0", "Virtual Media", floppy(t, "OTHER", "parameters.txt", "a=b"), mib)
	m.attach("sdc", usb, "0", "Stick", floppy(t, "OTHER", "parameters.txt", "a=b"), mib)
	for _, name := range []string{"sda", "sdb", "sdc"} {
		m.write("sys/class/block/"+name+"/removable", "0")
	}
	var log bytes.Buffer
	o := m.options(cmdline)
	o.limit = readable
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	media := New(o)
	for range 2 {
		if params, err := media.Load(limited(t)); err != nil || params["a"] != "" {
			t.Fatalf("got %v and %v, want no parameters of a disk", params, err)
		}
	}
	for path, want := range map[string]int{"/dev/sda": 1, "/dev/sdb": 1, "/dev/sdc": 0} {
		if got := strings.Count(log.String(), `neither removable nor write-protected" device=`+path+" "); got != want {
			t.Errorf("%s is named %d times, want %d:\n%s", path, got, want, log.String())
		}
	}
}
