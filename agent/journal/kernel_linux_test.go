package journal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/inventory/machinetest"
	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
	"ironroot/storage/sysfs"
)

// The table of free space equals df's.
func TestFreeSpace(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "df")
	dir := t.TempDir()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("memory", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 3<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	sys := machinetest.Unpack(t, "proc/self/mounts: memory "+dir+` tmpfs rw 0 0\n`+
		`proc /proc proc rw 0 0\nnone /no/such/place tmpfs rw 0 0\n`)
	got, err := freeSpace(t.Context(), sys)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(testenv.Run(t, "df", "--block-size=1K", "-a", dir, "/proc"), "\n")
	want := "Filesystem 1K-blocks Used Available Use% Mounted on\n" + columns(table)
	if diff := cmp.Diff(want, columns(string(got))); diff != "" {
		t.Errorf("-df +got:\n%s", diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := freeSpace(ctx, sys); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got error %v", err)
	}
}

func TestAddresses(t *testing.T) {
	testenv.Programs(t, "ip")
	nettest.EnterNamespace(t)
	testenv.Run(t, "ip", "link", "add", "eth7", "address", "52:54:00:12:34:56", "mtu", "1400",
		"type", "veth", "peer", "name", "peer")
	testenv.Run(t, "ip", "link", "set", "peer", "up")
	testenv.Run(t, "ip", "address", "add", "192.0.2.7/24", "dev", "eth7")
	testenv.Run(t, "ip", "address", "add", "2001:db8::7/64", "dev", "eth7", "nodad")
	testenv.Run(t, "ip", "link", "set", "eth7", "up")
	got, err := addresses(t.Context(), sysfs.Root{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		": lo: <LOOPBACK> mtu 65536\n", ": eth7: <UP,BROADCAST,MULTICAST", " mtu 1400\n    link 52:54:00:12:34:56\n",
		"    inet 192.0.2.7/24\n", "    inet6 2001:db8::7/64\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("got no %q in\n%s", want, got)
		}
	}
}
