//go:build linux

package boot

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/vmedia"
	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// attachMedium adds a device to a fixture tree: of a SCSI type ("0" disk, "5" optical), with an image as its content.
func attachMedium(t *testing.T, root, name, bus, kind, image string) {
	t.Helper()
	device := filepath.Join(root, "sys/devices", bus)
	for file, content := range map[string]string{
		"type": kind, "block/" + name + "/size": "2048", "block/" + name + "/removable": "1",
	} {
		path := filepath.Join(device, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	node := filepath.Join(device, "block", name)
	for link, target := range map[string]string{
		filepath.Join(node, "device"): device, filepath.Join(root, "sys/class/block", name): node,
		filepath.Join(root, "sys/block", name): node, filepath.Join(root, "dev", name): image,
	} {
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
}

// Before the agent starts over, it reads media that could not be used at first: parameters of the floppy, and
// configuration files of the boot ISO.
//
// Parity: D1, D3
func TestAgentReadsMediaAgain(t *testing.T) {
	testenv.Programs(t, "mkfs.vfat", "mcopy", "genisoimage")
	dir, root := t.TempDir(), t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	floppy := testenv.SparseFile(t, 1<<20)
	testenv.Run(t, "mkfs.vfat", "-n", "ir-vfd-dev", floppy)
	setParameters := func(text string) {
		t.Helper()
		testenv.Run(t, "mcopy", "-o", "-i", floppy, write("parameters", text), "::/parameters.txt")
	}
	setParameters("ipa-api-url=\x00http://damaged")
	attachMedium(t, root, "sda", "pci0000:00/0000:00:14.0/usb1/1-4/1-4:1.0/host5/target5:0:0/5:0:0:0", "0", floppy)

	m := &Machine{Params: config.Params{"boot_method": "vmedia", "ipa-api-url": "http://kernel"}}
	m.Log = slog.New(slog.DiscardHandler)
	media := vmedia.New(vmedia.Options{
		System: sysfs.Root{Path: root}, Params: m.Params, Log: m.Log, Root: filepath.Join(root, "ramdisk"),
	})
	if _, err := media.Load(t.Context()); !errors.Is(err, vmedia.ErrMedia) {
		t.Fatalf("damaged floppy: got error %v, want %v", err, vmedia.ErrMedia)
	}
	setParameters("ipa-api-url=http://floppy")
	write("iso/etc/ironic-python-agent.d/10-site.conf", "[DEFAULT]\ninsecure = true\n")
	disc := filepath.Join(dir, "disc")
	testenv.Run(t, "genisoimage", "-quiet", "-r", "-V", "VMEDIA_BOOT_ISO", "-o", disc, filepath.Join(dir, "iso"))
	attachMedium(t, root, "sr0", "pci0000:00/ata1/host1/target1:0:0/1:0:0:0", "5", disc)

	options := agentOptions(m, &config.Config{}, nil, media, &sanDisks{}, nil)
	if got := options.Machine.Media.Reload(t.Context()); got == nil || got.APIURL != "http://floppy" || !got.Insecure {
		t.Errorf("got configuration %+v, want api_url of the floppy and insecure of the boot ISO", got)
	}
	if got := options.Machine.Media.Reload(t.Context()); got != nil {
		t.Errorf("got configuration %+v after all media were read, want none", got)
	}
}
