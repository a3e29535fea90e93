//go:build linux

package conformance

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ironroot/lab/qemu"
)

// bootentries contains the scenarios of image.install_bootloader, for which the disk is written anew each time, and of
// clean_uefi_nvram. Boot entries of earlier scenarios remain. After the last one, the entries differ from
// ironic-python-agent's, so that no scenario can follow it.
func bootentries() group {
	g := group{name: "bootentries", shared: true, shape: shape{
		firmware: qemu.UEFI, variables: formerEntries(), disks: []disk{
			{Disk: qemu.Disk{Bus: qemu.SCSI, Size: espDiskSize, Serial: "ROOT"}},
		},
	}}
	install := func(e espScenario) {
		e.disk.id = len(g.scenarios)
		s := scenario{
			name: e.name, boot: true, disks: []string{"ROOT"}, before: e.disk.write,
			prepared: fmt.Sprintf("%+v", e.disk), do: []request{
				hidden(command("deploy.get_deploy_steps", object{"node": nodeWith(joined(e.node, object{
					"properties": object{"root_device": object{"serial": "ROOT"}},
				})), "ports": ports()})),
			},
		}
		for range max(1, e.times) {
			params := object{"root_uuid": nil, "target_boot_mode": "uefi"}
			maps.Copy(params, e.params)
			s.do = append(s.do, command("image.install_bootloader", params))
		}
		g.scenarios = append(g.scenarios, s)
	}
	scenarios := espScenarios()
	last := len(scenarios) - 1
	for _, e := range scenarios[:last] {
		install(e)
	}
	for _, c := range []struct {
		name string
		args object
	}{
		{"pattern of one entry", object{"match_patterns": []string{"shimx64"}}},
		{"pattern without a match", object{"match_patterns": []string{"no such entry"}}},
		{"empty list", object{"match_patterns": []string{}}},
		{"not a list", object{"match_patterns": "shim"}},
		{"not an expression", object{"match_patterns": []string{"("}}},
		{"no patterns", object{}},
		{"again", object{}},
	} {
		g.scenarios = append(g.scenarios, scenario{name: "clean/" + c.name, boot: true, do: []request{
			step("clean", "clean_uefi_nvram", nil, object{"args": c.args}),
		}})
	}
	install(scenarios[last])
	return g
}

// espDisk describes a disk with an EFI system partition, or a defect of one.
type espDisk struct {
	id      int               // part of the identifiers in its partition table
	table   string            // the kind of partition table: gpt or dos, "" is none
	kind    string            // the partition's type
	files   map[string]string // of the file system
	empty   bool              // without a file system
	another map[string]string // a second ESP
}

type espScenario struct {
	name   string
	disk   espDisk
	params object // replaces parameters of image.install_bootloader
	node   object
	times  int // of the command, 0 means 1
}

func espScenarios() []espScenario {
	const loader = "MZ this is not a program"
	csv := func(text string) string { return string(utf16Text(text)) }
	esp := func(files ...string) espDisk {
		d := espDisk{table: "gpt", kind: "U", files: map[string]string{}}
		for _, name := range files {
			d.files[name] = loader
		}
		return d
	}
	withCSV := func(d espDisk, name, text string) espDisk {
		d.files[name] = text
		return d
	}
	mbr := esp("EFI/BOOT/BOOTX64.EFI")
	mbr.table, mbr.kind = "dos", "ef"
	mbrOther := esp("EFI/BOOT/BOOTX64.EFI")
	mbrOther.table, mbrOther.kind = "dos", "c"
	notESP := esp("EFI/BOOT/BOOTX64.EFI")
	notESP.kind = "L"
	two := esp("EFI/BOOT/BOOTX64.EFI")
	two.another = map[string]string{"EFI/debian/shimx64.efi": loader}
	const debian = "EFI/debian/BOOTX64.CSV"
	return []espScenario{
		{name: "default loader", disk: esp("EFI/BOOT/BOOTX64.EFI")},
		{name: "default loader in lower case", disk: esp("efi/boot/bootx64.efi")},
		{name: "default loader twice", disk: esp("EFI/BOOT/BOOTX64.EFI"), times: 2},
		{name: "vendor's shim", disk: esp("EFI/debian/shimx64.efi", "EFI/debian/grubx64.efi")},
		{name: "vendor's GRUB", disk: esp("EFI/debian/grubx64.efi")},
		{name: "shim and default loader", disk: esp("EFI/fedora/shimx64.efi", "EFI/BOOT/BOOTX64.EFI")},
		{name: "two vendors", disk: esp("EFI/debian/shimx64.efi", "EFI/centos/shimx64.efi")},
		{name: "Windows", disk: esp("EFI/Microsoft/Boot/bootmgfw.efi")},
		{name: "vendor's shim.efi", disk: esp("EFI/suse/shim.efi")},
		{name: "loader of another architecture", disk: esp("EFI/BOOT/BOOTAA64.EFI")},
		{name: "loader without a directory of vendors", disk: esp("grubx64.efi")},
		{name: "loader two directories deep", disk: esp("EFI/debian/deep/shimx64.efi")},
		{name: "CSV", disk: withCSV(esp("EFI/debian/shimx64.efi"), debian,
			csv("shimx64.efi,Debian,,The boot entry\n"))},
		{name: "CSV without a byte order mark", disk: withCSV(esp("EFI/debian/shimx64.efi"), debian,
			csv("shimx64.efi,Debian,,The boot entry\n")[2:])},
		{name: "CSV of ASCII", disk: withCSV(esp("EFI/debian/shimx64.efi"), debian, "shimx64.efi,Debian,,x\n")},
		{name: "CSV with two lines", disk: withCSV(esp("EFI/debian/shimx64.efi", "EFI/debian/mmx64.efi"), debian,
			csv("shimx64.efi,Debian,,x\nmmx64.efi,MokManager,,x\n"))},
		{name: "CSV, empty", disk: withCSV(esp("EFI/debian/shimx64.efi"), debian, "")},
		{name: "CSV with a label only", disk: withCSV(esp("EFI/debian/shimx64.efi"), debian, csv("Debian\n"))},
		{name: "CSV with the label of a former entry", disk: withCSV(esp("EFI/debian/shimx64.efi"), debian,
			csv("shimx64.efi,former label,,x\n"))},
		{name: "no loader", disk: esp("EFI/readme.txt")},
		{name: "empty file system", disk: esp()},
		{name: "no file system", disk: espDisk{table: "gpt", kind: "U", empty: true}},
		{name: "partition that is no ESP", disk: notESP},
		{name: "no partition table", disk: espDisk{}},
		{name: "MBR", disk: mbr},
		{name: "MBR without an ESP", disk: mbrOther},
		{name: "two ESPs", disk: two},
		{name: "BIOS is asked for", disk: esp("EFI/BOOT/BOOTX64.EFI"), params: object{"target_boot_mode": "bios"}},
		{name: "no boot mode", disk: esp("EFI/BOOT/BOOTX64.EFI"), params: object{"target_boot_mode": nil}},
		{name: "root partition that is not there", disk: esp("EFI/BOOT/BOOTX64.EFI"), params: object{
			"root_uuid": "11111111-2222-4333-8444-555555555555",
		}},
		{name: "ESP that is not there", disk: esp("EFI/BOOT/BOOTX64.EFI"), params: object{
			"efi_system_part_uuid": "11111111-2222-4333-8444-555555555555",
		}},
		{name: "failures are ignored", disk: espDisk{table: "gpt", kind: "U", empty: true}, params: object{
			"ignore_bootloader_failure": true,
		}},
		{name: "failures are ignored by the node", disk: esp(), node: object{
			"instance_info": object{"ignore_bootloader_failure": true},
		}},
		{name: "CSV of a missing loader", disk: withCSV(esp("EFI/debian/grubx64.efi"), debian,
			csv("shimx64.efi,Debian,,x\n"))},
	}
}

// utf16Text returns a text in UTF-16 with a byte order mark, as the programs of distributions write it.
func utf16Text(text string) []byte {
	encoded := qemu.WideText(text)
	return append([]byte{0xff, 0xfe}, encoded[:len(encoded)-2]...)
}

const (
	espDiskSize = 64 * mib
	espStart    = mib
	espSize     = 24 * mib
)

// write writes the disk. Its identifiers are the same in each run, so that boot entries can be compared. No other disk
// has them, so that an entry of an earlier disk is a difference.
func (d espDisk) write(path string) error {
	if err := blank(path); err != nil || d.table == "" {
		return err
	}
	script := "label: " + d.table + "\n"
	if d.table == "gpt" {
		script += "label-id: " + d.uuid(0) + "\nfirst-lba: 34\n"
	} else {
		script += fmt.Sprintf("label-id: 0x123456%02x\n", d.id)
	}
	parts := []map[string]string{d.files}
	if d.another != nil {
		parts = append(parts, d.another)
	}
	for i := range parts {
		script += fmt.Sprintf("start=%d, size=%d, type=%s", (espStart+i*espSize)/512, espSize/512, d.kind)
		if d.table == "gpt" {
			script += ", uuid=" + d.uuid(i+1)
		}
		script += "\n"
	}
	if err := sfdisk(script)(path); err != nil || d.empty {
		return err
	}
	for i, files := range parts {
		if err := writeFAT(path, int64(espStart+i*espSize), files); err != nil {
			return err
		}
	}
	return nil
}

// uuid returns the UUID of the table, which is number 0, or of a partition.
func (d espDisk) uuid(n int) string {
	return fmt.Sprintf("45535020-0000-4000-80%02x-00000000000%d", d.id, n)
}

// writeFAT creates a FAT file system of espSize bytes with files in a disk.
func writeFAT(path string, offset int64, files map[string]string) error {
	if err := makeFSAt("vfat", offset, espSize)(path); err != nil {
		return err
	}
	at := fmt.Sprintf("%s@@%d", path, offset)
	made := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		parts := strings.Split(name, "/")
		for i := range parts[:len(parts)-1] {
			dir := strings.Join(parts[:i+1], "/")
			if made[strings.ToLower(dir)] {
				continue
			}
			made[strings.ToLower(dir)] = true
			if err := run("", "mmd", "-i", at, "::"+dir); err != nil {
				return err
			}
		}
		if err := run(files[name], "mcopy", "-i", at, "-", "::"+name); err != nil {
			return err
		}
	}
	return nil
}

// formerEntries are boot entries that the firmware has before the first scenario, with their order.
func formerEntries() map[string][]byte {
	pci := slices.Concat(
		qemu.PathNode(2, 1, []byte{0xd0, 0x41, 3, 0x0a, 0, 0, 0, 0}), qemu.PathNode(1, 1, []byte{0, 3}),
	)
	drive := qemu.PathNode(4, 1, append(append([]byte{1, 0, 0, 0}, bytes.Repeat([]byte{0x11}, 32)...), 2, 2))
	mac := qemu.PathNode(3, 11, append([]byte{0x52, 0x54, 0, 0x1a, 0, 1}, append(make([]byte, 26), 1)...))
	file := func(name string) []byte { return qemu.PathNode(4, 4, qemu.WideText(name)) }
	return map[string][]byte{
		"Boot0051":  qemu.BootOption("Windows Boot Manager", drive, file(`\EFI\Microsoft\Boot\bootmgfw.efi`)),
		"Boot0052":  qemu.BootOption("former label", drive, file(`\EFI\OLD\SHIMX64.EFI`)),
		"Boot0061":  qemu.BootOption("PXE on the first card", pci, mac),
		"Boot0063":  qemu.BootOption("grub in the label only", pci, file(`\EFI\diagnostics.efi`)),
		"BootOrder": {0x51, 0, 0x52, 0, 0x61, 0, 0x63, 0},
	}
}

// bootState describes the firmware's boot entries.
type bootState struct {
	// Order are the entries of BootOrder as efibootmgr prints them, Others those that are not part of it.
	Order  []string `json:"order"`
	Others []string `json:"others,omitempty"`
}

// describeBoot reads the boot entries from a machine's file of variables.
func describeBoot(ctx context.Context, file string) (*bootState, error) {
	entries, order, err := qemu.Flash(file).BootEntries(ctx)
	if err != nil {
		return nil, err
	}
	text := func(e qemu.BootEntry) string {
		if e.Active {
			return "* " + e.Text
		}
		return e.Text
	}
	state := &bootState{Order: []string{}}
	for _, number := range order {
		state.Order = append(state.Order, text(entries[number]))
		delete(entries, number)
	}
	for _, e := range entries {
		state.Others = append(state.Others, text(e))
	}
	slices.Sort(state.Others)
	return state, nil
}
