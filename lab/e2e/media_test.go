//go:build linux

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/netns"
	"ironroot/lab/qemu"
)

// decoy is an address of a namespace that no agent may contact.
type decoy struct {
	port    int
	callers atomic.Int32
}

func newDecoy(t *testing.T, ns *netns.Namespace) *decoy {
	t.Helper()
	listener, err := ns.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &decoy{port: listener.Addr().(*net.TCPAddr).Port}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			d.callers.Add(1)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		if n := d.callers.Load(); n > 0 {
			t.Errorf("the agent turned %d times to an Ironic that it must not believe in", n)
		}
	})
	return d
}

// parameter returns a kernel parameter with the decoy's address, which is also valid on a floppy.
func (d *decoy) parameter() string { return fmt.Sprintf("ipa-api-url=https://%s:%d", host, d.port) }

// conf returns a configuration file with the decoy's address.
func (d *decoy) conf() string {
	return "[DEFAULT]\napi_url = " + d.parameter()[len("ipa-api-url="):] + "\n"
}

// fatImage creates a FAT file system with a file parameters.txt.
func fatImage(t *testing.T, size int64, label, parameters string) string {
	t.Helper()
	testenv.Programs(t, "mkfs.vfat", "mcopy")
	image := file(t, "fat", size, nil)
	source := writeFile(t, filepath.Join(t.TempDir(), "parameters.txt"), parameters)
	testenv.Run(t, "mkfs.vfat", "-n", label, image)
	testenv.Run(t, "mcopy", "-i", image, source, "::/parameters.txt")
	return image
}

// isoImage creates an ISO 9660 file system.
func isoImage(t *testing.T, label string, files map[string]string) string {
	t.Helper()
	testenv.Programs(t, "genisoimage")
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image.iso")
	for name, content := range files {
		writeFile(t, filepath.Join(dir, name), content)
	}
	testenv.Run(t, "genisoimage", "-quiet", "-r", "-V", label, "-o", image, dir)
	return image
}

func writeFile(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// partitioned creates a disk whose only partition contains an image.
func partitioned(t *testing.T, image string) string {
	t.Helper()
	testenv.Programs(t, "sgdisk")
	content, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	path := file(t, "partitioned", int64(len(content))+2*mib, nil)
	testenv.Run(t, "sgdisk", "-n", fmt.Sprintf("1:1M:+%dM", len(content)/mib), path)
	patch(t, path, mib, content)
	return path
}

// bmcFloppy attaches an image as a BMC does: as a USB disk with the names of vendor and model.
func bmcFloppy(image, vendor, model string) []string {
	return []string{
		"-device", "qemu-xhci,id=bmc", "-device", "usb-bot,id=bot,bus=bmc.0",
		"-drive", "if=none,id=floppy,format=raw,file=" + image,
		"-device", "scsi-hd,bus=bot.0,drive=floppy,removable=on,vendor=" + vendor + ",product=" + model,
	}
}

// caConfig returns the files that Ironic writes to its boot ISO if its API uses its own certificate authority.
func (r *rig) caConfig() map[string]string {
	return map[string]string{
		"etc/ironic-python-agent/ironic.crt": string(r.conductor.CertificatePEM()),
		"etc/ironic-python-agent.d/ironic-tls.conf": "[DEFAULT]\ncafile = /etc/ironic-python-agent/ironic.crt\n" +
			"insecure = false\n",
	}
}

func (r *rig) parameter() string { return fmt.Sprintf("ipa-api-url=https://%s:%d", host, apiPort) }

// TestVirtualMedia boots with media of every kind. Two belong to the BMC: a CD with the certificate authority of
// Ironic's API, and a floppy without the usual label that contains the API's URL. All other media, and the kernel's
// command line, contain the decoy's address.
//
// Parity: D1, D2, D3
func TestVirtualMedia(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	wrong := newDecoy(t, ns)
	stray := fatImage(t, 4*mib, "ir-vfd-dev", wrong.parameter())
	r := start(t, setup{
		namespace: ns, noIronic: true, append: "ipa-insecure=0 boot_method=vmedia " + wrong.parameter(),
		machine: qemu.Config{Memory: 512 * mib, Disks: []qemu.Disk{
			{Bus: qemu.SATA, File: isoImage(t, "VMEDIA_BOOT_ISO", map[string]string{
				"etc/ironic-python-agent.d/a.conf": wrong.conf(),
			})},
			{Bus: qemu.Virtio, File: stray},
			{Bus: qemu.Virtio, File: partitioned(t, stray)},
			{Bus: qemu.USB, File: fatImage(t, 4<<30, "ir-vfd-dev", wrong.parameter())},
			{Bus: qemu.USB, File: partitioned(t, stray)},
		}},
		prepare: func(r *rig, c *qemu.Config) {
			c.CDROM = isoImage(t, "VMEDIA_BOOT_ISO", r.caConfig())
			c.Extra = append(c.Extra,
				bmcFloppy(fatImage(t, mib, "OTHER", r.parameter()+" ipa-debug=1"), "ACME", "Virtual Media")...)
		},
	})
	r.waitAgent(t)
	for _, want := range []string{
		`configuration copied from boot ISO.* device=/dev/sr0 .*/etc/ironic-python-agent/ironic\.crt`,
		`parameters read from virtual floppy.* label=OTHER parameters="parameters ipa-api-url,ipa-debug"`,
	} {
		if n := len(regexp.MustCompile(want).FindAllString(says(t, r.machine, want), -1)); n != 1 {
			t.Errorf("got %d lines on the console that match %q, want one", n, want)
		}
	}
	if strings.Contains(r.machine.Console().String(), "medium not usable") {
		t.Error("a medium that is not the BMC's was read")
	}
}
