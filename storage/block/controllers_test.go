package block

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/storage/sysfs"
)

// putSys writes files below the machine's /sys. The content "/" makes a directory.
func putSys(t *testing.T, s sysfs.Root, files map[string]string) {
	t.Helper()
	for file, text := range files {
		path := s.Sys(file)
		if text == "/" {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Controllers are listed with and without namespaces, except for NVMe over fabrics.
func TestNVMeControllers(t *testing.T) {
	s := sysfs.Root{Path: t.TempDir()}
	if got, err := NVMeControllers(t.Context(), s); len(got) != 0 || err != nil {
		t.Errorf("no NVMe: got %v and %v, want none", got, err)
	}
	putSys(t, s, map[string]string{
		"class/nvme/nvme0/transport": "pcie\n",
		"class/nvme/nvme0/ng0n1":     "/", // a character device
		"class/nvme/nvme0/nvme1n1p1": "/", // a partition

		"class/nvme/nvme1/transport": "pcie\n",
		"class/nvme/nvme1/address":   "0000:3b:00.0\n",
		"class/nvme/nvme1/hwmon1":    "/",
		"class/nvme/nvme1/nvme1n1":   "/",
		"class/nvme/nvme1/nvme1n12":  "/",

		"class/nvme/nvme2/transport": "tcp\n",
		"class/nvme/nvme2/nvme2n1":   "/",

		"class/nvme/nvme3/transport": "pcie\n",
		"class/nvme/nvme3/nvme5c3n1": "/",
		"class/nvme/nvme3/nvme5c3n2": "/", // all paths to it are inaccessible

		"class/nvme/nvme4": "/", // unplugged

		"block/nvme1n1/nsid": "1\n", "block/nvme1n12/nsid": "4294967294\n", "block/nvme2n1": "/",
		"block/nvme5n1/nsid": "7\n",
		"block/nvme5c3n1":    "/",
		"block/nvme5c3n2":    "/", "block/nvme3n2": "/",
	})
	want := []NVMeController{
		{Name: "nvme0", Path: s.Dev("nvme0")},
		{
			Name: "nvme1", Path: s.Dev("nvme1"), Address: "0000:3b:00.0",
			Namespaces: []NVMeNamespace{{"/dev/nvme1n1", 1}, {"/dev/nvme1n12", 4294967294}},
		},
		{Name: "nvme3", Path: s.Dev("nvme3"), Namespaces: []NVMeNamespace{{"/dev/nvme5n1", 7}}},
	}
	got, err := NVMeControllers(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	// A controller that cannot be described does not hide the others.
	if err := os.Remove(s.Sys("class/nvme/nvme0/transport")); err != nil {
		t.Fatal(err)
	}
	putSys(t, s, map[string]string{"class/nvme/nvme0/transport": "/"})
	got, err = NVMeControllers(t.Context(), s)
	if !errors.Is(err, ErrUnreadable) || !errors.Is(err, unix.EISDIR) ||
		!strings.Contains(err.Error(), "NVMe controller nvme0: ") {
		t.Errorf("got %v, want %v that names nvme0", err, ErrUnreadable)
	}
	if diff := cmp.Diff(want[1:], got); diff != "" {
		t.Errorf("others: -want +got:\n%s", diff)
	}
	// A vanished namespace has no id. One whose id cannot be read makes its controller unreadable.
	if err := os.Remove(s.Sys("block/nvme5n1/nsid")); err != nil {
		t.Fatal(err)
	}
	if got, _ := NVMeControllers(t.Context(), s); len(got) != 2 || got[1].Namespaces[0].ID != 0 {
		t.Errorf("vanished: got %v, want a namespace without id", got)
	}
	for text, want := range map[string]error{
		"/": unix.EISDIR, "seven": strconv.ErrSyntax, "4294967296": strconv.ErrRange,
	} {
		if err := os.RemoveAll(s.Sys("block/nvme5n1/nsid")); err != nil {
			t.Fatal(err)
		}
		putSys(t, s, map[string]string{"block/nvme5n1/nsid": text})
		got, err := NVMeControllers(t.Context(), s)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "NVMe controller nvme3: ") || len(got) != 1 {
			t.Errorf("id %q: got %v and %v, want %v of nvme3", text, got, err, want)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := NVMeControllers(cancelled, s); !errors.Is(err, context.Canceled) || len(got) > 0 {
		t.Errorf("cancelled: got %v and %v, want %v", got, err, context.Canceled)
	}
	file := sysfs.Root{Path: t.TempDir()}
	putSys(t, file, map[string]string{"class/nvme": ""})
	got, err = NVMeControllers(t.Context(), file)
	if !errors.Is(err, unix.ENOTDIR) || !strings.HasPrefix(err.Error(), "list NVMe controllers: ") {
		t.Errorf("no directory: got %v and %v, want %v", got, err, unix.ENOTDIR)
	}
}
