package iso

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/foreign"
	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// The command line of the image under test: a parameter of our own behind the default ones, and a quoted one.
const testParameters = ` quiet test.word=42 test.quoted="one two" ` + qemu.KernelHints

// A kernel and an initramfs that are not ours boot from the image as CD and as USB stick, by BIOS, by UEFI, and by
// UEFI with Secure Boot.
//
// Parity: R10
func TestBootsEverywhere(t *testing.T) {
	testenv.Programs(t, "qemu-system-x86_64", "go", "apt-get")
	testenv.Files(t, "install Debian's package ovmf", "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd",
		"/usr/share/OVMF/OVMF_VARS_4M.ms.fd")
	image := filepath.Join(t.TempDir(), "foreign.iso")
	buildForeign(t, "amd64", image)
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

// A kernel and an initramfs for arm64 boot from the image as CD, by UEFI with Secure Boot.
//
// Parity: R10 (aarch64)
func TestBootsARM(t *testing.T) {
	testenv.Programs(t, "qemu-system-aarch64", "go", "apt-get")
	testenv.Files(t, "install Debian's package qemu-efi-aarch64", "/usr/share/AAVMF/AAVMF_VARS.ms.fd")
	image := filepath.Join(t.TempDir(), "foreign.iso")
	buildForeign(t, "arm64", image)
	bootsHello(t, qemu.Config{
		Name: "arm64", Dir: t.TempDir(), Arch: "arm64", Memory: 512 << 20, Firmware: qemu.UEFISecure, CDROM: image,
		CDBoot: 1,
	})
}

// buildForeign builds an image with a kernel and an initramfs that are not ours.
func buildForeign(t *testing.T, arch, image string) {
	t.Helper()
	_, err := Build(t.Context(), Options{
		Kernel: foreign.Kernel(t, arch), Initrd: foreign.Initrd(t, arch), Out: image, Label: "FOREIGN",
		Cmdline: DefaultCmdline(arch) + testParameters, Log: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
}

func bootsHello(t *testing.T, config qemu.Config) {
	t.Helper()
	line, console := foreign.Boots(t, config)
	want := fmt.Sprintf("secure boot enforced: %t", config.Firmware == qemu.UEFISecure)
	if !strings.Contains(console, want) {
		t.Errorf("console: got\n%s\nwant %q", console, want)
	}
	serial := map[string]string{"": "ttyS0", "arm64": "ttyAMA0"}[config.Arch]
	for _, want := range []string{"boot_method=vmedia", "console=" + serial + ",115200n8", "test.word=42"} {
		if !strings.Contains(" "+line+" ", " "+want+" ") {
			t.Errorf("command line: got %q, want %q in it", line, want)
		}
	}
	// Loaders put the quotes around the value or around the whole word; to the kernel both are the same.
	if !strings.Contains(line, `test.quoted="one two"`) && !strings.Contains(line, `"test.quoted=one two"`) {
		t.Errorf("command line: got %q, want test.quoted with the value \"one two\"", line)
	}
}
