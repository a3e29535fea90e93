package extension

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/agent/config"
)

// A root disk without an EFI system partition, in a machine booted by UEFI.
//
// Parity: M8
func TestIgnoreBootloaderFailure(t *testing.T) {
	for _, tt := range []struct {
		name   string
		flag   any // "absent" leaves the parameter out
		option bool
		fails  bool
	}{
		{name: "true", flag: true},
		{name: "false", flag: false, fails: true},
		{name: "null", flag: nil, fails: true},
		{name: "absent", flag: "absent", fails: true},
		{name: "null and the option", flag: nil, option: true},
		{name: "absent and the option", flag: "absent", option: true},
		{name: "false overrides the option", flag: false, option: true, fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.uefi()
			d := testDisk()
			d.Path = filepath.Join(t.TempDir(), "disk")
			if err := os.WriteFile(d.Path, make([]byte, 1<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			r.disks = append(r.disks, d)
			r.deps.Config.Update(func(c *config.Config) { c.IgnoreBootloaderFailure = tt.option })
			params := map[string]any{
				"root_uuid": "0x00000000", "efi_system_part_uuid": nil, "prep_boot_part_uuid": nil,
				"target_boot_mode": "uefi",
			}
			if tt.flag != "absent" {
				params["ignore_bootloader_failure"] = tt.flag
			}
			a := r.run("image.install_bootloader", params)
			switch {
			case !tt.fails && (a.Status != "SUCCEEDED" || string(a.Result) != "null"):
				t.Errorf("got %+v %+v, want success", a, a.Error)
			case tt.fails && (a.Status != "FAILED" || a.Error.Type != "DeviceNotFound" ||
				!strings.Contains(a.Error.Details, d.Path)):
				t.Errorf("got %+v %+v, want DeviceNotFound that names the disk", a, a.Error)
			}
		})
	}
}

// The boot loader of a BIOS machine is a program of the image. Running it is rejected unless it is allowed.
//
// Parity: M5
func TestLegacyBootloaderDisabled(t *testing.T) {
	const want = "Install of legacy BIOS bootloaders disabled by enable_bios_bootloader_install; " +
		"use an image that boots by UEFI, or a whole-disk image"
	for _, tt := range []struct {
		name   string
		root   any
		ignore bool
		fails  bool
	}{
		{name: "file system uuid", root: "6f1d3c1e-7a35-4a29-9d3a-3a7b4f3e7c11", fails: true},
		{name: "disk id", root: "0xfeedc0de", fails: true},
		{name: "ignored", root: "6f1d3c1e-7a35-4a29-9d3a-3a7b4f3e7c11", ignore: true},
		{name: "whole disk", root: "0x00000000"},
		{name: "whole disk by null", root: nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.disks = append(r.disks, testDisk())
			a := r.run("image.install_bootloader", map[string]any{
				"root_uuid": tt.root, "efi_system_part_uuid": nil, "prep_boot_part_uuid": nil,
				"target_boot_mode": "bios", "ignore_bootloader_failure": tt.ignore,
			})
			switch {
			case !tt.fails && (a.Status != "SUCCEEDED" || string(a.Result) != "null"):
				t.Errorf("got %+v %+v, want success", a, a.Error)
			case tt.fails && (a.Status != "FAILED" || a.Error.Type != "InvalidImage" || a.Error.Code != 500 ||
				a.Error.Details != want ||
				a.Error.Message != "The provided image is not valid for use"):
				t.Errorf("got %+v %+v, want InvalidImage: %s", a, a.Error, want)
			}
		})
	}
}

// uefi changes the machine to one that was booted by UEFI, and returns the directory of its variables.
func (r *rig) uefi() string {
	r.t.Helper()
	efivars := r.deps.System.Sys("firmware/efi/efivars")
	if err := os.MkdirAll(efivars, 0o755); err != nil {
		r.t.Fatal(err)
	}
	return efivars
}

func TestCleanUEFINVRAM(t *testing.T) {
	const global = "-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	path := func(node string) string {
		return "\x07\x00\x00\x00\x01\x00\x00\x00" + string(rune(len(node)+4)) + "\x00L\x00\x00\x00" + node +
			"\x7f\xff\x04\x00"
	}
	disk := path("\x04\x01\x2a\x00" + strings.Repeat("\x00", 36) + "\x02\x02")
	network := path("\x03\x0c\x05\x00\x00")
	grub := path("\x04\x04\x16\x00G\x00R\x00U\x00B\x00.\x00E\x00F\x00I\x00\x00\x00")
	for _, tt := range []struct {
		name, args  string
		want, fault string // remaining entries; type of the error
	}{
		{"by default", `{}`, "1", ""},
		{"null", `{"match_patterns": null}`, "1", ""},
		{"given", `{"match_patterns": ["^ipv4"]}`, "02", ""},
		{"nothing", `{"match_patterns": []}`, "012", ""},
		{"bad pattern", `{"match_patterns": ["^HD", "("]}`, "012", "InvalidCommandParamsError"},
		{"no list", `{"match_patterns": "^HD"}`, "012", "InvalidCommandParamsError"},
		{"misspelt", `{"match_pattern": ["^HD"]}`, "012", "InvalidCommandParamsError"},
	} {
		for _, kind := range []string{"clean", "deploy"} {
			t.Run(kind+" "+tt.name, func(t *testing.T) {
				r := newRig(t)
				efivars := r.uefi()
				for i, content := range []string{disk, network, grub} {
					if err := os.WriteFile(filepath.Join(efivars, "Boot000"+string(rune('0'+i))+global),
						[]byte(content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				step := map[string]any{
					"step": "clean_uefi_nvram", "interface": "deploy", "priority": 0, "args": json.RawMessage(tt.args),
				}
				a := r.run(kind+".execute_"+kind+"_step", map[string]any{
					"step": step, "node": testNode, "ports": []any{}, kind + "_version": nil,
				})
				if tt.fault == "" && a.Status != "SUCCEEDED" ||
					tt.fault != "" && (a.Status != "FAILED" || a.Error.Type != tt.fault) {
					t.Fatalf("got %+v %+v, want fault %q", a, a.Error, tt.fault)
				}
				left := ""
				for _, n := range []string{"0", "1", "2"} {
					if _, err := os.Stat(filepath.Join(efivars, "Boot000"+n+global)); err == nil {
						left += n
					}
				}
				if left != tt.want {
					t.Errorf("remaining entries: got %q, want %q", left, tt.want)
				}
			})
		}
	}
	// If the variables cannot be read there can be entries, so the step must fail.
	step := map[string]any{"step": "clean_uefi_nvram", "interface": "deploy", "priority": 0}
	a := newRig(t).run("clean.execute_clean_step",
		map[string]any{"step": step, "node": testNode, "ports": []any{}, "clean_version": nil})
	if a.Status != "FAILED" || a.Error.Type != "CleaningError" || !strings.Contains(a.Error.Details, "UEFI") {
		t.Errorf("BIOS: got %+v %+v, want CleaningError", a, a.Error)
	}
}
