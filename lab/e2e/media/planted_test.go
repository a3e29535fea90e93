//go:build linux

package media

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
	"ironroot/storage/nfit"
	"ironroot/storage/nfit/nfittest"
)

// plantedSecrets are secrets in the places from which a machine gets the operator's configuration.
type plantedSecrets struct {
	files        map[string]string // by path, in an appended archive
	iso, floppy  string
	ramDisk      string // in the ISO to which UEFI HTTP boot would have loaded it
	tenantsStick string // text on a USB stick of the tenant, which is no secret
}

// plant returns new secrets.
func plant() *plantedSecrets {
	p := &plantedSecrets{
		files: map[string]string{}, iso: conductor.NewToken(), floppy: conductor.NewToken(),
		ramDisk: conductor.NewToken(), tenantsStick: conductor.NewToken(),
	}
	for _, name := range []string{
		"etc/ironic-python-agent/a.conf", "etc/ironic-python-agent.d/a.conf", "mnt/config/file",
		"openstack/latest/file", "root/.ssh/authorized_keys",
	} {
		p.files[name] = conductor.NewToken()
	}
	return p
}

// secrets returns all secrets.
func (p *plantedSecrets) secrets() []string {
	list := []string{p.iso, p.floppy, p.ramDisk}
	for _, secret := range p.files {
		list = append(list, secret)
	}
	return list
}

// The memory of the RAM disk, in bytes.
const (
	ramDiskBase = 256 * rig.MiB
	ramDiskSize = 4 * rig.MiB
)

// parameters are kernel parameters for the media.
func (p *plantedSecrets) parameters() string {
	return fmt.Sprintf("boot_method=vmedia memmap=%dM$%#x", ramDiskSize/rig.MiB, ramDiskBase)
}

// comment is a configuration file without any option.
func comment(secret string) string { return "[DEFAULT]\n# " + secret + "\n" }

// attach adds the archive and the media to a machine.
func (p *plantedSecrets) attach(t *testing.T, c *qemu.Config) {
	t.Helper()
	var records []cpio.Record
	for name, secret := range p.files {
		records = append(records, cpio.StaticFile(name, comment(secret), 0o600))
	}
	initramfs, err := os.ReadFile(c.Initrd)
	if err != nil {
		t.Fatal(err)
	}
	initramfs = append(initramfs, testenv.Archive(t, records...)...)
	c.Initrd = filepath.Join(t.TempDir(), "initramfs")
	if err := os.WriteFile(c.Initrd, initramfs, 0o600); err != nil {
		t.Fatal(err)
	}
	c.CDROM = rig.ISOImage(t, "VMEDIA_BOOT_ISO", map[string]string{"etc/ironic-python-agent.d/b.conf": comment(p.iso)})
	c.Disks = append(c.Disks, qemu.Disk{Bus: qemu.USB, File: rig.FATImage(t, 4*rig.MiB, "mine", p.tenantsStick)})
	c.Extra = append(c.Extra,
		rig.BMCFloppy(rig.FATImage(t, rig.MiB, "ir-vfd-dev", "ipa-debug=1 planted="+p.floppy), "ACME", "Floppy")...)
	c.Extra = append(c.Extra, ramDisk(t, rig.ISOImage(t, "OTHER", map[string]string{"file": p.ramDisk}))...)
}

// ramDisk returns the arguments of QEMU that load an image to the memory of a RAM disk, and describe it by ACPI tables
// as firmware does: NFIT, and the device ACPI0012, without which the kernel does not read that table.
func ramDisk(t *testing.T, image string) []string {
	t.Helper()
	const acpiHeader = 36
	dir := t.TempDir()
	ramDisk := nfit.Range{Index: 1, Type: nfit.VirtualCD, Base: ramDiskBase, Size: ramDiskSize}
	table := nfittest.Table(ramDisk)[acpiHeader:]
	// Scope (\_SB) { Device (NVDR) { Name (_HID, "ACPI0012") } }
	device := "\x10\x1c\\_SB_\x5b\x82\x14NVDR\x08_HID\x0dACPI0012\x00"
	return []string{
		"-acpitable", "sig=NFIT,rev=1,data=" + rig.WriteFile(t, filepath.Join(dir, "nfit"), string(table)),
		"-acpitable", "sig=SSDT,rev=2,data=" + rig.WriteFile(t, filepath.Join(dir, "ssdt"), device),
		"-device", fmt.Sprintf("loader,addr=%#x,force-raw=on,file=%s", ramDiskBase, image),
	}
}
