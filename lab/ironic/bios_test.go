//go:build linux && long

package ironic

import (
	"path/filepath"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/osimage/osimagetest"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

// TestRealIronicBIOS deploys a partition image with GRUB to a machine without UEFI. Ironic's configuration allows the
// image's own GRUB to run. SeaBIOS boots the instance.
func TestRealIronicBIOS(t *testing.T) {
	testenv.Programs(t, "qemu-img")
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 45*time.Minute)
	root := osimagetest.Root(t, func(root, _ string) { osimagetest.AddGRUB(t, root, "grub-pc-bin") })
	qcow2 := filepath.Join(t.TempDir(), "root.qcow2")
	testenv.Run(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", root, qcow2)

	i := start(t, Options{
		Config: "[agent]\nenable_bios_bootloader_install = true\n[conductor]\nautomated_clean = false\n",
	})
	image := publish(t, i, qcow2, "root.qcow2")
	image.Format, image.RootGB = "qcow2", 1
	n, err := i.Enroll(ctx, NodeOptions{
		BIOS: true, Kernel: kernel, Ramdisk: ramdisk, Memory: memory, Disks: []qemu.Disk{{Size: 4 << 30}},
	})
	if err != nil {
		t.Fatal(err)
	}
	step(t, "manage", n.Manage(ctx))
	step(t, "provide", n.Provide(ctx))
	mark := n.Mark()
	deploy(t, ctx, n.Deploy, n, image)
	for _, want := range []string{`Booting from Hard Disk`, `Welcome to GRUB!`} {
		if _, err := n.Follow(ctx, mark, qemu.BIOSText(want)); err != nil {
			t.Error(err)
		}
	}
	disk := filepath.Join(i.path("vm/"+n.Name), "disk0.raw")
	checkPartitions(t, ctx, disk, partition.MBR, partition.TypeMBRLinux+" 1", partition.TypeMBRLinux+" 1024*")
}
