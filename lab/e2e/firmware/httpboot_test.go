//go:build linux

package firmware

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ironroot/initramfs/debian"
	"ironroot/internal/grubconfig"
	"ironroot/internal/test/debtest"
	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// bootableISO creates an ISO as Ironic does, with the kernel, ramdisk and command line of a machine.
func bootableISO(t *testing.T, c qemu.Config, label string, files map[string]string, options ...string) string {
	t.Helper()
	testenv.Programs(t, "genisoimage", "mformat", "mmd", "mcopy")
	const loader = "usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed"
	dir, unpacked, image := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "boot.iso")
	for _, deb := range debtest.Packages(t, "", "grub-efi-amd64-signed:amd64") {
		isLoader := func(name string) bool { return name == loader }
		if err := debian.Extract(t.Context(), deb, unpacked, isLoader); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range files {
		rig.WriteFile(t, filepath.Join(dir, name), content)
	}
	rig.WriteFile(t, filepath.Join(dir, ".disk/info"), label)
	rig.WriteFile(t, filepath.Join(dir, "boot/grub/grub.cfg"), grubconfig.Boot("/vmlinuz", "/initrd", c.Append))
	testenv.Run(t, "cp", c.Kernel, filepath.Join(dir, "vmlinuz"))
	testenv.Run(t, "cp", c.Initrd, filepath.Join(dir, "initrd"))
	esp := filepath.Join(dir, "boot/grub/efi.img")
	if err := os.WriteFile(esp, make([]byte, 8*rig.MiB), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "mformat", "-i", esp, "::")
	testenv.Run(t, "mmd", "-i", esp, "::EFI", "::EFI/BOOT")
	testenv.Run(t, "mcopy", "-i", esp, filepath.Join(unpacked, loader), "::EFI/BOOT/BOOTX64.EFI")
	args := append([]string{
		"-quiet", "-r", "-l", "-V", label, "-e", "boot/grub/efi.img", "-no-emul-boot", "-o", image,
	}, options...)
	testenv.Run(t, "genisoimage", append(args, dir)...)
	return image
}

// Persistent memory of a machine without a table that describes it: a range of its memory that a kernel parameter
// reserves. QEMU's own modules of persistent memory cannot be used: their table hides the RAM disks of OVMF from Linux.
const (
	persistentStart = 256 * rig.MiB
	persistentSize  = 16 * rig.MiB
	persistentParam = "memmap=16M!256M"
)

// TestHTTPBoot boots a machine by UEFI HTTP boot from an ISO as Ironic builds it. The firmware loads it to a RAM disk,
// which the ramdisk reads like a CD of the BMC: the certificate authority of Ironic and the static network data. The
// RAM disk is neither listed nor erased. Persistent memory with an ISO is a disk, and its configuration is not read.
//
// Parity: T3
func TestHTTPBoot(t *testing.T) {
	t.Parallel()
	ns := rig.NewNamespace(t)
	wrong := rig.NewDecoy(t, ns)
	persistent := rig.ISOImage(t, "config-2", map[string]string{
		"etc/ironic-python-agent.d/a.conf": wrong.Conf(), rig.NetworkData: "no network data",
	})
	if err := os.Truncate(persistent, persistentSize); err != nil {
		t.Fatal(err)
	}
	var image string
	r := rig.Start(t, rig.Setup{
		Namespace: ns,
		Append: "ipa-insecure=0 boot_method=vmedia ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 ir_pub_id=" +
			rig.Publisher + " " + persistentParam,
		Machine: qemu.Config{Memory: 768 * rig.MiB, Firmware: qemu.UEFI},
		Prepare: func(r *rig.Rig, c *qemu.Config) {
			files := r.CAConfig()
			files[rig.NetworkData] = userNetwork
			image = bootableISO(t, *c, "config-2", files, "-publisher", rig.Publisher)
			r.Images.File("boot.iso", image)
			c.Kernel, c.Initrd, c.Append = "", "", ""
			c.HTTPBoot = r.Images.URLFrom(rig.Host, "boot.iso")
			c.NICs[0].NoROM = true
			c.Extra = append(c.Extra, "-device",
				fmt.Sprintf("loader,file=%s,addr=%d,force-raw=on", persistent, persistentStart))
		},
	})
	r.WaitAgent(t)
	copied := regexp.MustCompile(`configuration copied from boot ISO device=(/dev/pmem\d+) .*/ironic\.crt`)
	found, err := r.Machine.Console().Follow(rig.Soon(t), copied)
	if err != nil {
		t.Fatal(err)
	}
	rig.WaitConsole(t, r.Machine, "network data read from config drive device="+found.Groups[1])
	if console := r.Machine.Console().String(); strings.Contains(console, "medium not usable") {
		t.Error("a medium could not be read")
	}
	var inventory struct{ Disks []struct{ Name string } }
	if err := json.Unmarshal([]byte(r.Succeed(t, "poll.get_hardware_info", nil)), &inventory); err != nil {
		t.Fatal(err)
	}
	disks := inventory.Disks
	if len(disks) != 1 || !strings.HasPrefix(disks[0].Name, "/dev/pmem") || disks[0].Name == found.Groups[1] {
		t.Errorf("got disks %v, want the persistent memory, and not the RAM disk %s", disks, found.Groups[1])
	}
	content, err := os.ReadFile(persistent)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(memory(t, r)[persistentStart:persistentStart+persistentSize], content) {
		t.Error("the persistent memory has lost its content before it was erased")
	}
	if record := r.EraseStep(t, "erase_devices", nil); record.Status != conductor.Succeeded {
		t.Errorf("erase_devices: got %s (%v), want %s", record.Status, record.Error, conductor.Succeeded)
	}
	memory := memory(t, r)
	if !rig.AllZero(memory[persistentStart : persistentStart+persistentSize]) {
		t.Error("the persistent memory contains data")
	}
	if !inMemory(t, memory, image) {
		t.Error("the RAM disk was changed: the machine's memory does not contain the ISO")
	}
}

// userNetwork is network data for the machine's card in QEMU's own network, without DHCP.
const userNetwork = `{"links": [{"id": "port0", "type": "phy", "ethernet_mac_address": "` + rig.NodeMAC + `"}],
"networks": [{"id": "n4", "type": "ipv4", "link": "port0", "ip_address": "` + rig.AgentAddress + `",
"netmask": "255.255.255.0", "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "` + rig.Host + `"}]}],
"services": []}`

// memory returns the content of the machine's memory.
func memory(t *testing.T, r *rig.Rig) []byte {
	t.Helper()
	dump := filepath.Join(t.TempDir(), "memory")
	arguments := map[string]any{"val": 0, "size": 768 * rig.MiB, "filename": dump}
	if _, err := r.Machine.QMP(rig.Soon(t), "pmemsave", arguments); err != nil {
		t.Fatal(err)
	}
	memory, err := os.ReadFile(dump)
	if err != nil {
		t.Fatal(err)
	}
	return memory
}

// inMemory reports whether a machine's memory contains an ISO in one piece.
func inMemory(t *testing.T, memory []byte, image string) bool {
	t.Helper()
	const page, descriptor = 4096, 16 * 2048 // offset of the descriptor of an ISO's volume
	want, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at+len(want) <= len(memory); at += page {
		volume := memory[at+descriptor:]
		if bytes.Equal(volume[:2048], want[descriptor:descriptor+2048]) && bytes.Equal(memory[at:at+len(want)], want) {
			return true
		}
	}
	return false
}
