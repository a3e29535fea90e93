//go:build linux

package ironic

import (
	"strings"
	"testing"
)

// ironicScript is a script that Ironic 29.0 wrote for cleaning, shortened after the part that boots the ramdisk.
const ironicScript = `#!ipxe

set attempts:int32 10
set i:int32 0

goto deploy

:deploy
imgfree
kernel http://172.30.0.1:8080/8651e53a/deploy_kernel selinux=0 text console=ttyS0,115200n8 ` +
	`ipa-api-url=http://172.30.0.1:6385 BOOTIF=${mac} initrd=deploy_ramdisk || goto retry

initrd http://172.30.0.1:8080/8651e53a/deploy_ramdisk || goto retry
boot

:boot_ramdisk
imgfree
kernel no_kernel root=/dev/ram0 text  initrd=ramdisk || goto boot_ramdisk
initrd no_ramdisk || goto boot_ramdisk
boot

:boot_whole_disk
sanboot --no-describe || exit 0
`

func TestParseScript(t *testing.T) {
	kernel, initrd, cmdline, ok := parseScript(ironicScript, "52:54:00:00:00:01")
	want := "selinux=0 text console=ttyS0,115200n8 ipa-api-url=http://172.30.0.1:6385 BOOTIF=52:54:00:00:00:01"
	if !ok || kernel != "http://172.30.0.1:8080/8651e53a/deploy_kernel" ||
		initrd != "http://172.30.0.1:8080/8651e53a/deploy_ramdisk" || cmdline != want {
		t.Errorf("got %q, %q, %q, %v", kernel, initrd, cmdline, ok)
	}
	options := strings.NewReplacer("kernel http", "kernel --timeout 60000 http", "initrd http",
		"initrd --name deploy_ramdisk --timeout 1 http")
	if k, i, c, ok := parseScript(options.Replace(ironicScript), "52:54:00:00:00:01"); !ok || k != kernel ||
		i != initrd || c != cmdline {
		t.Errorf("with iPXE's options: got %q, %q, %q, %v", k, i, c, ok)
	}
	for _, other := range []string{"", strings.Replace(ironicScript, "goto deploy", "goto boot_whole_disk", 1)} {
		if kernel, _, _, ok := parseScript(other, ""); ok {
			t.Errorf("a script without a ramdisk: got kernel %q", kernel)
		}
	}
}
