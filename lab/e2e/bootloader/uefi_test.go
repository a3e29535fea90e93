//go:build linux

package bootloader

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/osimage"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

// TestBootEntry deploys a real operating system as qcow2 on a machine with UEFI. Its EFI system partition has no
// loader at the default path, so only the boot entry that the agent creates can start it.
//
// Parity: E6, M2, M4
func TestBootEntry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	raw, image := systemWithoutFallback(t)
	disk, small := rig.File(t, "disk", 4<<30, nil), rig.File(t, "small", 64*rig.MiB, nil)
	variables := formerFlash(t, dir)
	machine := qemu.Config{Dir: dir, Firmware: qemu.UEFI, Memory: 640 * rig.MiB, Disks: []qemu.Disk{
		{Bus: qemu.NVMe, File: disk, Serial: "root"}, {File: small, Serial: "small"},
	}}
	r := rig.Start(t, rig.Setup{Machine: machine})
	r.Images.File("system.qcow2", image)
	const instance = "0f6f9d0e-52a3-4f0e-9d0f-3c1d4b1f7a21"
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": instance}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitAgent(t)
	t.Run("EFI system partitions", func(t *testing.T) { systemPartitions(t, r, "small", variables) })
	r.SetHints(t, map[string]any{"serial": "root"})
	written := t.Run("write", func(t *testing.T) { writeTwice(t, r, image, drive) }) &&
		t.Run("disk", func(t *testing.T) { rig.CheckGPT(t, raw, disk) }) &&
		t.Run("boot entry", func(t *testing.T) { installBootloader(t, r) }) &&
		t.Run("clean", func(t *testing.T) { cleanNVRAM(t, r, variables) }) &&
		t.Run("boot entry again", func(t *testing.T) { installBootloader(t, r) })
	if !written {
		return
	}
	if err := r.Node.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Machine.Wait(rig.Soon(t)); err != nil {
		t.Fatal(err)
	}
	t.Run("instance", func(t *testing.T) { bootInstance(t, machine, instance, debianEntry) })
}

// systemWithoutFallback returns an image of a system without a default loader, in raw and qcow2 form.
func systemWithoutFallback(t *testing.T) (raw, qcow2 string) {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "mmdebstrap", "mke2fs", "mformat", "mdeltree", "mdir", "qemu-img", "sgdisk")
	system, err := osimage.Build(t.Context(), osimage.Options{Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	raw, qcow2 = filepath.Join(t.TempDir(), "system.raw"), filepath.Join(t.TempDir(), "system.qcow2")
	testenv.Run(t, "cp", "--sparse=always", "--reflink=auto", system.Raw, raw)
	table, err := partition.Read(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	esp := -1
	for i, p := range table.Partitions {
		if strings.EqualFold(p.Type, partition.TypeESP) {
			esp = i
		}
	}
	if esp < 0 {
		t.Fatalf("the system's image has no EFI system partition: %+v", table.Partitions)
	}
	at := fmt.Sprintf("%s@@%d", raw, table.Partitions[esp].Start)
	testenv.Run(t, "mdeltree", "-i", at, "::EFI/BOOT")
	left := testenv.Run(t, "mdir", "-b", "-i", at, "::EFI")
	if !strings.Contains(left, "debian") || strings.Contains(left, "BOOT") {
		t.Fatalf("the EFI system partition has %s, want debian alone", left)
	}
	testenv.Run(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, qcow2)
	return raw, qcow2
}

// writeTwice deploys as the conductor does, and then requests the same image again, which is neither downloaded nor
// written a second time.
//
// Parity: E2
func writeTwice(t *testing.T, r *rig.Rig, image, drive string) {
	source := conductor.Image{URL: r.Images.URLFrom(rig.Host, "system.qcow2"), Format: "qcow2", Checksum: rig.SumAll(t,
		image)}
	empty := r.Written(t)
	if err := r.Node.WriteImage(rig.Soon(t), source, drive); err != nil {
		t.Fatal(err)
	}
	full, before := r.Written(t), r.Images.Stats("system.qcow2")
	info := r.RawInfo("system.qcow2", source.Checksum)
	info["disk_format"] = "qcow2"
	got := r.Succeed(t, "standby.prepare_image", map[string]any{"image_info": info, "configdrive": drive})
	first, second := full-empty, r.Written(t)-full
	if !strings.Contains(got, "prepare_image: image (system.qcow2) written to device /dev/nvme0n1 root_uuid=0x") {
		t.Errorf("got %s, want a text naming image and device", got)
	}
	if after := r.Images.Stats("system.qcow2"); after != before {
		t.Errorf("the second call asked the image server: got %+v, want %+v", after, before)
	}
	if second > first/10 {
		t.Errorf("the second call wrote %d bytes, the first %d, want the config drive alone", second, first)
	}
}

func installBootloader(t *testing.T, r *rig.Rig) {
	got := r.Succeed(t, "image.install_bootloader", map[string]any{
		"root_uuid": "0x00000000", "efi_system_part_uuid": nil, "prep_boot_part_uuid": nil, "target_boot_mode": "uefi",
	})
	if got != "null" {
		t.Errorf("install_bootloader: got result %s, want null", got)
	}
}

// debianEntry matches OVMF's message when it starts the boot entry of Debian's loader.
var debianEntry = regexp.MustCompile(`BdsDxe: starting Boot\w+ "debian" from HD\(`)

// bootInstance starts the machine without the ramdisk, with the same disk and the same UEFI variables. firmware must
// match on the console before the system's own report.
func bootInstance(t *testing.T, machine qemu.Config, instance string, firmware *regexp.Regexp) {
	m, err := qemu.Start(t.Context(), machine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop() })
	for _, e := range []*regexp.Regexp{firmware, osimage.Up} {
		if _, err := m.Console().Follow(rig.Soon(t), e); err != nil {
			t.Fatal(err)
		}
	}
	found, err := m.Console().Follow(rig.Soon(t), osimage.ConfigDrive)
	if err != nil {
		t.Fatal(err)
	}
	if found.Groups[1] != instance {
		t.Errorf("the system read config drive %q, want %q", found.Groups[1], instance)
	}
}
