package facts

import (
	"encoding/base64"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/initramfs"
	"ironroot/initramfs/debian"
	"ironroot/internal/test/debtest"
	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// The inventory of an aarch64 machine with two sockets, Debian's kernel and a ramdisk for arm64, which any host can
// build, matches lscpu, and the modules for the machine's devices are loaded. TestServer checks the values of x86_64,
// TestServerHardware of uinit/boot its modules.
//
// Parity: G5, R13 (aarch64)
func TestServerARM(t *testing.T) {
	f := examineARM(t,
		"-smp", "4,sockets=2,cores=2,threads=1", "-device", "ich9-ahci", "-device", "megasas", "-device", "mptsas1068")
	checkCPU(t, f)
	checkCPUKeys(t, f)
	cpu, cpuinfo := f.ours(t).Inventory.CPU, string(f["cpuinfo.txt"])
	if cpu.Architecture != "aarch64" || cpu.ModelName != "Neoverse-N1" || cpu.Count != 4 || cpu.SocketCount != 2 {
		t.Errorf("got %+v, want aarch64, a Neoverse-N1, 4 processors and 2 sockets", cpu)
	}
	features := regexp.MustCompile(`(?m)^Features\s*: (.*)$`).FindStringSubmatch(cpuinfo)
	if features == nil || !slices.Contains(cpu.Flags, "asimd") {
		t.Errorf("got the flags %q, want asimd, which every such processor has, in them and in\n%s", cpu.Flags, cpuinfo)
	} else if diff := cmp.Diff(strings.Fields(features[1]), cpu.Flags); diff != "" {
		t.Errorf("flags: those of the kernel (-) are not ours (+):\n%s", diff)
	}
	memory := f.ours(t).Inventory.Memory
	_, rest, _ := strings.Cut(string(f["meminfo.txt"]), "MemTotal:")
	if got := strconv.FormatInt(memory.Total>>10, 10); !strings.HasPrefix(strings.TrimSpace(rest), got+" kB") {
		t.Errorf("got %s kB of memory, want%s", got, strings.Split(rest, "\n")[0])
	}
	for _, name := range []string{
		"virtio_net", "e1000e", "virtio_blk", "nvme", "virtio_scsi", "sd_mod", "ahci", "megaraid_sas", "mptsas",
	} {
		if !regexp.MustCompile(`(?m)^` + name + ` `).Match(f["modules.txt"]) {
			t.Errorf("module %s is not among those that were loaded for devices:\n%s", name, f["modules.txt"])
		}
	}
	if memory.PhysicalMB == nil || *memory.PhysicalMB != 1024 {
		t.Errorf("got %v MiB of physical memory, want 1024", memory.PhysicalMB)
	}
}

// checkCPUKeys checks the set of the processors' keys in the JSON, and that the frequency is a string.
func checkCPUKeys(t *testing.T, f found) {
	var o struct {
		Inventory struct{ CPU map[string]any }
	}
	f.decode(t, "ours.json", &o)
	got := map[string]string{}
	for key, value := range o.Inventory.CPU {
		switch value.(type) {
		case string:
			got[key] = "text"
		case float64:
			got[key] = "number"
		case []any:
			got[key] = "list"
		}
	}
	same(t, "types of the cpu's keys", map[string]string{
		"model_name": "text", "frequency": "text", "count": "number", "architecture": "text", "flags": "list",
		"socket_count": "number",
	}, got)
}

// examineARM boots an aarch64 machine and returns the results that its guest printed.
func examineARM(t *testing.T, extra ...string) found {
	t.Helper()
	testenv.Programs(t, "qemu-system-aarch64", "apt-get")
	testenv.Files(t, "Debian's package is qemu-efi-aarch64", qemu.FirmwareARM)
	dir := t.TempDir()
	report, err := initramfs.Build(t.Context(), initramfs.Options{
		Dir: testenv.Top(t), Out: dir, Name: "facts", Arch: "arm64", Package: "linux-image-arm64",
		Init:         "ironroot/lab/facts/plain",
		ModuleGroups: []string{"server"}, Files: []string{debianLscpu(t) + ":/debian"},
	})
	if err != nil {
		t.Fatal(err)
	}
	disk := func(bus qemu.Bus) qemu.Disk {
		return qemu.Disk{Bus: bus, File: filepath.Join(dir, string(bus)), Size: 16 << 20}
	}
	ctx := testenv.Context(t, guestTimeout)
	machine, err := qemu.Start(ctx, qemu.Config{
		Name: "facts", Dir: dir, Arch: "arm64", Kernel: report.Kernel, Initrd: report.Initramfs,
		Append: "console=ttyAMA0 quiet", Extra: extra, NICs: []qemu.NIC{{}, {Model: "e1000e"}},
		Disks: []qemu.Disk{disk(qemu.Virtio), disk(qemu.NVMe), disk(qemu.SCSI)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Stop() //nolint:errcheck // it has told all it knows
	waitFacts(ctx, t, machine)
	f := found{}
	for _, m := range regexp.MustCompile(`FACT (\S+) (\S+)`).FindAllStringSubmatch(machine.Console().String(), -1) {
		if f[m[1]], err = base64.StdEncoding.DecodeString(m[2]); err != nil {
			t.Fatalf("%s: %v", m[1], err)
		}
	}
	return f
}

// debianLscpu returns a directory with lscpu for arm64 and its libraries. They are from Debian 12, whose packages
// contain the dynamic linker in /lib: /usr is not merged without the package that creates the link.
func debianLscpu(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	wanted := regexp.MustCompile(`^(usr/)?(bin/lscpu|lib/(aarch64-linux-gnu/` +
		`(libc\.so|libsmartcols\.so|ld-linux).*|ld-linux-aarch64.*))$`)
	for _, pkg := range []string{"util-linux", "libsmartcols1", "libc6"} {
		deb := debtest.Packages(t, "bookworm", pkg+":arm64")
		if err := debian.Extract(t.Context(), deb[0], dir, wanted.MatchString); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
