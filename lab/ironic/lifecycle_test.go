//go:build linux

package ironic

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
	"ironroot/lab/osimage"
	"ironroot/lab/osimage/osimagetest"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

// TestRealIronicLifecycle runs the operations of a user of Ironic on one machine: inspection, automated cleaning,
// deployment of a raw image with the ramdisk booted by iPXE, rebuild with a partition image, tear-down, deployment of a
// qcow2 image with the ramdisk booted from virtual media. The last one runs without DHCP: the ramdisk has the address
// that Ironic writes to the medium. The machine has 384 MiB of memory. The qcow2 image has a disk of 4 GiB, and more
// content than the machine has memory.
//
// Parity: S1, S2, S3 (automated cleaning), S4, H11, R12 (ISO, iPXE), T7 (parsed LLDP), T9, T13 (29.0)
func TestRealIronicLifecycle(t *testing.T) { lifecycle(t, Trixie) }

// lifecycle runs the operations of TestRealIronicLifecycle with the Ironic of a release of Debian.
func lifecycle(t *testing.T, suite string) {
	t.Helper()
	testenv.Programs(t, "qemu-img")
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 55*time.Minute)
	image, err := osimage.Build(ctx, osimage.Options{Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "accelerators.yaml"), []byte(accelerators), 0o644); err != nil {
		t.Fatal(err)
	}
	i := start(t, Options{Suite: suite, Config: everyHook, Dir: dir})
	if suite == Sid {
		checkNewest(t, ctx, i)
	}
	raw := publish(t, i, image.Raw, "os.raw")
	qcow2 := publish(t, i, largeImage(t, image.Raw), "os.qcow2")
	root := publish(t, i,
		osimagetest.Root(t, func(root, esp string) { osimagetest.AddLoaders(t, root, esp) }), "root.raw")

	n, err := i.Enroll(ctx, NodeOptions{
		Kernel: kernel, Ramdisk: ramdisk, Memory: memory, Cables: 1,
		Disks: []qemu.Disk{{Size: 6 << 30, Serial: "DISK0"}, {Size: 7 << 30, Serial: "DISK1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for card := range n.taps {
		speak(t, n, card, leaf(fmt.Sprintf("Eth1/%d", card+1)))
	}
	step(t, "manage", n.Manage(ctx))
	step(t, "properties", n.Set(ctx, "/properties", map[string]any{"root_device": map[string]any{"serial": "DISK1"}}))
	step(t, "inspect", n.Inspect(ctx))
	checkInventory(t, ctx, n)
	checkHooks(t, ctx, n)
	// Ironic refuses a non-raw image that exceeds the node's known memory, because its own ramdisk has to hold the
	// image.
	step(t, "unknown memory", n.Set(ctx, "/properties", map[string]any{
		"cpu_arch": "x86_64", "capabilities": "boot_mode:uefi", "root_device": map[string]any{"serial": "DISK1"},
	}))
	mark := n.Mark()
	step(t, "provide", n.Provide(ctx))
	if n.Mark() == mark {
		t.Error("the automated cleaning did not start the machine")
	}

	n.UseFirmware(true)
	deploy(t, ctx, n.Deploy, n, Image{URL: raw.URL, Format: "raw", SHA256: raw.SHA256})
	n.UseFirmware(false)
	deploy(t, ctx, n.Rebuild, n, Image{URL: root.URL, Format: "raw", SHA256: root.SHA256, RootGB: 1})
	disk := filepath.Join(i.path("vm/"+n.Name), "disk1.raw")
	checkPartitions(t, ctx, disk, partition.GPT, partition.TypeESP+" 550", partition.TypeLinux+" 1",
		partition.TypeLinux+" 1024")
	step(t, "undeploy", n.Undeploy(ctx))

	step(t, "virtual media", n.UseBoot(ctx, VirtualMedia))
	step(t, "static network", n.Set(ctx, "/network_data", static(n.MAC)))
	step(t, "no DHCP", i.StopDHCP())
	deploy(t, ctx, n.Deploy, n, Image{URL: qcow2.URL, Format: "qcow2", SHA256: qcow2.SHA256})
	checkLarge(t, disk)
}

// memory is the machine's memory, and largeSize the size of the larger image's disk.
const (
	memory    = 384 << 20
	largeSize = 4 << 30
)

// fillings are the offsets of noise in the large image's disk: 64 MiB each, one of them at its end.
var fillings = []int64{1 << 30, 5 << 29, largeSize - 64<<20}

func filling(at int64) []byte {
	noise := make([]byte, 64<<20)
	_, _ = rand.NewChaCha8([32]byte{byte(at >> 24)}).Read(noise) // never fails
	return noise
}

// largeImage returns a qcow2 image with a disk of 4 GiB, made from a raw image.
func largeImage(t *testing.T, small string) string {
	t.Helper()
	raw, qcow2 := filepath.Join(t.TempDir(), "os.raw"), filepath.Join(t.TempDir(), "os.qcow2")
	testenv.Run(t, "cp", "--sparse=always", "--reflink=auto", small, raw)
	f, err := os.OpenFile(raw, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, at := range fillings {
		if _, err := f.WriteAt(filling(at), at); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Run(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, qcow2)
	if info, err := os.Stat(qcow2); err != nil || info.Size() < memory {
		t.Fatalf("the image has %v and %v, want more bytes than the machine's memory, %d", info, err, memory)
	}
	return qcow2
}

// checkLarge checks that a disk contains the noise of the large image.
func checkLarge(t *testing.T, disk string) {
	t.Helper()
	f, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, at := range fillings {
		want := filling(at)
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, at); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the disk does not hold at byte %d what the image does: %v", at, err)
		}
	}
}

// checkPartitions compares the partition table of a disk after the deployment of a partition image. want contains the
// scheme and, for each partition, its type, its size in MiB and a star if it is active.
func checkPartitions(t *testing.T, ctx context.Context, disk string, want ...string) {
	t.Helper()
	table, err := partition.Read(ctx, disk)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{table.Scheme}
	for _, p := range table.Partitions {
		got = append(got, fmt.Sprint(p.Type, " ", p.Size>>20, map[bool]string{true: "*"}[p.Boot]))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("partitions differ (-want +got):\n%s", diff)
	}
}

// static returns a network configuration in the form of OpenStack.
func static(mac string) map[string]any {
	return map[string]any{
		"links": []map[string]any{{"id": "port", "type": "phy", "ethernet_mac_address": mac}},
		"networks": []map[string]any{{
			"id": "provisioning", "network_id": "provisioning", "link": "port", "type": "ipv4",
			"ip_address": "172.30.0.50", "netmask": "255.255.255.0",
			"routes": []map[string]any{{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": address}},
		}},
		"services": []map[string]any{},
	}
}

func step(t *testing.T, name string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// publish makes an image available to the node.
func publish(t *testing.T, i *Ironic, file, name string) Image {
	t.Helper()
	url, err := i.Publish(file, name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		t.Fatal(err)
	}
	return Image{URL: url, SHA256: fmt.Sprintf("%x", hash.Sum(nil))}
}

// deploy deploys an image with a config drive by Node.Deploy or Node.Rebuild, and checks on the instance's console
// that it runs and found the drive.
func deploy(
	t *testing.T, ctx context.Context, verb func(context.Context, Image, map[string]any) error, n *Node, image Image,
) {
	t.Helper()
	uuid := newUUID()
	mark := n.Mark()
	drive := map[string]any{"meta_data": map[string]any{"uuid": uuid, "hostname": "instance", "name": "instance"}}
	step(t, "deploy "+image.URL, verb(ctx, image, drive))
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	if _, err := n.Follow(ctx, mark, osimage.Up); err != nil {
		t.Fatalf("the instance does not come up: %v", err)
	}
	groups, err := n.Follow(ctx, mark, osimage.ConfigDrive)
	if err != nil {
		t.Fatal(err)
	}
	if groups[1] != uuid {
		t.Errorf("config drive: got uuid %s, want %s", groups[1], uuid)
	}
}

// checkInventory checks the inspection data that Ironic stored.
func checkInventory(t *testing.T, ctx context.Context, n *Node) {
	t.Helper()
	inventory, plugin, err := n.Inventory(ctx)
	if err != nil {
		t.Fatal(err)
	}
	interfaces, _ := inventory["interfaces"].([]any)
	disks, _ := inventory["disks"].([]any)
	if len(interfaces) != 2 || len(disks) != 2 {
		t.Fatalf("got %d interfaces and %d disks, want two each: %v", len(interfaces), len(disks), inventory)
	}
	for card, mac := range n.MACs {
		if got := interfaces[card].(map[string]any)["mac_address"]; got != mac {
			t.Errorf("mac_address: got %v, want %s", got, mac)
		}
	}
	for i, d := range disks {
		disk := d.(map[string]any)
		if disk["size"] != float64((6+i)<<30) || disk["serial"] != fmt.Sprintf("DISK%d", i) {
			t.Errorf("disk %d: got %v", i, disk)
		}
	}
	if got := inventory["boot"].(map[string]any)["current_boot_mode"]; got != "uefi" {
		t.Errorf("current_boot_mode: got %v, want uefi", got)
	}
	if plugin["root_disk"] == nil {
		t.Errorf("plugin data: got %v, want a root disk", plugin)
	}
}
