//go:build linux && long

package firmware

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"ironroot/internal/test/foreign"
	"ironroot/internal/test/testenv"
	"ironroot/iso"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
	"ironroot/uki"
)

const ukiCmdline = "console=ttyS0,115200n8 quiet test.word=42 " + qemu.KernelHints

// foreignUKI builds an image from a kernel and a ramdisk that are not ours.
func foreignUKI(t *testing.T, key ownKey) (uki.Report, []byte) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "boot.efi")
	report, err := uki.Build(t.Context(), uki.Options{
		Kernel: foreign.Kernel(t, "amd64"), Initrds: []string{foreign.Initrd(t, "amd64")}, Out: out,
		Cmdline: ukiCmdline, Key: key.key, Cert: key.cert, Version: "test", Log: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return report, image
}

// keptVariable returns a variable of UEFI itself that is kept and visible to everybody.
func keptVariable(name string, value []byte) variable {
	return variable{name, "8be4df61-93ca-11d2-aa0d-00e098032b8c", 7, hex.EncodeToString(value)}
}

// bootEntry returns a variable Boot#### (UEFI 2.10, section 3.1.3) with a device path and arguments.
func bootEntry(number int, path []byte, arguments string) variable {
	value := qemu.BootOption(fmt.Sprintf("test %d", number), path)
	if arguments != "" {
		value = append(value, qemu.WideText(arguments)...)
	}
	return keptVariable(fmt.Sprintf("Boot%04X", number), value)
}

// urlPath and filePath return nodes of device paths (UEFI 2.10, sections 10.3.4.23 and 10.3.5.4), which the firmware
// completes: the URL by a network card, the file by a file system.
func urlPath(url string) []byte { return qemu.PathNode(3, 24, []byte(url)) }

func filePath(name string) []byte { return qemu.PathNode(4, 4, qemu.WideText(name)) }

// bootOrder returns the variable that makes the firmware try entries in this order.
func bootOrder(numbers ...int) variable {
	var value []byte
	for _, n := range numbers {
		value = binary.LittleEndian.AppendUint16(value, uint16(n))
	}
	return keptVariable("BootOrder", value)
}

// flipped returns copies of an image with one changed byte in a section each.
func flipped(t *testing.T, image []byte, sections ...string) map[string][]byte {
	t.Helper()
	f, err := pe.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]byte{}
	for _, name := range sections {
		section := f.Section(name)
		if section == nil {
			t.Fatalf("image has no section %s", name)
		}
		found[name] = bytes.Clone(image)
		found[name][section.Offset+section.VirtualSize/2] ^= 1
	}
	return found
}

// extraArguments are arguments of the firmware and parameters of an SMBIOS string that would prevent the boot.
const (
	extraArguments = "init=/nonexistent rdinit=/nonexistent test.word=43"
	smbiosExtra    = "rdinit=/nonexistent test.smbios=1"
)

func smbiosStrings() []string {
	return []string{"type=11,value=io.systemd.stub.kernel-cmdline-extra=" + smbiosExtra}
}

// TestUKIRejected starts a machine with five images under Secure Boot. The firmware rejects the four in which one byte
// of a section is changed, and starts the fifth. The arguments of its boot entry are ignored, and behind "--" so is the
// SMBIOS string.
func TestUKIRejected(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "qemu-system-x86_64", "go", "apt-get", "mkfs.vfat", "mcopy")
	key := newOwnKey(t)
	_, image := foreignUKI(t, key)
	names := []string{".linux", ".initrd", ".cmdline", ".osrel"}
	disk := rig.File(t, "esp", 128*rig.MiB, nil)
	testenv.Run(t, "mkfs.vfat", disk)
	put := func(number int, image []byte) {
		path := rig.WriteFile(t, filepath.Join(t.TempDir(), "image"), string(image))
		testenv.Run(t, "mcopy", "-i", disk, path, fmt.Sprintf("::/%d.efi", number))
	}
	variables := []variable{
		bootOrder(0x90, 0x91, 0x92, 0x93, 0x94), bootEntry(0x94, filePath(`\148.efi`), extraArguments),
	}
	put(0x94, image)
	changed := flipped(t, image, names...)
	for i, name := range names {
		number := 0x90 + i
		put(number, changed[name])
		variables = append(variables, bootEntry(number, filePath(fmt.Sprintf(`\%d.efi`, number)), ""))
	}
	line, console := foreign.Boots(t, qemu.Config{
		Name: "rejected", Dir: key.enroll(t, variables...), Memory: 512 << 20, Firmware: qemu.UEFISecure,
		Disks: []qemu.Disk{{Bus: qemu.Virtio, File: disk}}, SMBIOS: smbiosStrings(),
	})
	if want := ukiCmdline + " -- " + smbiosExtra; line != want {
		t.Errorf("command line: got %q, want %q", line, want)
	}
	for i, name := range names {
		want := regexp.MustCompile(fmt.Sprintf(`BdsDxe: failed to load Boot%04X .*: (Access Denied|Security Violation)`,
			0x90+i))
		if !want.MatchString(console) {
			t.Errorf("%s: nothing on the console matches %q", name, want)
		}
	}
	if !strings.Contains(console, "secure boot enforced: true") {
		t.Error("Secure Boot is not enforced")
	}
	if t.Failed() {
		t.Log(console)
	}
}

// TestUKIByHTTP boots over HTTP under Secure Boot, by a boot entry whose arguments are ignored.
func TestUKIByHTTP(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "qemu-system-x86_64", "go", "apt-get")
	key := newOwnKey(t)
	_, image := foreignUKI(t, key)
	ns := rig.NewNamespace(t)
	web := rig.NewServer(t, ns, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Logf("%s %s", r.Method, r.URL)
		w.Header().Set("Content-Type", "application/efi")
		w.Header().Set("Content-Length", strconv.Itoa(len(image)))
		if r.Method != http.MethodHead {
			_, _ = w.Write(image)
		}
	}))
	web.Start()
	defer web.Close()
	url := "http://" + rig.GuestAddress(web) + "/boot.efi"
	line, console := foreign.Boots(t, qemu.Config{
		Name: "HTTP", Memory: 512 << 20, Firmware: qemu.UEFISecure,
		Dir:  key.enroll(t, bootOrder(0x90), bootEntry(0x90, urlPath(url), extraArguments)),
		NICs: []qemu.NIC{{MAC: rig.NodeMAC, NoROM: true}}, NetNS: ns.Path(),
	})
	if line != ukiCmdline+" --" || !strings.Contains(console, "secure boot enforced: true") {
		t.Errorf("got the command line %q and the console\n%s", line, console)
	}
}

// tpm starts an emulator of a TPM, which ends with the machine, and returns QEMU's arguments for it.
func tpm(t *testing.T) []string {
	t.Helper()
	testenv.Programs(t, "swtpm")
	dir := t.TempDir()
	socket := filepath.Join(dir, "socket")
	// It is in the background when it listens.
	testenv.Run(t, "swtpm", "socket", "--tpm2", "--tpmstate", "dir="+dir, "--ctrl", "type=unixio,path="+socket,
		"--flags", "startup-clear", "--daemon", "--terminate")
	return []string{
		"-chardev", "socket,id=tpm,path=" + socket, "-tpmdev", "emulator,id=tpm0,chardev=tpm",
		"-device", "tpm-crb,tpmdev=tpm0",
	}
}

// TestUKIByPXE boots over PXE by the firmware's own client, under Secure Boot.
func TestUKIByPXE(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "qemu-system-x86_64", "go", "apt-get")
	key := newOwnKey(t)
	_, image := foreignUKI(t, key)
	dir := t.TempDir()
	rig.WriteFile(t, filepath.Join(dir, "boot.efi"), string(image))
	line, console := foreign.Boots(t, qemu.Config{
		Name: "PXE", Dir: key.enroll(t), Memory: 512 << 20, Firmware: qemu.UEFISecure,
		NICs: []qemu.NIC{{MAC: rig.NodeMAC, NoROM: true, Boot: 1, TFTP: dir, BootFile: "boot.efi"}},
	})
	if line != ukiCmdline+" --" || !strings.Contains(console, "secure boot enforced: true") {
		t.Errorf("got the command line %q and the console\n%s", line, console)
	}
}

// TestUKIFromStick boots the ISO from a USB stick, under Secure Boot. The registers of the TPM have the predicted
// values, also the one that depends on the firmware's attempts.
func TestUKIFromStick(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "qemu-system-x86_64", "go", "apt-get")
	key := newOwnKey(t)
	report, image := foreignUKI(t, key)
	o := iso.Options{
		UKI: rig.WriteFile(t, filepath.Join(t.TempDir(), "boot.efi"), string(image)),
		Out: filepath.Join(t.TempDir(), "boot.iso"),
	}
	if _, err := iso.Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	line, console := foreign.Boots(t, qemu.Config{
		Name: "stick", Dir: key.enroll(t), Memory: 512 << 20, Firmware: qemu.UEFISecure,
		Disks: []qemu.Disk{{Bus: qemu.USB, File: o.Out, ReadOnly: true, Boot: 1}}, Extra: tpm(t),
	})
	for _, want := range []string{
		"pcr 4: " + report.PCR4["sha256"], "pcr 11: " + report.PCR11["sha256"][0].Hash,
	} {
		if !strings.Contains(console, want) {
			t.Errorf("console: got\n%s\nwant %q", console, want)
		}
	}
	if line != ukiCmdline+" --" || !strings.Contains(console, "secure boot enforced: true") {
		t.Errorf("got the command line %q and the console\n%s", line, console)
	}
}
