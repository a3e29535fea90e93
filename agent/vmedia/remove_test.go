package vmedia

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// Drives with media of Ironic are removed, and no others: disks, and media of the user.
func TestRemove(t *testing.T) {
	m := newMachine(t)
	deleted := func(name string) string { return filepath.Join(m.root, "sys/block", name, "device/delete") }
	const ata = "pci0000:00/ata%d/host%d/target%d:0:0/%d:0:0:%d"
	m.attach("sr0", ata, "5", "Virtual CD", iso(t, "VMEDIA_BOOT_ISO", "", map[string]string{"a": "b"}), mib)
	m.attach("sr1", ata, "5", "Virtual CD", iso(t, "config-2", "", map[string]string{"a": "b"}), mib)
	m.attach("sr2", ata, "5", "DVD", iso(t, "DEBIAN", "", map[string]string{"a": "b"}), mib)
	m.attach("sr3", ata, "5", "Virtual CD", testenv.SparseFile(t, mib), mib) // no file system
	m.attach("sda", usb, "0", "Virtual Floppy", floppy(t, "ir-vfd-dev", "PARAMETERS.TXT", "a=b"), mib)
	m.attach("sdb", usb, "0", "Virtual Media", floppy(t, "other", "PARAMETERS.TXT", "a=b"), mib)
	m.attach("sdc", usb, "0", "Stick", floppy(t, "mine", "FILE", "a"), mib)
	for _, name := range []string{"sr0", "sr1", "sr2", "sr3", "sda", "sdb", "sdc"} {
		if name != "sdb" {
			write(t, deleted(name), "")
		}
	}
	params := config.Params{"boot_method": "vmedia"}
	err := Remove(limited(t), sysfs.Root{Path: m.root}, params, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "remove drive /dev/sdb: ") {
		t.Errorf("got error %v, want one about the drive that cannot be removed", err)
	}
	for name, want := range map[string]string{"sr0": "1", "sr1": "1", "sr2": "", "sr3": "", "sda": "1", "sdc": ""} {
		got, err := os.ReadFile(deleted(name))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
}
