//go:build linux

package raid

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
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
	files := []string{rig.File(t, "first", 320*rig.MiB, rig.OldContent{}), rig.File(t, "second", 320*rig.MiB,
		rig.OldContent{})}
	var disks []qemu.Disk
	for i, path := range files {
		disks = append(disks, qemu.Disk{File: path, Serial: fmt.Sprint("disk", i), NoDiscard: true})
	}
	config := map[string]any{"logical_disks": []any{
		rig.RAIDDisk("1", "MAX", map[string]any{"volume_name": "root", "is_root_volume": true}),
	}}
	createArrays(t, config, disks...)
	for _, path := range files {
		raiseBitmapEvents(t, path)
	}
	before := []string{sumWithoutBitmap(t, files[0]), sumWithoutBitmap(t, files[1])}
	const parameters = "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1"
	image := rig.MBRImage(t, "mbr", 24*rig.MiB)
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": rig.DriveUUID}, nil)
	if err != nil {
		t.Fatal(err)
	}

	refusing := rig.Start(t, rig.Setup{Append: parameters, Machine: qemu.Config{Memory: 768 * rig.MiB, Disks: disks}})
	record := refusing.DeployArray(t, config, image, drive)
	if record.Status != conductor.Failed ||
		!strings.Contains(record.Error.Details, "firmware cannot read this RAID array") ||
		!strings.Contains(record.Error.Details, "which enable_bios_bootloader_install must allow") ||
		!strings.Contains(record.Error.Details, "the disk was not written to") {
		t.Errorf("got %s (%v), want an error of the firmware and the option", record.Status, record.Error)
	}
	if err := refusing.Machine.Stop(); err != nil {
		t.Fatal(err)
	}
	for i, path := range files {
		if sumWithoutBitmap(t, path) != before[i] {
			t.Errorf("disk %d was written to", i+1)
		}
	}

	r := rig.Start(t, rig.Setup{
		Append: parameters + " ipa-ignore-bootloader-failure=1", Machine: qemu.Config{
			Memory: 768 * rig.MiB,
			Disks:  disks,
		},
	})
	record = r.DeployArray(t, config, image, drive)
	if record.Status != conductor.Succeeded ||
		!strings.Contains(string(record.Result), "image (mbr.raw) written to device /dev/md0 ") {
		t.Fatalf("got %s (%v, %s), want the image on /dev/md0", record.Status, record.Error, record.Result)
	}
	r.Succeed(t, "image.install_bootloader", map[string]any{
		"root_uuid": nil, "efi_system_part_uuid": nil, "prep_boot_part_uuid": nil, "target_boot_mode": "bios",
	})
	if console := rig.WaitConsole(t, r.Machine, `config drive written device=/dev/md0p2`); strings.Contains(console,
		"kernel does not see the new partitions") {
		t.Error("the kernel does not see the array's partitions")
	}
	if err := r.Machine.Stop(); err != nil {
		t.Fatal(err)
	}
	for i, path := range files {
		checkMembers(t, path, fmt.Sprintf("raid1 2 %d any:root", i))
		table, err := partition.Read(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		data := table.Partitions[0].Start + rig.MembersIn(t, path)[0].DataOffset
		// The array's table has the config drive as well.
		if got, want := rig.Sum(t, path, data+rig.MiB, 23*rig.MiB), rig.Sum(t, image, rig.MiB,
			23*rig.MiB); got != want {
			t.Errorf("disk %d: the array's SHA-256 is %s, want the image's, %s", i+1, got, want)
		}
	}
}

// bitmapOf returns the offset of the bitmap of a disk's array. It has one bit for each 64 MiB and fits in bitmapSize.
func bitmapOf(t *testing.T, path string) int64 {
	t.Helper()
	m := rig.MembersIn(t, path)[0]
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
	return rig.Sum(t, path, 0, start) + rig.Sum(t, path, end, rig.SizeOf(t, path)-end)
}
