//go:build linux && long

package ironic

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/osimage"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

// TestRealIronicReleases runs the operations of a user of Ironic with the Ironic of each stable release of Debian:
// inspection where the ramdisk is asked for it, automated cleaning, deployment of a whole-disk image, rescue with a
// login by SSH, and tear-down with another cleaning. The version is the installed package's. Ironic 21.4 inspects with
// ironic-inspector only.
//
// Parity: T13 (21.4, 29.0)
func TestRealIronicReleases(t *testing.T) {
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 100*time.Minute)
	system, err := osimage.Build(ctx, osimage.Options{Progress: t.Output()})
	step(t, "image", err)
	for _, release := range []struct{ suite, version, api string }{
		{Bookworm, "1:21.4.", "1.82"},
		{Trixie, "1:29.0.", "1.96"},
	} {
		t.Run(release.suite, func(t *testing.T) {
			i := start(t, Options{Suite: release.suite})
			checkVersion(t, ctx, i, release.version, release.api)
			disk := testenv.SparseFile(t, 5<<30)
			testenv.GPT(t, disk, "size=8MiB")
			n, err := i.Enroll(ctx, NodeOptions{
				Kernel: kernel, Ramdisk: ramdisk, Memory: memory, Disks: []qemu.Disk{{File: disk, Serial: "DISK0"}},
			})
			step(t, "enroll", err)
			step(t, "manage", n.Manage(ctx))
			if inspectInterface(release.suite) == "agent" {
				step(t, "inspect", n.Inspect(ctx))
				inventory, _, err := n.Inventory(ctx)
				step(t, "inventory", err)
				if disks, _ := inventory["disks"].([]any); len(disks) != 1 {
					t.Errorf("inventory: got %d disks, want 1", len(disks))
				}
			}
			clean(t, ctx, disk, n.Provide)
			image := publish(t, i, system.Raw, "os.raw")
			image.Format = "raw"
			deploy(t, ctx, n.Deploy, n, image)
			rescue(t, ctx, n, n.Ramdisk)
			clean(t, ctx, disk, n.Undeploy)
		})
	}
}

// clean runs an operation that includes an automated cleaning, and checks that it removed the disk's partition table.
func clean(t *testing.T, ctx context.Context, disk string, operation func(context.Context) error) {
	t.Helper()
	if table, err := partition.Read(ctx, disk); err != nil || len(table.Partitions) == 0 {
		t.Fatalf("partition table before the cleaning: got %+v and %v, want partitions", table, err)
	}
	step(t, "automated cleaning", operation(ctx))
	if table, err := partition.Read(ctx, disk); !errors.Is(err, partition.ErrNoTable) {
		t.Errorf("partition table after the cleaning: got %+v and %v, want %v", table, err, partition.ErrNoTable)
	}
}

// checkVersion checks the version of Ironic, as Debian's package and the running service report it.
func checkVersion(t *testing.T, ctx context.Context, i *Ironic, prefix, api string) {
	t.Helper()
	debian, newest, err := i.Version(ctx)
	step(t, "version", err)
	t.Logf("Ironic %s, API %s", debian, newest)
	if !strings.HasPrefix(debian, prefix) || newest != api {
		t.Errorf("Ironic: got package %s and API %s, want %s and %s", debian, newest, prefix, api)
	}
}
