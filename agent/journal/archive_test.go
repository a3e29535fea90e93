package journal

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/inventory/machinetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// Members that a machine cannot provide are listed in the member "errors"; all others are in the archive.
func TestArchiveNotesWhatIsMissing(t *testing.T) {
	testenv.Root(t) // for the kernel's log
	got := unpack(t, New(io.Discard, nil, 1<<20), sysfs.Root{Path: t.TempDir()})
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

// Directories of /proc other than processes, and processes that have ended, are omitted.
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
	got := unpack(t, j, sysfs.Root{Path: t.TempDir()}, Member{"extra", []byte("data")})
	if got["extra"] != "data" || !strings.HasSuffix(got["journal"], "kept line\n") {
		t.Errorf("got extra %q and journal %q", got["extra"], got["journal"])
	}
	if !bytes.Contains([]byte(got["errors"]), []byte("mdstat: ")) {
		t.Errorf("got errors %q, want mdstat among them", got["errors"])
	}
}

// Members that were kept are in every archive, under names of their own, before members that may be truncated.
func TestKeep(t *testing.T) {
	j := New(io.Discard, nil, 1<<20)
	data := []byte("first")
	for _, want := range []string{"erase/S1.json", "erase/S1-2.json", "erase/S1-3.json"} {
		if name, err := j.Keep("erase/S1.json", data); err != nil || name != want {
			t.Errorf("got %q, %v, want %q", name, err, want)
		}
		data = []byte("later")
	}
	if name, err := j.Keep("large", make([]byte, maxKept)); err == nil || name != "" {
		t.Errorf("too large: got %q, %v, want an error", name, err)
	}
	for range 2 {
		packed, err := j.Archive(t.Context(), sysfs.Root{Path: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		files := testenv.Untar(t, packed)
		if files["erase/S1.json"] != "first" || files["erase/S1-2.json"] != "later" ||
			files["erase/S1-3.json"] != "later" {
			t.Errorf("got %q", files)
		}
	}
}

// An archive that is too large is packed with less of its largest members, until it fits. Small members are complete.
func TestArchiveWithin(t *testing.T) {
	j := New(io.Discard, nil, 1<<20)
	noise := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	sys := sysfs.Root{Path: t.TempDir()}
	members := []Member{{"large", noise}, {"zeros", make([]byte, 4<<20)}, {"small", noise[:3000]}}
	for _, limit := range []int64{1 << 20, 100 << 10, 20 << 10} {
		archive, truncated, err := j.ArchiveWithin(t.Context(), limit, sys, members...)
		if err != nil || int64(len(archive)) > limit || int64(len(archive)) < limit/4 {
			t.Fatalf("limit %d: got %d bytes and %v", limit, len(archive), err)
		}
		files := testenv.Untar(t, archive)
		if files["small"] != string(noise[:3000]) || !strings.HasPrefix(string(noise), files["large"]) {
			t.Errorf("limit %d: got %d bytes of small, want all, and a large that starts as the original",
				limit, len(files["small"]))
		}
		if strings.Join(truncated, "\n")+"\n" != files["truncated"] ||
			!strings.Contains(files["truncated"], "large: first ") {
			t.Errorf("limit %d: got truncated %q and %q", limit, truncated, files["truncated"])
		}
	}
	if _, _, err := j.ArchiveWithin(t.Context(), 1000, sys, members...); err == nil ||
		!strings.Contains(err.Error(), "want at most 1000") {
		t.Errorf("limit 1000: got %v, want an error", err)
	}
}
