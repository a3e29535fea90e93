//go:build linux

package e2e

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

// TestRAIDDeploy deploys a disk image with a config drive to a mirror, in another start of the machine than the one
// that created the mirror. Without a boot loader this must be permitted.
//
// Parity: J5, F10 (arrays)
func TestRAIDDeploy(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "mdadm")
	testenv.Root(t)
	files := []string{file(t, "first", 320*mib, old{}), file(t, "second", 320*mib, old{})}
	var disks []qemu.Disk
	for i, path := range files {
		disks = append(disks, qemu.Disk{File: path, Serial: fmt.Sprint("disk", i), NoDiscard: true})
	}
	config := map[string]any{"logical_disks": []any{
		raidDisk("1", "MAX", map[string]any{"volume_name": "root", "is_root_volume": true}),
	}}
	createArrays(t, config, disks...)
	for _, path := range files {
		raiseBitmapEvents(t, path)
	}
	before := []string{sumWithoutBitmap(t, files[0]), sumWithoutBitmap(t, files[1])}
	const parameters = "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1"
	image := mbrImage(t, "mbr", 24*mib)
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": driveUUID}, nil)
	if err != nil {
		t.Fatal(err)
	}

	refusing := start(t, setup{append: parameters, machine: qemu.Config{Memory: 768 * mib, Disks: disks}})
	record := refusing.deployArray(t, config, image, drive)
	if record.Status != conductor.Failed ||
		!strings.Contains(record.Error.Details, "firmware cannot read this RAID array") ||
		!strings.Contains(record.Error.Details, "which enable_bios_bootloader_install must allow") ||
		!strings.Contains(record.Error.Details, "the disk was not written to") {
		t.Errorf("got %s (%v), want an error of the firmware and the option", record.Status, record.Error)
	}
	if err := refusing.machine.Stop(); err != nil {
		t.Fatal(err)
	}
	for i, path := range files {
		if sumWithoutBitmap(t, path) != before[i] {
			t.Errorf("disk %d was written to", i+1)
		}
	}

	r := start(t, setup{
		append: parameters + " ipa-ignore-bootloader-failure=1", machine: qemu.Config{Memory: 768 * mib, Disks: disks},
	})
	record = r.deployArray(t, config, image, drive)
	if record.Status != conductor.Succeeded ||
		!strings.Contains(string(record.Result), "image (mbr.raw) written to device /dev/md0 ") {
		t.Fatalf("got %s (%v, %s), want the image on /dev/md0", record.Status, record.Error, record.Result)
	}
	r.succeed(t, "image.install_bootloader", map[string]any{
		"root_uuid": nil, "efi_system_part_uuid": nil, "prep_boot_part_uuid": nil, "target_boot_mode": "bios",
	})
	if console := says(t, r.machine, `config drive written device=/dev/md0p2`); strings.Contains(console,
		"kernel does not see the new partitions") {
		t.Error("the kernel does not see the array's partitions")
	}
	if err := r.machine.Stop(); err != nil {
		t.Fatal(err)
	}
	for i, path := range files {
		checkMembers(t, path, fmt.Sprintf("raid1 2 %d any:root", i))
		table, err := partition.Read(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		data := table.Partitions[0].Start + membersIn(t, path)[0].DataOffset
		// The array's table has the config drive as well.
		if got, want := sum(t, path, data+mib, 23*mib), sum(t, image, mib, 23*mib); got != want {
			t.Errorf("disk %d: the array's SHA-256 is %s, want the image's, %s", i+1, got, want)
		}
	}
}

// bitmapOf returns the offset of the bitmap of a disk's array. It has one bit for each 64 MiB and fits in bitmapSize.
func bitmapOf(t *testing.T, path string) int64 {
	t.Helper()
	m := membersIn(t, path)[0]
	return m.Device.Start + m.Offset + m.BitmapOffset
}

const bitmapSize = 4 << 10

// raiseBitmapEvents increments the event count of a bitmap (bitmap_super_s of Linux), as if the machine had been
// switched off between the updates of the bitmap and of the superblock. The kernel sets it to the superblock's when it
// assembles the array, even a read-only one.
func raiseBitmapEvents(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var events [8]byte
	at := bitmapOf(t, path) + 24
	if _, err := f.ReadAt(events[:], at); err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint64(events[:], binary.LittleEndian.Uint64(events[:])+1)
	if _, err := f.WriteAt(events[:], at); err != nil {
		t.Fatal(err)
	}
}

// sumWithoutBitmap returns the SHA-256 of what is before and after the bitmap of a disk's array.
func sumWithoutBitmap(t *testing.T, path string) string {
	t.Helper()
	start := bitmapOf(t, path)
	end := start + bitmapSize
	return sum(t, path, 0, start) + sum(t, path, end, sizeOf(t, path)-end)
}

// deployArray writes an image to the root disk of a node with arrays.
func (r *rig) deployArray(t *testing.T, config map[string]any, image string, drive string) *conductor.Record {
	t.Helper()
	r.images.File("mbr.raw", image)
	r.waitAgent(t)
	r.diskNames(t, "disk0", "disk1")
	r.succeed(t, "deploy.get_deploy_steps", map[string]any{"ports": []any{}, "node": map[string]any{
		"uuid": r.node.UUID(), "properties": map[string]any{"root_device": map[string]any{"serial": "disk0"}},
		"instance_info": map[string]any{}, "driver_internal_info": map[string]any{}, "raid_config": config,
	}})
	return r.command(t, "standby.prepare_image", map[string]any{
		"image_info": r.rawInfo("mbr.raw", sumAll(t, image)), "configdrive": drive,
	})
}
