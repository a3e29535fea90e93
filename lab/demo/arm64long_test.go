//go:build long

package demo_test

import (
	"strings"
	"testing"
	"time"

	"ironroot/initramfs"
	"ironroot/internal/test/testenv"
	"ironroot/lab/demo"
	"ironroot/lab/qemu"
)

// An aarch64 node with Secure Boot boots the ISO, and deploys an image for aarch64, which it then boots.
//
// Parity: R13 (deployment on aarch64)
func TestDemoARM(t *testing.T) {
	testenv.Programs(t, "qemu-system-aarch64", "mke2fs", "mformat")
	ramdisk, err := initramfs.Build(t.Context(), initramfs.Options{
		Dir: testenv.Top(t), Out: t.TempDir(), Arch: "arm64", Progress: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	report, err := demo.Run(testenv.Context(t, 2*time.Hour), demo.Options{
		Arch: "arm64", Firmware: qemu.UEFISecure, Kernel: ramdisk.Kernel, Initramfs: ramdisk.Initramfs,
		Out: t.TempDir(), Progress: t.Output(), Limit: 90 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Violations) > 0 {
		t.Errorf("the agent broke the protocol: %q", report.Violations)
	}
	text := console(t, report)
	if !strings.Contains(text, "INSTANCE-UP instance") || !strings.Contains(text, "CONFIG-DRIVE "+report.Drive) {
		t.Errorf("the console does not show the instance and its config drive %s", report.Drive)
	}
}
