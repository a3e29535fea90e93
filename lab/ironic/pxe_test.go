//go:build linux

package ironic

import (
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
)

// TestRealIronicPXE inspects machines that boot by PXE without Ironic's iPXE script: SeaBIOS with PXELINUX, and OVMF
// with GRUB. Both load by TFTP the configuration that Ironic writes from its templates, the kernel and the ramdisk.
//
// Parity: R12 (PXE)
func TestRealIronicPXE(t *testing.T) {
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 45*time.Minute)
	i := start(t, Options{Suite: newest(t), PXE: true, Config: "[conductor]\nautomated_clean = false\n"})
	for _, c := range []struct {
		name, loader string
		config       string // path without the MAC address
		bootIF       bool   // the boot loader adds BOOTIF
	}{
		{"bios", "pxelinux.0", "pxelinux.cfg/01-", true},
		{"uefi", "bootx64.efi", "grub.cfg-01-", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, err := i.Enroll(ctx, NodeOptions{
				Name: c.name, Boot: PXE, BIOS: c.name == "bios", Firmware: true, Kernel: kernel, Ramdisk: ramdisk,
				Memory: memory,
			})
			if err != nil {
				t.Fatal(err)
			}
			dashed := strings.ReplaceAll(n.MAC, ":", "-")
			step(t, "manage", n.Manage(ctx))
			step(t, "inspect", n.Inspect(ctx))
			for _, path := range []string{
				c.loader, c.config + dashed, n.UUID + "/deploy_kernel", n.UUID + "/deploy_ramdisk",
			} {
				if sent, err := i.Fetched(path); err != nil || !sent {
					t.Errorf("%s: got sent by TFTP %v and %v, want true", path, sent, err)
				}
			}
			if t.Failed() {
				t.Log(tail(i.path("log/"+tftpLog), 20))
			}
			inventory, _, err := n.Inventory(ctx)
			if err != nil {
				t.Fatal(err)
			}
			boot, _ := inventory["boot"].(map[string]any)
			want := map[string]any{"current_boot_mode": c.name, "pxe_interface": nil}
			if c.bootIF {
				want["pxe_interface"] = "01-" + dashed
			}
			for key, value := range want {
				if boot[key] != value {
					t.Errorf("%s: got %v, want %v", key, boot[key], value)
				}
			}
		})
	}
}
