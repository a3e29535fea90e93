//go:build linux

package bootloader

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"ironroot/internal/test/attack"
	"ironroot/internal/test/attack/attacktest"
	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/osimage/osimagetest"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

// deployRoot deploys a partition image with a config drive, installs the boot loader twice, and ends the ramdisk.
func deployRoot(t *testing.T, r *rig.Rig, image, bootMode, instance string) {
	t.Helper()
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": instance}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Images.File("root.raw", image)
	source := conductor.Image{
		URL: r.Images.URLFrom(rig.Host, "root.raw"), Format: "raw", Checksum: rig.SumAll(t, image),
		Info: rootInfo(bootMode),
	}
	if err := r.Node.WriteImage(rig.Soon(t), source, drive); err != nil {
		t.Fatal(err)
	}
	bootRoot(t, r, bootMode)
}

// rootInfo is the data that Ironic sends about a partition image in addition to its location.
func rootInfo(bootMode string) map[string]any {
	return map[string]any{
		"image_type": "partition", "root_gb": 1, "root_mb": 1024, "swap_mb": 0, "ephemeral_mb": 0,
		"ephemeral_format": nil, "preserve_ephemeral": false, "boot_option": "local", "deploy_boot_mode": bootMode,
	}
}

// bootRoot installs the boot loader of a partition image twice, and ends the ramdisk.
func bootRoot(t *testing.T, r *rig.Rig, bootMode string) {
	t.Helper()
	installRoot(t, r, bootMode)
	if err := r.Node.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Machine.Wait(rig.Soon(t)); err != nil {
		t.Fatal(err)
	}
}

// installRoot installs the boot loader of a partition image twice.
func installRoot(t *testing.T, r *rig.Rig, bootMode string) {
	t.Helper()
	var uuids map[string]any
	if err := json.Unmarshal([]byte(r.Succeed(t, "standby.get_partition_uuids", nil)), &uuids); err != nil {
		t.Fatal(err)
	}
	params := map[string]any{
		"root_uuid": uuids["root uuid"], "efi_system_part_uuid": uuids["efi system partition uuid"],
		"prep_boot_part_uuid": uuids["PReP Boot partition uuid"], "target_boot_mode": bootMode,
	}
	for range 2 {
		if got := r.Succeed(t, "image.install_bootloader", params); got != "null" {
			t.Errorf("install_bootloader: got %s, want null", got)
		}
	}
}

// onRoot returns a file of the root file system on a disk's last partition. It fails if e2fsck finds errors.
func onRoot(t *testing.T, disk, name string) string {
	t.Helper()
	testenv.Programs(t, "e2fsck", "debugfs")
	table, err := partition.Read(t.Context(), disk)
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("%s?offset=%d", disk, table.Partitions[len(table.Partitions)-1].Start)
	testenv.Run(t, "e2fsck", "-fn", at)
	return testenv.Run(t, "debugfs", "-R", "cat "+name, at)
}

// TestPartitionBootsUEFI deploys a root file system with its loaders below /boot/efi, as partition images keep them.
// GRUB's menu is on the root only.
//
// Parity: M7
func TestPartitionBootsUEFI(t *testing.T) {
	t.Parallel()
	before := ""
	image := osimagetest.Root(t, func(root, esp string) {
		osimagetest.AddLoaders(t, root, esp)
		testenv.Run(t, "mkdir", root+"/boot/grub2")
		testenv.Run(t, "mv", root+"/boot/efi/EFI/debian/grub.cfg", root+"/boot/grub2/")
		text, err := os.ReadFile(root + "/etc/fstab")
		if err != nil {
			t.Fatal(err)
		}
		before = string(text)
	})
	disk := rig.File(t, "disk", 5<<30, nil)
	machine := qemu.Config{
		Dir: t.TempDir(), Firmware: qemu.UEFI, Memory: 640 * rig.MiB, Disks: []qemu.Disk{{Bus: qemu.NVMe, File: disk}},
	}
	r := rig.Start(t, rig.Setup{Machine: machine})
	r.WaitAgent(t)
	const instance = "7f6d2a10-52a3-4f0e-9d0f-3c1d4b1f7a22"
	deployRoot(t, r, image, "uefi", instance)

	table, err := partition.Read(t.Context(), disk)
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("%s@@%d", disk, table.Partitions[0].Start)
	listing := testenv.Run(t, "mdir", "-i", at, "::")
	serial := regexp.MustCompile(`Volume Serial Number is (\S+)`).FindStringSubmatch(listing)
	if serial == nil {
		t.Fatal("mdir tells no serial number of the ESP")
	}
	want := before + "UUID=" + serial[1] + "\t/boot/efi\tvfat\tumask=0077\t0\t1\n"
	if got := onRoot(t, disk, "/etc/fstab"); !strings.HasSuffix(got, want) || strings.Count(got, "/boot/efi") != 1 {
		t.Errorf("got fstab %q, want %q", got, want)
	}
	list := testenv.Run(t, "mdir", "-b", "-/", "-i", at, "::EFI")
	for _, name := range []string{
		"BOOT/BOOTX64.EFI", "debian/shimx64.efi", "debian/grubx64.efi", "debian/BOOTX64.CSV", "debian/grub.cfg",
	} {
		if !strings.Contains(list, "::/EFI/"+name) {
			t.Errorf("the ESP has no EFI/%s but\n%s", name, list)
		}
	}
	bootInstance(t, machine, instance, debianEntry)
}

// TestPartitionBootsBIOS deploys a root file system with Debian's GRUB, which may install itself.
//
// Parity: M6
func TestPartitionBootsBIOS(t *testing.T) {
	t.Parallel()
	image := osimagetest.Root(t, func(root, _ string) { osimagetest.AddGRUB(t, root, "grub-pc-bin") })
	disk := rig.File(t, "disk", 5<<30, nil)
	machine := qemu.Config{Dir: t.TempDir(), Memory: 640 * rig.MiB, Disks: []qemu.Disk{{File: disk}}}
	r := rig.Start(t, rig.Setup{
		Machine: machine, Properties: map[string]any{"capabilities": "boot_mode:bios"},
		Config: map[string]any{"enable_bios_bootloader_install": true},
	})
	r.WaitAgent(t)
	const instance = "8c6d2a10-52a3-4f0e-9d0f-3c1d4b1f7a23"
	deployRoot(t, r, image, "bios", instance)
	if got := onRoot(t, disk, "/etc/fstab"); strings.Contains(got, "/boot/efi") {
		t.Errorf("got fstab %q, want none of an ESP", got)
	}
	menu := onRoot(t, disk, "/boot/grub/grub.cfg")
	if !strings.Contains(menu, "root=UUID=") || strings.Contains(menu, "root=/dev/") {
		t.Errorf("GRUB's menu does not name the root by its UUID:\n%s", menu)
	}
	bootInstance(t, machine, instance, qemu.BIOSText("Welcome to GRUB!"))
}

// TestPartitionInstallsOnESP deploys a root file system with GRUB for UEFI, but without loaders for the ESP. The
// loader that GRUB installs gets a boot entry, and the ESP a line in fstab. GRUB's programs see the FAT file systems
// of fstab, but not the command line of the ramdisk, and none escapes.
//
// Parity: M6
func TestPartitionInstallsOnESP(t *testing.T) {
	t.Parallel()
	image := osimagetest.Root(t, func(root, _ string) {
		osimagetest.AddGRUB(t, root, "grub-efi-amd64-bin")
		const script = "#!/bin/sh\nsed 's/^/# command line: /' /proc/cmdline\n" +
			"grep vfat /proc/mounts | sed 's/^/# mount: /'\n"
		if err := os.WriteFile(root+"/etc/grub.d/99_seen", []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		attacktest.BuildProgram(t, root+"/usr/sbin/attack")
		const attacks = "#!/bin/sh\n/usr/sbin/attack | sed 's/^/# attacks: /'\n"
		if err := os.WriteFile(root+"/etc/grub.d/98_attacks", []byte(attacks), 0o755); err != nil {
			t.Fatal(err)
		}
		testenv.Run(t, "sh", "-c",
			`printf 'LABEL=efi-part /mnt vfat defaults 0 0\nLABEL=other /srv vfat defaults 0 0\n' >>"$0"`,
			root+"/etc/fstab")
	})
	disk := rig.File(t, "disk", 5<<30, nil)
	machine := qemu.Config{
		Dir: t.TempDir(), Firmware: qemu.UEFI, Memory: 640 * rig.MiB, Disks: []qemu.Disk{{Bus: qemu.NVMe, File: disk}},
	}
	r := rig.Start(t, rig.Setup{
		Machine: machine, Append: rig.PlantedVariable, Config: map[string]any{"enable_bios_bootloader_install": true},
	})
	r.WaitAgent(t)
	const instance = "9d6d2a10-52a3-4f0e-9d0f-3c1d4b1f7a24"
	deployRoot(t, r, image, "uefi", instance)
	if got := onRoot(t, disk, "/etc/fstab"); strings.Count(got, "\t/boot/efi\tvfat\t") != 1 {
		t.Errorf("got fstab %q, want one line of the ESP", got)
	}
	menu := onRoot(t, disk, "/boot/grub/grub.cfg")
	for _, want := range []string{
		`(?m)^# command line: root=UUID=[0-9a-f-]+ ro$`, `(?m)^# mount: \S+ /mnt vfat `,
		`(?m)^# mount: \S+ /boot/efi vfat `,
	} {
		if !regexp.MustCompile(want).MatchString(menu) {
			t.Errorf("got menu without %s:\n%s", want, menu)
		}
	}
	report := regexp.MustCompile(`(?m)^# attacks: (.*)$`).FindStringSubmatch(menu)
	if report == nil {
		t.Fatalf("got menu without a report of attacks:\n%s", menu)
	}
	attacktest.Check(t, []byte(report[1]), attack.PermittedOutsideContainers())
	bootInstance(t, machine, instance, regexp.MustCompile(`BdsDxe: starting Boot\w+ "ironic1" from HD\(`))
}
