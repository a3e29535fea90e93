//go:build linux

package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/qemu"
)

// flash is a machine's variables.
type flash string

// of returns the variables of a GUID.
func (f flash) of(t *testing.T, guid []byte) map[string][]byte {
	t.Helper()
	variables, err := qemu.Flash(f).Variables()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]byte{}
	for _, v := range variables {
		if bytes.Equal(v.GUID, guid) {
			found[v.Name] = v.Data
		}
	}
	return found
}

// add sets a variable of that GUID. No machine may be running.
func (f flash) add(t *testing.T, name string, data []byte) {
	t.Helper()
	f.addOf(t, qemu.GlobalVariable, name, data)
}

// addOf sets a variable of any GUID. No machine may be running.
func (f flash) addOf(t *testing.T, guid []byte, name string, data []byte) {
	t.Helper()
	if err := qemu.Flash(f).Set(guid, name, data); err != nil {
		t.Fatal(err)
	}
}

// entries returns the boot entries by number, in the form that efibootmgr prints, and the boot order.
func (f flash) entries(t *testing.T) (entries map[string]string, order []string) {
	t.Helper()
	testenv.Programs(t, "efibootmgr")
	found, order, err := qemu.Flash(f).BootEntries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entries = map[string]string{}
	for number, e := range found {
		entries[number] = e.Text
	}
	return entries, order
}

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

// newFlash creates the variables of a machine in its directory.
func newFlash(t *testing.T, dir string) flash {
	t.Helper()
	f, err := qemu.NewFlash(filepath.Join(dir, "vars.fd"), qemu.UEFI)
	if err != nil {
		t.Fatal(err)
	}
	return flash(f)
}

// formerFlash creates the machine's variables with those entries.
func formerFlash(t *testing.T, dir string) flash {
	t.Helper()
	f := newFlash(t, dir)
	removed, kept := formerEntries()
	var order []byte
	for _, list := range []map[string][]byte{removed, kept} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			f.add(t, name, list[name])
			var n uint16
			if _, err := fmt.Sscanf(name, "Boot%04X", &n); err != nil {
				t.Fatal(err)
			}
			order = binary.LittleEndian.AppendUint16(order, n)
		}
	}
	f.add(t, "BootOrder", order)
	return f
}

// cleanNVRAM checks that the entries that match the default patterns are removed, including those of earlier tenants,
// but not the firmware's own entries and those that boot from the network.
//
// Parity: M9
func (r *rig) cleanNVRAM(t *testing.T, f flash) {
	before, _ := f.entries(t)
	step := func(args map[string]any) *conductor.Record {
		return r.command(t, "clean.execute_clean_step", map[string]any{
			"step": map[string]any{"step": "clean_uefi_nvram", "interface": "deploy", "priority": 0, "args": args},
			"node": map[string]any{"uuid": r.node.UUID()}, "ports": []any{}, "clean_version": nil,
		})
	}
	bad := step(map[string]any{"match_patterns": []string{"^HD", "("}})
	if bad.Status != conductor.Failed || bad.Error.Type != "InvalidCommandParamsError" ||
		!strings.Contains(bad.Error.Details, "entry 2") {
		t.Errorf("bad pattern: got %s %v, want InvalidCommandParamsError that names the entry", bad.Status, bad.Error)
	}
	if left, _ := f.entries(t); len(left) != len(before) {
		t.Errorf("bad pattern: got %d entries left, want all %d", len(left), len(before))
	}
	if done := step(map[string]any{}); done.Status != conductor.Succeeded {
		t.Fatalf("got %s %v, want %s", done.Status, done.Error, conductor.Succeeded)
	}
	after, order := f.entries(t)
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
