package journal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/inventory/machinetest"
	"ironroot/internal/testenv"
	"ironroot/storage/block"
)

// Members that a machine cannot provide are listed in the member "errors"; all others are in the archive.
func TestArchiveNotesWhatIsMissing(t *testing.T) {
	testenv.Root(t) // for the kernel's log
	got := unpack(t, New(io.Discard, nil, 1<<20), block.System{Root: t.TempDir()})
	for _, name := range []string{
		"ps", "df", "mount", "lsblk", "lsblk-full", "mdstat", "multipath", "parted", "efibootmgr",
	} {
		if _, found := got[name]; found || !strings.Contains(got["errors"], name+": ") {
			t.Errorf("%s: got member %t and errors\n%s\nwant no member, but an error", name, found, got["errors"])
		}
	}
	for _, name := range []string{"journal", "dmesg", "ip_addr", "iptables"} {
		if _, found := got[name]; !found || strings.Contains(got["errors"], name+": ") {
			t.Errorf("%s: got member %t and errors\n%s\nwant a member and no error", name, found, got["errors"])
		}
	}
	if len(got["dmesg"]) == 0 {
		t.Error("dmesg: got nothing")
	}
}

// The table of free space equals that of df.
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
	testenv.Root(t)
	testenv.Programs(t, "ip")
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "ip", "link", "add", "eth7", "address", "52:54:00:12:34:56", "mtu", "1400",
		"type", "veth", "peer", "name", "peer")
	testenv.Run(t, "ip", "link", "set", "peer", "up")
	testenv.Run(t, "ip", "address", "add", "192.0.2.7/24", "dev", "eth7")
	testenv.Run(t, "ip", "address", "add", "2001:db8::7/64", "dev", "eth7", "nodad")
	testenv.Run(t, "ip", "link", "set", "eth7", "up")
	got, err := addresses(t.Context(), block.System{})
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

// Directories of /proc that are no processes, and processes that have ended, are left out.
func TestProcesses(t *testing.T) {
	got, err := processes(t.Context(), machinetest.Unpack(t, `
proc/1/status: Name:\tinit\nState:\tS (sleeping)\nPPid:\t0\nVmRSS:\t  42 kB\n
proc/2/status: Name:\tkthreadd\nState:\tI (idle)\nPPid:\t0\n
proc/8/fd/
proc/self/status: Name:\tself\n
`))
	if err != nil {
		t.Fatal(err)
	}
	want := "PID PPID STATE RSS-KIB COMMAND\n1 0 S (sl 42 init\n2 0 I (id - kthreadd\n"
	if diff := cmp.Diff(want, columns(string(got))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A map, an ordinary disk, a path with unknown state, and a map with unknown paths.
func TestMultipathMaps(t *testing.T) {
	got, err := multipathMaps(t.Context(), machinetest.Unpack(t, `
sys/block/dm-0/slaves/sda/size: 2048\n
sys/class/block/dm-0/size: 2048\n
sys/class/block/dm-0/dm/uuid: mpath-3600508b1001c5f4f\n
sys/class/block/dm-0/slaves/sda/size: 2048\n
sys/class/block/sda/size: 2048\n
sys/block/dm-1/size: 4096\n
sys/class/block/dm-1/size: 4096\n
sys/class/block/dm-1/dm/uuid: mpath-3600508b1001c5f50\n
sys/block/sdz/size: 2048\n
sys/class/block/sdz/size: 2048\n
`))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	if len(lines) != 4 {
		t.Fatalf("got %q, want 4 lines", lines)
	}
	const missing = "no such file or directory"
	for i, want := range []struct{ start, end string }{
		{"dm-0 (", ""}, {"  sda open ", missing}, {"dm-1 (", ""}, {"  open ", missing},
	} {
		if !strings.HasPrefix(lines[i], want.start) || !strings.HasSuffix(lines[i], want.end) {
			t.Errorf("line %d: got %q, want %q ... %q", i, lines[i], want.start, want.end)
		}
	}
}

func TestBootEntries(t *testing.T) {
	const guid = "-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	got, err := bootEntries(t.Context(), machinetest.Unpack(t, strings.ReplaceAll(`
sys/firmware/efi/efivars/Boot0001-GUID= 0700000001000000040064006500620000004100
sys/firmware/efi/efivars/Boot0002-GUID= 07000000000000000400780000
sys/firmware/efi/efivars/Boot0003-GUID/
sys/firmware/efi/efivars/BootNext-GUID= 070000000a00
sys/firmware/efi/efivars/BootOptionSupport-GUID= 0600000001000000
`, "GUID", guid[1:])))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(got), "Boot0003: read ", "Boot0003: ")
	for _, want := range []string{
		"Boot0001: * deb\n", "Boot0002:   x\n", guid + ": is a directory\n", "BootNext: 000A\n",
		"BootOptionSupport: 4 bytes\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got no %q in\n%s", want, text)
		}
	}
}

func TestArchiveMembers(t *testing.T) {
	j := New(io.Discard, nil, 1<<20)
	j.Logger().Info("kept line")
	got := unpack(t, j, block.System{Root: t.TempDir()}, Member{"extra", []byte("data")})
	if got["extra"] != "data" || !strings.HasSuffix(got["journal"], "kept line\n") {
		t.Errorf("got extra %q and journal %q", got["extra"], got["journal"])
	}
	if !bytes.Contains([]byte(got["errors"]), []byte("mdstat: ")) {
		t.Errorf("got errors %q, want mdstat among them", got["errors"])
	}
}
