package erase

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ReadController reads the namespaces that have no block device.
func TestReadController(t *testing.T) {
	const management = oacsNamespaceManagement
	const shared = "the NVMe subsystem is shared, not erased: "
	broken := errors.New("no list")
	for name, c := range map[string]struct {
		drive fakeNVMe
		shown []uint32
		want  Controller // without Remains
		text  string     // of Remains
		err   error
		sent  int // commands
	}{
		"no namespaces": {drive: fakeNVMe{oacs: management, active: []uint32{}, none: true}, sent: 3},
		"attached": {
			drive: fakeNVMe{oacs: management, active: []uint32{1, 7}},
			want:  Controller{NoDevice: "namespaces 1, 7"}, sent: 3,
		},
		"one shown": {
			drive: fakeNVMe{oacs: management, active: []uint32{1, 7}}, shown: []uint32{0, 7, 9},
			want: Controller{NoDevice: "namespace 1"}, sent: 3,
		},
		"all shown": {drive: fakeNVMe{oacs: management, active: []uint32{1, 7}}, shown: []uint32{7, 1}, sent: 3},
		"unattached": {
			drive: fakeNVMe{oacs: management, active: []uint32{}, allocated: []uint32{2}},
			want:  Controller{NotErased: "not erased: namespaces 2, 7, not attached to this controller"},
			text:  "data remain out of reach: namespaces 2, 7, not attached to the NVMe controller", sent: 3,
		},
		"both": {
			drive: fakeNVMe{oacs: management, allocated: []uint32{2, 5}},
			want: Controller{
				NoDevice: "namespace 7", NotErased: "not erased: namespaces 2, 5, not attached to this controller",
			},
			text: "data remain out of reach: namespaces 2, 5, not attached to the NVMe controller", sent: 3,
		},
		"shared": {
			drive: fakeNVMe{oacs: management, cmic: 2, active: []uint32{}},
			want:  Controller{NotErased: shared + "namespace 7, not attached to this controller"}, sent: 3,
		},
		"shared, no management": {
			drive: fakeNVMe{cmic: 8, active: []uint32{}},
			want:  Controller{NotErased: shared + "namespaces of other controllers, if any"}, sent: 2,
		},
		"no management":           {drive: fakeNVMe{oacs: 7, active: []uint32{}}, sent: 2},
		"no management, attached": {drive: fakeNVMe{}, want: Controller{NoDevice: "namespace 7"}, sent: 2},
		"no list":                 {drive: fakeNVMe{oacs: management, identifyError: broken}, err: broken, sent: 2},
		"no list of allocated":    {drive: fakeNVMe{oacs: management, allocatedError: broken}, err: broken, sent: 3},
		"no identify":             {drive: fakeNVMe{controllerError: broken}, err: broken, sent: 1},
	} {
		sent, opened := 0, ""
		c.drive.afterIdentify = func() { sent++ }
		open := func(path string) (adminDevice, error) { opened = path; return &c.drive, nil }
		got, err := readController(t.Context(), "/dev/controller", c.shown, open)
		text := ""
		if got.Remains != nil {
			text = got.Remains.Error()
		}
		if text != c.text || errors.Is(got.Remains, ErrRemains) != (c.text != "") {
			t.Errorf("%s: got error %q, want %q", name, text, c.text)
		}
		got.Remains = nil
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: got %+v and %v, want %+v and %v", name, got, err, c.want, c.err)
		}
		if sent != c.sent || opened != "/dev/controller" || !c.drive.closed || len(c.drive.formats) > 0 {
			t.Errorf("%s: got %d commands, %q opened, closed %v, formats %x, want %d commands, closed and no format",
				name, sent, opened, c.drive.closed, c.drive.formats, c.sent)
		}
	}
}

// A controller that cannot be opened or read is an error that names it.
func TestReadControllerFails(t *testing.T) {
	missing, file := filepath.Join(t.TempDir(), "nvme0"), filepath.Join(t.TempDir(), "nvme1")
	put(t, file, "no character device")
	for path, want := range map[string]error{missing: fs.ErrNotExist, file: unix.ENOTTY} {
		got, err := ReadController(t.Context(), path, nil)
		start := "read the NVMe namespaces of " + path + ": "
		if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), start) || got != (Controller{}) {
			t.Errorf("%s: got %+v and %v, want %v", path, got, err, want)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := ReadController(cancelled, file, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %+v and %v, want %v", got, err, context.Canceled)
	}
}
