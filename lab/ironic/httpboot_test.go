//go:build linux && long

package ironic

import (
	"regexp"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
)

// TestRealIronicHTTPBoot inspects a machine with Ironic's boot interface redfish-https: OVMF downloads the ISO that
// Ironic builds. The ramdisk finds the static network data of the node on the RAM disk, and reports to Ironic.
//
// Parity: T3 (real Ironic)
func TestRealIronicHTTPBoot(t *testing.T) {
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 45*time.Minute)
	i := start(t, Options{
		// Ironic 21.4 has no boot interface redfish-https: it is not enabled in all tests.
		Config: "[DEFAULT]\nenabled_boot_interfaces = redfish-https\n[conductor]\nautomated_clean = false\n",
	})
	n, err := i.Enroll(ctx, NodeOptions{
		Name: "http", Boot: HTTPBoot, Firmware: true, Kernel: kernel, Ramdisk: ramdisk, Memory: 768 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	mark := n.Mark()
	step(t, "manage", n.Manage(ctx))
	step(t, "static network", n.Set(ctx, "/network_data", static(n.MAC)))
	step(t, "inspect", n.Inspect(ctx))
	read := regexp.MustCompile(`network data read from config drive device=/dev/pmem`)
	if _, err := n.Follow(testenv.Context(t, time.Minute), mark, read); err != nil {
		t.Errorf("the ramdisk does not report network data of the RAM disk: %v\n%s", err, n.Console(40))
	}
	inventory, _, err := n.Inventory(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if disks, _ := inventory["disks"].([]any); len(disks) != 1 {
		t.Errorf("got disks %v, want the only disk, and not the RAM disk", disks)
	}
}
