//go:build linux

package bootloader

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/osimage/osimagetest"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

// TestRAIDBootUEFI creates a mirror, deploys a disk image to it, and boots the system from each of the two disks alone.
// Its EFI system partition is then on the disks, with UUID and label of the image's, and not in the array. Then it
// deletes the arrays.
//
// Parity: N5
func TestRAIDBootUEFI(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "mdadm", "mdir", "fsck.vfat", "dd")
	testenv.Root(t)
	image := osimagetest.Disk(t, func(root string) { osimagetest.AddRAID(t, root) })
	dir := t.TempDir()
	variables := formerFlash(t, dir)
	machine := qemu.Config{Dir: dir, Firmware: qemu.UEFI, Memory: 768 * rig.MiB}
	files := map[string]string{}
	for _, serial := range []string{"disk0", "disk1"} {
		files[serial] = rig.File(t, serial, 1400*rig.MiB, nil)
		machine.Disks = append(machine.Disks, qemu.Disk{File: files[serial], Serial: serial})
	}
	const parameters = "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1"
	r := rig.Start(t, rig.Setup{Append: parameters, Machine: machine})
	r.WaitAgent(t)
	const instance = "5a6d2a10-52a3-4f0e-9d0f-3c1d4b1f7a25"
	if !t.Run("deploy", func(t *testing.T) { deployMirror(t, r, image, instance, nil) }) {
		return
	}
	t.Run("disks", func(t *testing.T) {
		checkESPs(t, image, machine.Disks)
		checkEntries(t, variables, machine.Disks)
	})
	for i, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			alone := machine
			alone.Disks = machine.Disks[i : i+1]
			entry := fmt.Sprintf(`BdsDxe: starting Boot\w+ "debian \(RAID, part%d\)" from HD\(`, i)
			bootInstance(t, alone, instance, regexp.MustCompile(entry))
			checkDetail(t, dir, "any:root", "1.2")
			checkDetail(t, dir, "any:esp", "1.0")
		})
	}
	t.Run("delete", func(t *testing.T) {
		r := rig.Start(t, rig.Setup{Append: parameters, Machine: machine})
		r.WaitAgent(t)
		r.DiskNames(t, "disk0", "disk1")
		r.DeleteRAID(t, files)
	})
}

// deployMirror creates a mirror of all disks, deploys an image to it, and installs the boot loader twice.
func deployMirror(t *testing.T, r *rig.Rig, image, instance string, properties map[string]any) {
	config := map[string]any{"logical_disks": []any{
		rig.RAIDDisk("1", "MAX", map[string]any{"volume_name": "root", "is_root_volume": true}),
	}}
	r.DiskNames(t, "disk0", "disk1")
	record := r.RAIDStep(t, "clean", "create_configuration",
		map[string]any{"target_raid_config": config, "properties": properties}, nil)
	if record.Status != conductor.Succeeded {
		t.Fatalf("got %s (%v), want %s", record.Status, record.Error, conductor.Succeeded)
	}
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": instance}, nil)
	if err != nil {
		t.Fatal(err)
	}
	record = r.DeployArray(t, config, image, drive)
	if record.Status != conductor.Succeeded ||
		!strings.Contains(string(record.Result), "image (mbr.raw) written to device /dev/md0 ") {
		t.Fatalf("got %s (%v, %s), want the image on /dev/md0", record.Status, record.Error, record.Result)
	}
	for range 2 {
		installBootloader(t, r)
	}
	if err := r.Node.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Machine.Wait(rig.Soon(t)); err != nil {
		t.Fatal(err)
	}
}

// checkESPs checks the EFI system partition of each disk, which firmware reads alone: the file system has the content
// of the image's, whose place in the array is empty. mdadm and fsck.vfat must accept it.
func checkESPs(t *testing.T, image string, disks []qemu.Disk) {
	table, err := partition.Read(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	source := table.Partitions[1]
	identity := func(path string, p partition.Partition) string {
		at := fmt.Sprintf("%s@@%d", path, p.Start)
		head := regexp.MustCompile(`(?s)Volume in drive : (\S+.*?)\n Volume Serial Number is (\S+)`).
			FindStringSubmatch(testenv.Run(t, "mdir", "-i", at, "::"))
		if head == nil {
			t.Fatalf("mdir finds neither label nor serial number in partition %d of %s", p.Number, path)
		}
		list := strings.Split(testenv.Run(t, "mdir", "-b", "-/", "-i", at, "::"), "\n")
		slices.Sort(list)
		return fmt.Sprint(head[1:], list)
	}
	want := identity(image, source)
	for i, d := range disks {
		table, err := partition.Read(t.Context(), d.File)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(table.Partitions, func(p partition.Partition) bool {
			return p.Name == fmt.Sprintf("uefi-holder-%d", i)
		})
		if at < 0 || len(table.Partitions) != 2 {
			t.Fatalf("disk %d: got partitions %+v, want one of the ESP and one of the array", i, table.Partitions)
		}
		esp, root := table.Partitions[at], table.Partitions[1-at]
		if esp.Type != partition.TypeESP || esp.Start != rig.MiB || esp.Size != 550*rig.MiB {
			t.Errorf("disk %d: got partition %+v, want an ESP of 550 MiB at 1 MiB", i, esp)
		}
		if got := identity(d.File, esp); got != want {
			t.Errorf("disk %d: the ESP has\n%s\nwant\n%s", i, got, want)
		}
		data := root.Start + rig.MembersIn(t, d.File)[1-at].DataOffset
		if !rig.AllZero(rig.Read(t, d.File, data+source.Start, rig.MiB)) {
			t.Errorf("disk %d: the array still has the ESP of the image", i)
		}
		copied := rig.File(t, "esp", esp.Size, nil)
		testenv.Run(t, "dd", "if="+d.File, "of="+copied, "bs=1M", "skip=1", "count=550", "conv=sparse", "status=none")
		testenv.Run(t, "fsck.vfat", "-n", copied)
		examined := testenv.Run(t, "mdadm", "--examine", testenv.Loop(t, copied, 512))
		for _, line := range []string{
			"Version : 1.0", "Name : any:esp", "Raid Level : raid1", "Raid Devices : 2", "Super Offset : ",
			fmt.Sprintf("Device Role : Active device %d", i), "Array State : AA ", " - correct",
		} {
			if !strings.Contains(examined, line) {
				t.Errorf("disk %d: mdadm --examine lacks %q:\n%s", i, line, examined)
			}
		}
	}
}

// checkEntries checks that a boot entry for the loader on each disk is first in the boot order.
func checkEntries(t *testing.T, variables rig.Flash, disks []qemu.Disk) {
	entries, order := variables.Entries(t)
	var want []string // in boot order
	for i, d := range disks {
		table, err := partition.Read(t.Context(), d.File)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range table.Partitions {
			if p.Name == fmt.Sprintf("uefi-holder-%d", i) {
				const format = "debian (RAID, part%d)\tHD(%d,GPT,%s,0x800,0x113000)/File(\\EFI\\debian\\shimx64.efi)"
				want = slices.Insert(want, 0, fmt.Sprintf(format, i, p.Number, p.UUID))
			}
		}
	}
	for i, entry := range want {
		if i >= len(order) || entries[order[i]] != entry {
			t.Fatalf("got entries %q in the order %q, want %q first", entries, order, want)
		}
	}
	count := 0
	for _, entry := range entries {
		if strings.Contains(entry, "(RAID, part") {
			count++
		}
	}
	if count != len(want) {
		t.Errorf("got entries %q, want %d of the array", entries, len(want))
	}
}

// checkDetail checks what mdadm --detail says about an array in the report of a system with one of its two disks.
func checkDetail(t *testing.T, dir, name, version string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "console.log"))
	if err != nil {
		t.Fatal(err)
	}
	console := strings.ReplaceAll(qemu.Plain(string(data)), "\r", "")
	for _, detail := range regexp.MustCompile(`(?ms)^/dev/md\d+:\n.*?^/dev/md\d+: `).FindAllString(console, -1) {
		if !strings.Contains(detail, "Name : "+name) {
			continue
		}
		for _, line := range []string{
			"Version : " + version, "Raid Level : raid1", "Raid Devices : 2", "Total Devices : 1", "degraded",
			"Working Devices : 1", "Failed Devices : 0",
		} {
			if !strings.Contains(detail, line) {
				t.Errorf("mdadm --detail lacks %q:\n%s", line, detail)
			}
		}
		return
	}
	t.Errorf("mdadm --detail shows no array %s:\n%s", name, console)
}
