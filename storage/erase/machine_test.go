package erase_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/initramfs"
	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
	"ironroot/storage/block"
)

// guest boots a machine with a disk on every bus, persistent memory, an NVMe subsystem with two controllers, a shared
// namespace and an unattached one, and two NVMe controllers without a block device: one without namespaces, and one
// with an unattached namespace. The guest prints the disks and NVMe controllers that it sees and erases all disks.
func guest(t *testing.T, dir string) string {
	t.Helper()
	testenv.Programs(t, "qemu-system-x86_64", "apt-get")
	report, err := initramfs.Build(t.Context(), initramfs.Options{
		Out: t.TempDir(), ModuleGroups: []string{"storage", "virtual", "platform"},
		Init: "ironroot/storage/erase/testdata/guest", Dir: testenv.Top(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	disk := func(bus qemu.Bus, sector int64, wwn uint64) qemu.Disk {
		file := filepath.Join(dir, string(bus))
		if err := os.WriteFile(file, bytes.Repeat([]byte("secret  "), 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		return qemu.Disk{
			Bus: bus, File: file, Serial: "serial-" + string(bus), Sector: sector, WWN: wwn, NoDiscard: true,
		}
	}
	stick := filepath.Join(dir, "usb")
	if err := os.WriteFile(stick, bytes.Repeat([]byte("secret  "), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	subsystem := []string{
		"-device", "nvme-subsys,id=subsystem,nqn=shared", "-device",
		"nvme,id=first,serial=serial-shared,subsys=subsystem", "-device", "nvme,serial=serial-shared,subsys=subsystem",
	}
	for i, name := range []string{"visible", "unattached"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, bytes.Repeat([]byte("secret  "), 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		subsystem = append(subsystem, "-drive", "if=none,id="+name+",format=raw,discard=ignore,file="+file, "-device",
			fmt.Sprintf("nvme-ns,drive=%s,bus=first,nsid=%d,detached=%t", name, i+1, name == "unattached"))
	}
	hidden := filepath.Join(dir, "hidden")
	if err := os.WriteFile(hidden, bytes.Repeat([]byte("secret  "), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	subsystem = append(subsystem, "-device", "nvme,serial=serial-none",
		"-device", "nvme-subsys,id=second,nqn=second", "-device", "nvme,id=empty,serial=serial-empty,subsys=second",
		"-drive", "if=none,id=hidden,format=raw,file="+hidden,
		"-device", "nvme-ns,drive=hidden,bus=empty,nsid=3,detached=true")
	memory := filepath.Join(dir, "pmem")
	if err := os.WriteFile(memory, bytes.Repeat([]byte("secret  "), 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	subsystem = append(subsystem, "-machine", "nvdimm=on", "-m", "slots=1,maxmem=1G",
		"-object", fmt.Sprintf("memory-backend-file,id=pmem,share=on,mem-path=%s,size=%d", memory, 16<<20),
		"-device", "nvdimm,memdev=pmem")
	m, err := qemu.Start(t.Context(), qemu.Config{
		Name: t.Name(), Dir: t.TempDir(), Memory: 512 << 20, Kernel: report.Kernel, Initrd: report.Initramfs,
		Append: "console=ttyS0 " + qemu.KernelHints,
		Disks: []qemu.Disk{
			disk(qemu.Virtio, 0, 0), disk(qemu.SATA, 0, 0x5000c500a1b2c3d4), disk(qemu.SCSI, 4096, 0x5000c500a1b2c3d5),
			disk(qemu.NVMe, 4096, 0),
		},
		Extra: append([]string{
			"-device", "qemu-xhci", "-drive", "if=none,id=stick,format=raw,file=" + stick,
			"-device", "usb-storage,drive=stick,serial=serial-usb",
		}, subsystem...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop() })
	ctx := testenv.Context(t, 15*time.Minute)
	if _, err := m.Console().Follow(ctx, regexp.MustCompile("DONE")); err != nil {
		t.Fatalf("%v; the console ends with\n%s", err, m.Console().Tail(40))
	}
	return qemu.Plain(m.Console().String())
}

// TestGuest boots a machine in which the program in testdata/guest lists and erases the disks.
//
// Parity: P2
func TestGuest(t *testing.T) {
	dir := t.TempDir()
	console := guest(t, dir)
	got, paths := map[string]string{}, map[string]string{}
	for _, line := range strings.Split(console, "\n") {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), "DISK ")
		if !ok {
			continue
		}
		var d block.Device
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got[d.Serial] = fmt.Sprintf("%s %q %q %d/%d", d.Transport, d.Model, d.WWN, d.Size, d.LogicalSector)
		if paths[d.Serial] != "" {
			t.Errorf("%s is %s and %s, want the paths of a namespace joined by the kernel",
				d.Serial, paths[d.Serial], d.Path)
		}
		paths[d.Serial] = d.Path
		t.Logf("%+v", d)
	}
	want := map[string]string{
		"serial-virtio": `virtio "" "" 8388608/512`,
		"serial-sata":   `sata "QEMU HARDDISK" "0x5000c500a1b2c3d4" 8388608/512`,
		"serial-scsi":   ` "QEMU HARDDISK" "0x5000c500a1b2c3d5" 8388608/4096`,
		// If a drive has no EUI or GUID, the kernel makes this name from the vendor's id, serial number and model.
		"serial-nvme": `nvme "QEMU NVMe Ctrl" ` +
			`"nvme.1b36-73657269616c2d6e766d65-51454d55204e564d65204374726c-00000001" 8388608/4096`,
		"serial-shared": `nvme "QEMU NVMe Ctrl" ` +
			`"nvme.1b36-73657269616c2d736861726564-51454d55204e564d65204374726c-00000001" 8388608/512`,
		"serial-usb": `usb "QEMU HARDDISK" "" 8388608/512`,
		"":           ` "" "" 16777216/512`, // persistent memory
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	const shared = `"the NVMe subsystem is shared, not erased: namespace %d, not attached to this controller"`
	for _, line := range []string{
		"CONTROLLERS 5 <nil>", `CONTROLLER [{` + paths["serial-nvme"] + ` 1}] "namespace 1" "" <nil> <nil>`,
		`CONTROLLER [] "" "" <nil> <nil>`,
		"CONTROLLER [{" + paths["serial-shared"] + ` 1}] "namespace 1" ` + fmt.Sprintf(shared, 2) + " <nil> <nil>",
		"NAMESPACES [{" + paths["serial-nvme"] + ` 1}] "" true <nil>`,
		"NAMESPACES [{" + paths["serial-shared"] + ` 1}] "" true <nil>`,
		`CONTROLLER [] "" ` + fmt.Sprintf(shared, 3) + " <nil> <nil>",
		"METADATA " + paths["serial-shared"] +
			" metadata; the NVMe subsystem is shared, not erased: namespace 2, not attached to this controller <nil>",
		"METADATA " + paths["serial-nvme"] + " metadata <nil>", "METADATA /dev/sda metadata <nil>",
		"ERASED " + paths["serial-shared"] +
			" overwrite; the NVMe subsystem is shared, not erased: namespace 2, not attached to this controller <nil>",
		"ERASED " + paths["serial-nvme"] + " nvme-format-user <nil>", "ERASED /dev/sda overwrite <nil>",
		// The drive answers IDENTIFY DEVICE: otherwise a reason follows.
		"ERASED " + paths["serial-sata"] + " overwrite <nil>",
		"ERASED /dev/vda overwrite <nil>",
		"ERASED /dev/pmem0 overwrite <nil>", "METADATA /dev/pmem0 metadata <nil>",
	} {
		if !strings.Contains(console, line) {
			t.Errorf("the console does not show %q", line)
		}
	}
	for _, serial := range []string{"serial-virtio", "serial-scsi"} {
		for _, line := range []string{
			"GPT shown [1 2], hidden [] <nil>", "backup shown [], hidden [1 2] <nil>",
			"empty shown [], hidden [] <nil>", "odd shown [1 3 4 5], hidden [] <nil>",
			"status shown [], hidden [1 4 5] <nil>",
		} {
			if line = "TABLE " + paths[serial] + " " + line; !strings.Contains(console, line) {
				t.Errorf("the console does not show %q", line)
			}
		}
	}
	for _, bus := range []string{"virtio", "sata", "scsi", "nvme", "usb", "visible", "pmem"} {
		data, err := os.ReadFile(filepath.Join(dir, bus))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("secret")) {
			t.Errorf("%s: data are left", bus)
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "unattached")); err != nil ||
		len(bytes.ReplaceAll(data, []byte("secret  "), nil)) > 0 {
		t.Errorf("unattached namespace of the shared subsystem: got an erase (%v), want none", err)
	}
}
