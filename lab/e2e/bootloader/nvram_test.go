//go:build linux

package bootloader

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// formerEntries returns boot entries of earlier tenants' systems, which are removed, and of network boots, which are
// kept.
func formerEntries() (removed, kept map[string][]byte) {
	root, device := qemu.PathNode(2, 1, []byte{0xd0, 0x41, 3, 0x0a, 0, 0, 0, 0}), qemu.PathNode(1, 1, []byte{0, 3})
	pci := slices.Concat(root, device)
	drive := qemu.PathNode(4, 1, append(append([]byte{1, 0, 0, 0}, bytes.Repeat([]byte{0x11}, 32)...), 2, 2))
	mac := qemu.PathNode(3, 11, append([]byte{0x52, 0x54, 0, 0xe2, 0xe0, 1}, append(make([]byte, 26), 1)...))
	file := func(name string) []byte { return qemu.PathNode(4, 4, qemu.WideText(name)) }
	removed = map[string][]byte{
		"Boot0051": qemu.BootOption("Windows Boot Manager", drive, file(`\EFI\Microsoft\Boot\bootmgfw.efi`)),
		"Boot0052": qemu.BootOption("behind a controller", pci, drive, file(`\EFI\OLD\SHIMX64.EFI`)),
		"Boot0053": qemu.BootOption("network grub", pci, mac, qemu.PathNode(3, 24, []byte("http://b/grubx64.efi"))),
	}
	kept = map[string][]byte{
		"Boot0061": qemu.BootOption("PXE on the first card", pci, mac),
		"Boot0062": qemu.BootOption("HTTP", pci, mac, qemu.PathNode(3, 24, []byte("http://b/ipxe.efi"))),
		"Boot0063": qemu.BootOption("grub in the label only", pci, file(`\EFI\diagnostics.efi`)),
	}
	return removed, kept
}

// formerFlash creates the machine's variables with those entries.
func formerFlash(t *testing.T, dir string) rig.Flash {
	t.Helper()
	f := rig.NewFlash(t, dir)
	removed, kept := formerEntries()
	var order []byte
	for _, list := range []map[string][]byte{removed, kept} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			f.Add(t, name, list[name])
			var n uint16
			if _, err := fmt.Sscanf(name, "Boot%04X", &n); err != nil {
				t.Fatal(err)
			}
			order = binary.LittleEndian.AppendUint16(order, n)
		}
	}
	f.Add(t, "BootOrder", order)
	return f
}

// cleanNVRAM checks that the entries that match the default patterns are removed, including entries of earlier tenants,
// but not the firmware's own entries and entries that boot from the network.
//
// Parity: M9
func cleanNVRAM(t *testing.T, r *rig.Rig, f rig.Flash) {
	before, _ := f.Entries(t)
	step := func(args map[string]any) *conductor.Record {
		return r.Command(t, "clean.execute_clean_step", map[string]any{
			"step": map[string]any{"step": "clean_uefi_nvram", "interface": "deploy", "priority": 0, "args": args},
			"node": map[string]any{"uuid": r.Node.UUID()}, "ports": []any{}, "clean_version": nil,
		})
	}
	bad := step(map[string]any{"match_patterns": []string{"^HD", "("}})
	if bad.Status != conductor.Failed || bad.Error.Type != "InvalidCommandParamsError" ||
		!strings.Contains(bad.Error.Details, "entry 2") {
		t.Errorf("bad pattern: got %s %v, want InvalidCommandParamsError that names the entry", bad.Status, bad.Error)
	}
	if left, _ := f.Entries(t); len(left) != len(before) {
		t.Errorf("bad pattern: got %d entries left, want all %d", len(left), len(before))
	}
	if done := step(map[string]any{}); done.Status != conductor.Succeeded {
		t.Fatalf("got %s %v, want %s", done.Status, done.Error, conductor.Succeeded)
	}
	after, order := f.Entries(t)
	removed, kept := formerEntries()
	for name := range removed {
		if text, ok := after[name[4:]]; ok || before[name[4:]] == "" {
			t.Errorf("%s: before %q, after %q, want it gone", name, before[name[4:]], text)
		}
	}
	for name := range kept {
		number := name[4:]
		if after[number] == "" || after[number] != before[number] || !slices.Contains(order, number) {
			t.Errorf("%s: before %q, after %q in order %v, want it kept", name, before[number], after[number], order)
		}
	}
	for number, text := range before {
		_, path, _ := strings.Cut(text, "\t")
		goes := regexp.MustCompile(`(?i)^HD\(|shim.*\.efi|grub.*\.efi`).MatchString(path)
		if goes != (after[number] == "") {
			t.Errorf("entry %s %q: matches %t, after the step it is %q", number, text, goes, after[number])
		}
	}
	t.Logf("%d entries before, %d after", len(before), len(after))
}
