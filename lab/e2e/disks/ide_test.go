//go:build linux

package disks

import (
	"strings"
	"testing"

	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// TestEraseIDEWithoutDriver erases a machine with a disk behind an IDE controller, of which the driver is not loaded.
// The step fails, because the kernel shows that a drive answers, and succeeds if the node names the controller.
func TestEraseIDEWithoutDriver(t *testing.T) {
	t.Parallel()
	disk, hidden := rig.File(t, "disk", rig.DiskSize, marker{}), rig.File(t, "hidden", rig.DiskSize, marker{})
	before := rig.SumAll(t, hidden)
	r := rig.Start(t, rig.Setup{
		Append: "modprobe.blacklist=ata_piix ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 ipa-lldp-timeout=1",
		Machine: qemu.Config{Memory: rig.Memory, Disks: []qemu.Disk{{File: disk, Serial: "disk"}}, Extra: []string{
			"-device", "piix3-ide,id=old,addr=1e", "-drive", "if=none,id=hidden,format=raw,file=" + hidden,
			"-device", "ide-hd,bus=old.0,drive=hidden",
		}},
	})
	r.WaitAgent(t)
	const description = "0000:00:1e.0: storage controller 8086:7010 of class 0x010180 "
	record := r.EraseStep(t, "erase_devices_metadata", nil)
	if record.Status != conductor.Failed || record.Error.Type != "BlockDeviceEraseError" {
		t.Fatalf("got %s (%v), want a BlockDeviceEraseError", record.Status, record.Error)
	}
	want := description + "has no driver, so its disks are not known: a drive can be there, status 0x50 at I/O port " +
		"0x3f6"
	if !strings.Contains(record.Error.Details, want) {
		t.Errorf("got error %s, want one with %q", record.Error.Details, want)
	}
	record = r.EraseStep(t, "erase_devices_metadata", map[string]any{
		"driver_info": map[string]any{"skip_storage_controllers": []any{"0000:00:1e.0"}},
	})
	if record.Status != conductor.Succeeded {
		t.Fatalf("got %s (%v), want %s", record.Status, record.Error, conductor.Succeeded)
	}
	note := "storage controller 8086:7010 of class 0x010180 not examined: named by skip_storage_controllers"
	if !strings.Contains(string(record.Result), note) {
		t.Errorf("got result %s, want one with %q", record.Result, note)
	}
	if got := rig.SumAll(t, hidden); got != before {
		t.Errorf("hidden disk: got SHA-256 %s, want %s as before", got, before)
	}
}
