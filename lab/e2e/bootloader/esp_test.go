//go:build linux

package bootloader

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
)

const (
	espSerial = "1234-ABCD" // of the file system on each of these partitions
	espGUID   = "6f1d3c1e-7a35-4a29-9d3a-0b5e7a1f2c01"
	espDisk   = "0xdeadbeef"
)

// espImage creates a disk image with a GPT or an MBR and one partition of the given type, whose FAT file system
// contains loaders.
func espImage(t *testing.T, scheme, kind string, loaders ...string) string {
	t.Helper()
	testenv.Programs(t, "sgdisk", "sfdisk", "mkfs.vfat", "mmd", "mcopy")
	esp := rig.File(t, "esp", 16*rig.MiB, nil)
	testenv.Run(t, "mkfs.vfat", "-i", strings.ReplaceAll(espSerial, "-", ""), esp)
	testenv.Run(t, "mmd", "-i", esp, "::EFI")
	for _, loader := range loaders {
		source := filepath.Join(t.TempDir(), "loader")
		if err := os.WriteFile(source, []byte("no program"), 0o600); err != nil {
			t.Fatal(err)
		}
		testenv.Run(t, "mmd", "-i", esp, "::EFI/"+filepath.Dir(loader))
		testenv.Run(t, "mcopy", "-i", esp, source, "::EFI/"+loader)
	}
	image := rig.File(t, "image", 24*rig.MiB, nil)
	if scheme == "gpt" {
		testenv.Run(t, "sgdisk", "-n", "1:1M:+16M", "-t", "1:"+kind, "-u", "1:"+espGUID, image)
	} else {
		testenv.Run(t, "sh", "-c",
			`printf 'label: dos\nlabel-id: `+espDisk+`\nstart=2048, size=32768, type=`+kind+`\n' | sfdisk -q "$0"`,
			image)
	}
	rig.Patch(t, image, rig.MiB, rig.Read(t, esp, 0, 16*rig.MiB))
	return image
}

// systemPartitions installs boot entries for the disk with the serial number. The EFI system partition is found by
// its type, otherwise by the UUID in the command. Every loader on it gets an entry, the last one first. A second run
// adds no entries.
//
// Parity: M1, M3
func systemPartitions(t *testing.T, r *rig.Rig, serial string, f rig.Flash) {
	const byGPT, byMBR = "HD(1,GPT," + espGUID + ",0x800,0x8000)", "HD(1,MBR," + espDisk + ",0x800,0x8000)"
	one, two := []string{"BOOT/BOOTX64.EFI"}, []string{"BOOT/BOOTX64.EFI", "other/grubaa64.efi"}
	for _, tt := range []struct {
		name, scheme, kind string
		uuid               any // sent with the command
		loaders            []string
		want               string // the entries' device path of the partition; "" if there is none
	}{
		{"GPT", "gpt", "ef00", nil, one, byGPT},
		{"MBR", "mbr", "ef", nil, one, byMBR},
		{"no type, no UUID", "gpt", "8300", nil, one, ""},
		{"another UUID", "gpt", "8300", "4321-ABCD", one, ""},
		{"UUID of the file system", "mbr", "83", strings.ToLower(espSerial), one, byMBR},
		{"UUID of the partition", "gpt", "8300", strings.ToUpper(espGUID), one, byGPT},
		{"two loaders", "mbr", "ef", nil, two, byMBR},
		{"two loaders again", "", "", nil, two, byMBR},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.scheme != "" {
				image := espImage(t, tt.scheme, tt.kind, tt.loaders...)
				r.Images.File("esp.raw", image)
				if record := r.DeployWithDrive(t, serial, "esp.raw", rig.SumAll(t, image),
					""); record.Status != conductor.Succeeded {
					t.Fatal(record.Error)
				}
			}
			before, _ := f.Entries(t)
			record := r.Command(t, "image.install_bootloader", map[string]any{
				"root_uuid": nil, "efi_system_part_uuid": tt.uuid, "prep_boot_part_uuid": nil,
				"target_boot_mode": "uefi",
			})
			after, order := f.Entries(t)
			if tt.want == "" {
				if record.Status != conductor.Failed || record.Error.Type != "DeviceNotFound" ||
					len(after) != len(before) {
					t.Errorf("got %s (%v) and %d entries, want DeviceNotFound and %d",
						record.Status, record.Error, len(after), len(before))
				}
				return
			}
			if record.Status != conductor.Succeeded {
				t.Fatal(record.Error)
			}
			var want []string // in boot order
			for i, loader := range tt.loaders {
				path := strings.ReplaceAll("/EFI/"+loader, "/", `\`)
				want = slices.Insert(want, 0, fmt.Sprintf("ironic%d\t%s/File(%s)", i+1, tt.want, path))
			}
			for i, entry := range want {
				if i >= len(order) || after[order[i]] != entry {
					t.Fatalf("got entries %q in the order %q, want %q first", after, order, want)
				}
			}
			labels := 0
			for _, entry := range after {
				if label, _, _ := strings.Cut(entry, "\t"); strings.HasPrefix(label, "ironic") {
					labels++
				}
			}
			if labels != len(want) {
				t.Errorf("got entries %q, want %d of the agent's", after, len(want))
			}
		})
	}
}
