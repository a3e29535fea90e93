//go:build linux && long

package bootloader

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/osimage/osimagetest"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

// TestRAIDBootBIOS deploys a partition image to a mirror. Its GRUB installs itself on each disk, and the system boots
// from each disk alone.
//
// Parity: N5 (boot by BIOS)
func TestRAIDBootBIOS(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "mdadm")
	testenv.Root(t)
	image := osimagetest.Root(t, func(root, _ string) {
		osimagetest.AddGRUB(t, root, "grub-pc-bin")
		osimagetest.AddRAID(t, root)
	})
	const instance = "6b6d2a10-52a3-4f0e-9d0f-3c1d4b1f7a26"
	machine := deployRootToMirror(t, image, qemu.BIOS, instance)
	for i, d := range machine.Disks {
		table, err := partition.Read(t.Context(), d.File)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, p := range table.Partitions {
			if p.Type == partition.TypeBIOSBoot {
				found = append(found, fmt.Sprintf("%s %d %d", p.Name, p.Start, p.Size))
				if rig.AllZero(rig.Read(t, d.File, p.Start, 64<<10)) {
					t.Errorf("disk %d: the BIOS boot partition is empty", i)
				}
			}
		}
		if want := fmt.Sprintf("bios-boot-part-%d %d %d", i, rig.MiB, 2*rig.MiB); strings.Join(found, ", ") != want {
			t.Errorf("disk %d: got BIOS boot partitions %q, want %q", i, found, want)
		}
	}
	for i, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			alone := machine
			alone.Disks = machine.Disks[i : i+1]
			bootInstance(t, alone, instance, qemu.BIOSText("Welcome to GRUB!"))
			checkDetail(t, machine.Dir, "any:root", "1.2")
		})
	}
}

// TestRAIDBootPartitionUEFI deploys partition images to a mirror: one whose loaders are copied to the EFI system
// partition, and one whose GRUB installs itself there. The systems boot from each disk alone.
func TestRAIDBootPartitionUEFI(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "mdadm")
	testenv.Root(t)
	for name, tt := range map[string]struct {
		change func(root, esp string)
		label  string
	}{
		"loaders": {func(root, esp string) { osimagetest.AddLoaders(t, root, esp) }, "debian"},
		"GRUB":    {func(root, _ string) { osimagetest.AddGRUB(t, root, "grub-efi-amd64-bin") }, "ironic1"},
	} {
		t.Run(name, func(t *testing.T) {
			image := osimagetest.Root(t, func(root, esp string) {
				tt.change(root, esp)
				osimagetest.AddRAID(t, root)
			})
			const instance = "7c6d2a10-52a3-4f0e-9d0f-3c1d4b1f7a27"
			machine := deployRootToMirror(t, image, qemu.UEFI, instance)
			for i, name := range []string{"first", "second"} {
				t.Run(name, func(t *testing.T) {
					alone := machine
					alone.Disks = machine.Disks[i : i+1]
					entry := fmt.Sprintf(`BdsDxe: starting Boot\w+ "%s \(RAID, part%d\)" from HD\(`, tt.label, i)
					bootInstance(t, alone, instance, regexp.MustCompile(entry))
					checkDetail(t, machine.Dir, "any:root", "1.2")
					checkDetail(t, machine.Dir, "any:esp", "1.0")
				})
			}
		})
	}
}

// deployRootToMirror creates a mirror of two disks and deploys a partition image to it, whose GRUB may install itself.
// It returns the machine, which is switched off.
func deployRootToMirror(t *testing.T, image string, firmware qemu.Firmware, instance string) qemu.Config {
	t.Helper()
	mode := "uefi"
	if firmware == qemu.BIOS {
		mode = "bios"
	}
	machine := qemu.Config{Dir: t.TempDir(), Firmware: firmware, Memory: 768 * rig.MiB}
	for _, serial := range []string{"disk0", "disk1"} {
		machine.Disks = append(machine.Disks, qemu.Disk{File: rig.File(t, serial, 2600*rig.MiB, nil), Serial: serial})
	}
	r := rig.Start(t, rig.Setup{
		Append: "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1", Machine: machine,
		Config: map[string]any{"enable_bios_bootloader_install": true},
	})
	r.WaitAgent(t)
	r.DiskNames(t, "disk0", "disk1")
	properties := map[string]any{
		"capabilities": "boot_mode:" + mode + ",disk_label:gpt", "root_device": map[string]any{"serial": "disk0"},
	}
	config := map[string]any{"logical_disks": []any{
		rig.RAIDDisk("1", "MAX", map[string]any{"volume_name": "root", "is_root_volume": true}),
	}}
	record := r.RAIDStep(t, "clean", "create_configuration",
		map[string]any{"target_raid_config": config, "properties": properties}, nil)
	if record.Status != conductor.Succeeded {
		t.Fatalf("got %s (%v), want %s", record.Status, record.Error, conductor.Succeeded)
	}
	r.Succeed(t, "deploy.get_deploy_steps", map[string]any{"ports": []any{}, "node": map[string]any{
		"uuid": r.Node.UUID(), "properties": properties, "instance_info": map[string]any{},
		"driver_internal_info": map[string]any{}, "raid_config": config,
	}})
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": instance}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Images.File("root.raw", image)
	info := r.RawInfo("root.raw", rig.SumAll(t, image))
	maps.Copy(info, rootInfo(mode))
	prepare := map[string]any{"image_info": info, "configdrive": drive}
	r.Succeed(t, "standby.prepare_image", prepare)
	if firmware == qemu.UEFI { // a second deployment uses the mirror again
		installRoot(t, r, mode)
		r.Succeed(t, "standby.prepare_image", prepare)
	}
	bootRoot(t, r, mode)
	created := strings.Count(r.Machine.Console().String(), "RAID array created device=/dev/md1 ")
	if want := map[string]int{"bios": 0, "uefi": 1}[mode]; created != want {
		t.Errorf("got %d mirrors of the EFI system partition created, want %d", created, want)
	}
	return machine
}
