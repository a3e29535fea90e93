//go:build linux && long

package ironic

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ironroot/initramfs/debian"
	"ironroot/internal/test/debtest"
	"ironroot/internal/test/testenv"
)

// TestRealIronicSecureBoot runs a clean step on a machine whose firmware enforces Secure Boot with Microsoft's keys. It
// boots by PXE: Debian's signed shim and GRUB load by TFTP the configuration that Ironic writes from its templates, the
// kernel and the ramdisk, whose self-test reports that Secure Boot is on.
//
// Parity: R12 (GRUB, Secure Boot)
func TestRealIronicSecureBoot(t *testing.T) {
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 45*time.Minute)
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "loaders"), 0o755); err != nil {
		t.Fatal(err)
	}
	signedLoader(t, "shim-signed", "usr/lib/shim/shimx64.efi.signed", filepath.Join(dir, "loaders/shim"))
	signedLoader(t, "grub-efi-amd64-signed", "usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed",
		filepath.Join(dir, "loaders/grub"))
	i := start(t, Options{
		Dir: dir, PXE: true, KernelParams: "ipa-selftest=1 ipa-lldp-timeout=1",
		Config: "[conductor]\nautomated_clean = false\n[pxe]\nloader_file_paths = bootx64.efi:" + inside +
			"/loaders/shim,grubx64.efi:" + inside + "/loaders/grub\n",
	})
	n, err := i.Enroll(ctx, NodeOptions{
		Name: "secure", Boot: PXE, SecureBoot: true, Firmware: true, Kernel: kernel, Ramdisk: ramdisk, Memory: memory,
	})
	if err != nil {
		t.Fatal(err)
	}
	mark := n.Mark()
	step(t, "manage", n.Manage(ctx))
	step(t, "self-test", n.Clean(ctx, Step{Interface: "deploy", Step: "selftest"}))
	for _, path := range []string{
		"bootx64.efi", "grubx64.efi", "grub/grub.cfg", n.MAC + ".conf", n.UUID + "/deploy_kernel",
		n.UUID + "/deploy_ramdisk",
	} {
		if sent, err := i.Fetched(path); err != nil || !sent {
			t.Errorf("%s: got sent by TFTP %v and %v, want true", path, sent, err)
		}
	}
	if t.Failed() {
		t.Log(tail(i.path("log/"+tftpLog), 20))
	}
	report := regexp.MustCompile(`self-test.*Secure Boot on`)
	if _, err := n.Follow(testenv.Context(t, time.Minute), mark, report); err != nil {
		t.Errorf("the ramdisk does not report that Secure Boot is on: %v\n%s", err, n.Console(40))
	}
}

// signedLoader copies a file of a Debian package.
func signedLoader(t *testing.T, pkg, path, to string) {
	t.Helper()
	dir := t.TempDir()
	isLoader := func(name string) bool { return strings.TrimPrefix(name, "./") == path }
	if err := debian.Extract(t.Context(), debtest.Packages(t, "", pkg+":amd64")[0], dir, isLoader); err != nil {
		t.Fatal(err)
	}
	if err := copyFile(filepath.Join(dir, path), to); err != nil {
		t.Fatal(err)
	}
}
