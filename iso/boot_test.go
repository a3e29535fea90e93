package iso

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/foreign"
	"ironroot/internal/testenv"
	"ironroot/lab/qemu"
)

// The command line of the image under test: a parameter of our own behind the default ones, and a quoted one.
const testCmdline = DefaultCmdline + ` quiet test.word=42 test.quoted="one two" ` + qemu.KernelHints

// A kernel and an initramfs that are not ours boot from the image as CD and as USB stick, by BIOS, by UEFI, and by
// UEFI with Secure Boot.
//
// Parity: R10
func TestBootsEverywhere(t *testing.T) {
	testenv.Programs(t, "qemu-system-x86_64", "go", "apt-get")
	testenv.Files(t, "install Debian's package ovmf", "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd",
		"/usr/share/OVMF/OVMF_VARS_4M.ms.fd")
	image := filepath.Join(t.TempDir(), "foreign.iso")
	_, err := Build(t.Context(), Options{
		Kernel: foreign.Kernel(t), Initrd: foreign.Initrd(t), Out: image, Cmdline: testCmdline, Label: "FOREIGN",
		Log: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		firmware qemu.Firmware
		stick    bool
	}{
		{"BIOS from CD", qemu.BIOS, false},
		{"BIOS from stick", qemu.BIOS, true},
		{"UEFI from CD", qemu.UEFI, false},
		{"UEFI from stick", qemu.UEFI, true},
		{"Secure Boot from CD", qemu.UEFISecure, false},
		{"Secure Boot from stick", qemu.UEFISecure, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := qemu.Config{Name: c.name, Dir: t.TempDir(), Memory: 512 << 20, Firmware: c.firmware}
			if c.stick {
				config.Disks = []qemu.Disk{{Bus: qemu.USB, File: image, ReadOnly: true, Boot: 1}}
			} else {
				config.CDROM, config.CDBoot = image, 1
			}
			bootsHello(t, config)
		})
	}
}

func bootsHello(t *testing.T, config qemu.Config) {
	t.Helper()
	line, console := foreign.Boots(t, config)
	want := fmt.Sprintf("secure boot enforced: %t", config.Firmware == qemu.UEFISecure)
	if !strings.Contains(console, want) {
		t.Errorf("console: got\n%s\nwant %q", console, want)
	}
	for _, want := range []string{"boot_method=vmedia", "console=ttyS0,115200n8", "test.word=42"} {
		if !strings.Contains(" "+line+" ", " "+want+" ") {
			t.Errorf("command line: got %q, want %q in it", line, want)
		}
	}
	// Loaders put the quotes around the value or around the whole word; to the kernel both are the same.
	if !strings.Contains(line, `test.quoted="one two"`) && !strings.Contains(line, `"test.quoted=one two"`) {
		t.Errorf("command line: got %q, want test.quoted with the value \"one two\"", line)
	}
}
