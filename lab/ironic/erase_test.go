//go:build linux

package ironic

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// TestRealIronicErasesArrays cleans a machine with two disks that are members of a tenant's RAID 1. erase_devices
// overwrites all of the tenant's data; erase_devices_metadata removes all tables and superblocks. If Ironic created
// the array, the step fails and names it. The test reads the disks on the host. The machine ignores discards, so the
// disks contain zeros only if zeros were written.
func TestRealIronicErasesArrays(t *testing.T) {
	testenv.Programs(t, "sgdisk", "mdadm", "wipefs")
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 45*time.Minute)
	dir := t.TempDir()
	members := []string{filepath.Join(dir, "first"), filepath.Join(dir, "second")}
	tenantArray(t, members)
	i := start(t, Options{Suite: newest(t), KernelParams: "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1"})
	n, err := i.Enroll(ctx, NodeOptions{
		Kernel: kernel, Ramdisk: ramdisk, Memory: memory,
		Disks: []qemu.Disk{
			{File: members[0], Serial: "FIRST", NoDiscard: true},
			{Bus: qemu.SATA, File: members[1], Serial: "SECOND", NoDiscard: true},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	step(t, "manage", n.Manage(ctx))

	step(t, "erase_devices_metadata", n.Clean(ctx, Step{Interface: "deploy", Step: "erase_devices_metadata"}))
	for _, path := range members {
		data := contentOf(t, n, path)
		if out := testenv.Run(t, "wipefs", "--no-act", path); out != "" {
			t.Errorf("%s: wipefs finds\n%s", path, out)
		}
		if bytes.Contains(data, mdMagic) || bytes.Contains(data, []byte("EFI PART")) {
			t.Errorf("%s: a superblock or a table is left", path)
		}
		if !bytes.Contains(data, tenantData) {
			t.Errorf("%s: erasing the metadata has erased all data", path)
		}
	}

	tenantArray(t, members)
	step(t, "erase_devices", n.Clean(ctx, Step{Interface: "deploy", Step: "erase_devices"}))
	for _, path := range members {
		data := contentOf(t, n, path)
		if at := bytes.IndexFunc(data, func(r rune) bool { return r != 0 }); at >= 0 || len(data) != arrayDisk {
			t.Errorf("%s: byte %d of %d is not zero", path, at, len(data))
		}
	}

	tenantArray(t, members)
	before := map[string][sha256.Size]byte{}
	for _, path := range members {
		before[path] = sha256.Sum256(contentOf(t, n, path))
	}
	setRAIDConfig(t, ctx, i, n,
		`{"logical_disks": [{"controller": "software", "volume_name": "data", "raid_level": "1", "size_gb": "MAX"}]}`)
	err = n.Clean(ctx, Step{Interface: "deploy", Step: "erase_devices"})
	for _, want := range []string{
		"BlockDeviceEraseError", "/dev/vda is a member of raid1 array", "/dev/sda is a member of raid1 array",
		"tenant:data",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("array in raid_config: got %v, want an error with %q", err, want)
		}
	}
	for _, path := range members {
		if sha256.Sum256(contentOf(t, n, path)) != before[path] {
			t.Errorf("array in raid_config: %s was written to", path)
		}
	}
}

const arrayDisk = 96 << 20 // large enough to keep data between the areas that the metadata wipe overwrites

var (
	mdMagic    = []byte{0xfc, 0x4e, 0x2b, 0xa9}
	tenantData = []byte("a tenant's data ")
)

// tenantArray fills disks with data and creates a RAID 1 on them with a partition table inside.
func tenantArray(t *testing.T, paths []string) {
	t.Helper()
	const inside = 1 << 20
	data := bytes.Repeat(tenantData, arrayDisk/len(tenantData))
	array := filepath.Join(t.TempDir(), "array")
	if err := os.WriteFile(array, data[inside:], 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "sgdisk", "-n", "1:2048:0", array)
	content, err := os.ReadFile(array)
	if err != nil {
		t.Fatal(err)
	}
	copy(data[inside:], content)
	copy(data[4096:], testenv.RAID{Name: "tenant:data", Level: 1, Size: arrayDisk, DataOffset: inside}.Superblock(4096))
	for _, path := range paths {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		out := testenv.Run(t, "mdadm", "--examine", path)
		if !strings.Contains(out, "- correct") || !strings.Contains(out, "tenant:data") {
			t.Fatalf("mdadm finds no member of the array:\n%s", out)
		}
	}
}

// contentOf returns the content of a machine's disk after a cleaning.
func contentOf(t *testing.T, n *Node, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) != arrayDisk {
		t.Fatalf("%s of %s has %d bytes, want %d", path, n.Name, len(data), arrayDisk)
	}
	return data
}

// setRAIDConfig sets the field that Ironic sets after create_configuration. The API does not allow clients to set it.
func setRAIDConfig(t *testing.T, ctx context.Context, i *Ironic, n *Node, raidConfig string) {
	t.Helper()
	if !json.Valid([]byte(raidConfig)) {
		t.Fatalf("no JSON: %s", raidConfig)
	}
	const script = `
import sqlite3, sys
db = sqlite3.connect("` + inside + `/ironic.sqlite", timeout=60)
assert db.execute("update nodes set raid_config = ? where uuid = ?", sys.argv[1:]).rowcount == 1
db.commit()`
	update, err := i.inChroot("raid_config.log", "python3", "-c", script, raidConfig, n.UUID)
	if err == nil {
		err = update.wait(ctx)
	}
	if err != nil {
		t.Fatalf("set raid_config: %v\n%s", err, tail(i.path("log/raid_config.log"), 20))
	}
}
