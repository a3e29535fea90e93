//go:build linux && long

package firmware

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/iso"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
	"ironroot/uki"
)

// archive packs files into an archive that is appended to a ramdisk.
func archive(t *testing.T, files map[string]string) string {
	t.Helper()
	testenv.Programs(t, "cpio", "find")
	dir := t.TempDir()
	for name, content := range files {
		rig.WriteFile(t, filepath.Join(dir, name), content)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "find . | cpio --quiet -o -H newc")
	cmd.Dir = dir
	content, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return rig.WriteFile(t, filepath.Join(t.TempDir(), "site.cpio"), string(content))
}

// TestSignedImage boots the ramdisk as a unified kernel image from an ISO, under Secure Boot with a key of its own. The
// image contains the certificate authority of Ironic, and virtual media the URL. Parameters of virtual media and of the
// firmware that would give control of the machine are ignored, and so is another certificate authority.
func TestSignedImage(t *testing.T) {
	t.Parallel()
	key := newOwnKey(t)
	const token = "a-token-that-ironic-put-onto-the-floppy-43ch"
	r := rig.Start(t, rig.Setup{
		NoIronic: true, Token: token,
		Machine: qemu.Config{Dir: key.enroll(t), Firmware: qemu.UEFISecure, Memory: 1 << 30, CDBoot: 1},
		Prepare: func(r *rig.Rig, c *qemu.Config) {
			image := filepath.Join(t.TempDir(), "boot.efi")
			_, err := uki.Build(t.Context(), uki.Options{
				Kernel: c.Kernel, Initrds: []string{c.Initrd, archive(t, r.CAConfig())}, Out: image, Key: key.key,
				Cert: key.cert, Version: "test", Log: t.Output(),
				Cmdline: "console=ttyS0,115200n8 loglevel=4 boot_method=vmedia fips=1 " + qemu.KernelHints,
			})
			if err != nil {
				t.Fatal(err)
			}
			c.Kernel, c.Initrd, c.Append, c.CDROM = "", "", "", image+".iso"
			if _, err := iso.Build(t.Context(), iso.Options{UKI: image, Out: c.CDROM, Label: "config-2"}); err != nil {
				t.Fatal(err)
			}
			c.SMBIOS = append(c.SMBIOS, "type=11,value=io.systemd.stub.kernel-cmdline-extra="+
				"ironroot.shell=1 rdinit=/bbin/gosh ipa-insecure=1 ipa-standalone=1 fips=0")
			c.Extra = append(c.Extra, rig.BMCFloppy(rig.FATImage(t, rig.MiB, "ir-vfd-dev",
				r.APIParameter()+" ipa-insecure=1 ironroot.shell=1 rootpwd=x sshkey=y ipa-standalone=1 "+
					"ipa-agent-token="+token), "ACME", "Floppy")...)
		},
	})
	r.WaitAgent(t)
	node := map[string]any{"uuid": r.Node.UUID()}
	r.Succeed(t, "clean.get_clean_steps", map[string]any{"node": node, "ports": []any{}})
	for _, want := range []string{
		"token of virtual media used once Ironic has accepted it",
		`FIPS 140-3 mode.*module=v1\.0\.0`,
		"unified kernel image with Secure Boot: only its own command line is used",
		"kernel parameters ignored that the signed image does not contain.* " +
			"known=.fips ipa-insecure ipa-standalone ironroot.shell",
		"parameter of virtual floppy ignored.* parameter=ipa-insecure",
		"parameter of virtual floppy ignored.* parameter=ipa-standalone",
		"parameter of virtual floppy ignored.* parameter=ironroot.shell",
		"parameter of virtual floppy ignored.* parameter=rootpwd",
		"parameter of virtual floppy ignored.* parameter=sshkey",
	} {
		rig.WaitConsole(t, r.Machine, want)
	}
	console := r.Machine.Console().String()
	if strings.Contains(console, "BdsDxe: failed to load") {
		t.Error("the firmware started something else first")
	}
	if _, err := os.Stat(filepath.Join(r.Machine.Dir(), "vars.fd")); err != nil {
		t.Error(err)
	}
}
