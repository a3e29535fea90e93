package bootloader

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/storage/sysfs"
)

// Device paths as written by firmware, with and without the end node.
const (
	endNode  = "7fff0400"
	pciNodes = "02010c00d041030a00000000" + "010106000003"
	macNode  = "030b2500" + "525400123456" + "0000000000000000000000000000000000000000000000000000" + "01"
	fvNodes  = "04071400c9bdb87cebf8344faaea3ee4af6516a1" + "0406140083a5047c3e9e1c4fad65e05268d0b4d1"
	venNode  = "01041400" + "78563412341278569abcdef012345678"
	uriNode  = "03181300" + "687474703a2f2f622f782e65666900"
)

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// option is a load option with any device path.
func option(label string, path []byte) []byte {
	data := []byte{loadOptionActive, 0, 0, 0, byte(len(path)), byte(len(path) >> 8)}
	return append(append(data, utf16z(label)...), path...)
}

var pathTexts = map[string]string{ // bytes to text
	pciNodes: "PciRoot(0x0)/Pci(0x3,0x0)", pciNodes + macNode: "PciRoot(0x0)/Pci(0x3,0x0)/MAC(525400123456,1)",
	fvNodes: "FvVol(7cb8bdc9-f8eb-4f34-aaea-3ee4af6516a1)/FvFile(7c04a583-9e3e-4f1c-ad65-e05268d0b4d1)",
	venNode: "VenHw(12345678-1234-5678-9abc-def012345678)",
	"04012a0001000000000800000000000000400100" +
		"00000000aaaaaaaabbbbccccddddeeeeeeeeeeee0202": "HD(1,GPT," + espGUID + ",0x800,0x14000)",
	"04012a000100000000080000000000000040010000000000efbeadde" +
		"0000000000000000000000000101": "HD(1,MBR,0xdeadbeef,0x800,0x14000)",
}

// The text is efibootmgr's.
func TestPathText(t *testing.T) {
	vars := variables{dir: t.TempDir(), log: quiet}
	if _, err := vars.writeOrder([]uint16{0}); err != nil {
		t.Fatal(err)
	}
	for raw, want := range pathTexts {
		path := unhex(t, raw+endNode)
		if got, err := pathText(path); err != nil || got != want {
			t.Errorf("got %q and %v, want %q", got, err, want)
		}
		if err := vars.write(bootName(0), option("label", path)); err != nil {
			t.Fatal(err)
		}
		if out := efibootmgr(t, vars.dir); !strings.Contains(out, "label\t"+want) {
			t.Errorf("efibootmgr does not print %q but\n%s", want, out)
		}
	}
	for raw, want := range map[string]string{
		"":      "",
		uriNode: "Uri(http://b/x.efi\x00)",
		venNode[:4] + "1600" + venNode[8:] + "abcd": "VenHw(12345678-1234-5678-9abc-def012345678,abcd)",
		"01040600abcd":                      "VenHw(abcd)",
		"03170500ff":                        "NVMe(ff)",
		"09090500ff":                        "Path(9,9,ff)",
		"0101050000":                        "Path(1,1,00)",
		"040105007f":                        "Path(4,1,7f)",
		"0404060041" + "00":                 "Path(4,4,4100)",
		venNode + "7f010400" + "03170500ff": "VenHw(12345678-1234-5678-9abc-def012345678),NVMe(ff)",
		venNode + endNode + "03170500ff":    "VenHw(12345678-1234-5678-9abc-def012345678)",
	} {
		if got, err := pathText(unhex(t, raw)); err != nil || got != want {
			t.Errorf("%s: got %q and %v, want %q", raw, got, err, want)
		}
	}
	for _, raw := range []string{"01010300", "01010700ffff"} {
		if got, err := pathText(unhex(t, raw)); err == nil {
			t.Errorf("%s: got %q, want an error", raw, got)
		}
	}
}

// uefi returns a machine whose firmware has no variables.
func uefi(t *testing.T) (sysfs.Root, variables) {
	t.Helper()
	sys := sysfs.Root{Path: t.TempDir()}
	vars := variables{dir: sys.Sys("firmware/efi/efivars"), log: quiet}
	if err := os.MkdirAll(vars.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return sys, vars
}

func TestRemoveEntries(t *testing.T) {
	file := utf16z(`\EFI\SHIMX64.EFI`)
	shim := hex.EncodeToString(append([]byte{nodeMedia, mediaFile, byte(4 + len(file)), 0}, file...))
	for _, tt := range []struct {
		name     string
		patterns []string
		// Of 0 disk, 1 network, 2 shell, 3 shim in upper case behind a PCI path, 4 unreadable, 5 cut path.
		keeps []uint16
		order []uint16
	}{
		{"the usual ones", []string{`^HD\(`, `shim.*\.efi`, `grub.*\.efi`}, []uint16{1, 2, 4, 5}, []uint16{9, 2, 1}},
		{"not in the middle", []string{`^File`}, []uint16{0, 1, 2, 3, 4, 5}, []uint16{3, 9, 2, 1, 0}},
		{"the label does not count", []string{"PXE|Old"}, []uint16{0, 1, 2, 3, 4, 5}, []uint16{3, 9, 2, 1, 0}},
		{"none", nil, []uint16{0, 1, 2, 3, 4, 5}, []uint16{3, 9, 2, 1, 0}},
		{"all that can be read", []string{""}, []uint16{4, 5}, []uint16{9}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sys, vars := uefi(t)
			for n, data := range [][]byte{
				unhex(t, goldenOptions["gpt"].hex), option("PXE", unhex(t, pciNodes+macNode+endNode)),
				option("Shell", unhex(t, fvNodes+endNode)), option("Old", unhex(t, pciNodes+shim+endNode)),
				{1},
				option("Cut", unhex(t, "01010700ffff")),
			} {
				if err := vars.write(bootName(uint16(n)), data); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := vars.writeOrder([]uint16{3, 9, 2, 1, 0}); err != nil { // there is no Boot0009
				t.Fatal(err)
			}
			var patterns []*regexp.Regexp
			for _, p := range tt.patterns {
				patterns = append(patterns, regexp.MustCompile("(?i)"+p))
			}
			for range 2 { // the second time there is nothing left to do
				if err := RemoveEntries(t.Context(), sys, patterns, slog.New(slog.DiscardHandler)); err != nil {
					t.Fatal(err)
				}
				entries, err := vars.bootEntries()
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.keeps, sorted(entries)); diff != "" {
					t.Errorf("entries: -want +got:\n%s", diff)
				}
				order, err := vars.bootOrder()
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.order, order); diff != "" {
					t.Errorf("BootOrder: -want +got:\n%s", diff)
				}
			}
		})
	}
}

func TestRemoveEntriesFails(t *testing.T) {
	all, log := []*regexp.Regexp{regexp.MustCompile("")}, slog.New(slog.DiscardHandler)
	if err := RemoveEntries(t.Context(), sysfs.Root{Path: t.TempDir()}, all, log); !errors.Is(err, ErrNotUEFI) {
		t.Errorf("BIOS: got %v, want %v", err, ErrNotUEFI)
	}
	sys, vars := uefi(t)
	if err := vars.write(bootName(0), unhex(t, goldenOptions["gpt"].hex)); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := RemoveEntries(ended, sys, all, log); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: got %v, want %v", err, context.Canceled)
	}
	if err := os.Mkdir(vars.path("BootOrder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := RemoveEntries(t.Context(), sys, all, log); !errors.Is(err, ErrFirmware) {
		t.Errorf("BootOrder cannot be read: got %v, want %v", err, ErrFirmware)
	}
	if _, err := os.Stat(vars.path(bootName(0))); err != nil {
		t.Errorf("an entry went although BootOrder could not be changed: %v", err)
	}
	if err := os.Remove(vars.path("BootOrder")); err != nil {
		t.Fatal(err)
	}
	if _, err := vars.writeOrder([]uint16{0}); err != nil {
		t.Fatal(err)
	}
	if err := RemoveEntries(t.Context(), sys, all, log); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(vars.dir); err != nil || len(files) != 0 {
		t.Errorf("got %v and %v, want no variables: BootOrder goes with its last entry", files, err)
	}
}

func FuzzPathText(f *testing.F) {
	for raw := range pathTexts {
		f.Add(unhex(f, raw+endNode))
	}
	f.Add(unhex(f, venNode+"7f010400"+uriNode))
	f.Fuzz(func(t *testing.T, path []byte) {
		if text, err := pathText(path); err == nil && len(text) > 16+20*len(path) {
			t.Errorf("%d bytes of text from %d", len(text), len(path))
		}
	})
}
