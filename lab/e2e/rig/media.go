//go:build linux

package rig

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/netns"
)

// Decoy is an address of a namespace that no agent may contact.
type Decoy struct {
	port    int
	callers atomic.Int32
}

// NewDecoy returns a decoy that listens until the end of the test, which fails if an agent has connected.
func NewDecoy(t *testing.T, ns *netns.Namespace) *Decoy {
	t.Helper()
	listener, err := ns.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &Decoy{port: listener.Addr().(*net.TCPAddr).Port}
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

// APIParameter returns a kernel parameter with the decoy's address, which is also valid on a floppy.
func (d *Decoy) APIParameter() string { return fmt.Sprintf("ipa-api-url=https://%s:%d", Host, d.port) }

// Conf returns a configuration file with the decoy's address.
func (d *Decoy) Conf() string {
	return "[DEFAULT]\napi_url = " + d.APIParameter()[len("ipa-api-url="):] + "\n"
}

// FATImage creates a FAT file system with a file parameters.txt.
func FATImage(t *testing.T, size int64, label, parameters string) string {
	t.Helper()
	testenv.Programs(t, "mkfs.vfat", "mcopy")
	image := File(t, "fat", size, nil)
	source := WriteFile(t, filepath.Join(t.TempDir(), "parameters.txt"), parameters)
	testenv.Run(t, "mkfs.vfat", "-n", label, image)
	testenv.Run(t, "mcopy", "-i", image, source, "::/parameters.txt")
	return image
}

// ISOImage creates an ISO 9660 file system.
func ISOImage(t *testing.T, label string, files map[string]string) string {
	t.Helper()
	testenv.Programs(t, "genisoimage")
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image.iso")
	for name, content := range files {
		WriteFile(t, filepath.Join(dir, name), content)
	}
	testenv.Run(t, "genisoimage", "-quiet", "-r", "-V", label, "-o", image, dir)
	return image
}

// WriteFile writes a file, creates its directory, and returns its path.
func WriteFile(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// BMCFloppy attaches an image as a BMC does: as a USB disk with the names of vendor and model.
func BMCFloppy(image, vendor, model string) []string {
	return []string{
		"-device", "qemu-xhci,id=bmc", "-device", "usb-bot,id=bot,bus=bmc.0",
		"-drive", "if=none,id=floppy,format=raw,file=" + image,
		"-device", "scsi-hd,bus=bot.0,drive=floppy,removable=on,vendor=" + vendor + ",product=" + model,
	}
}

// CAConfig returns the files that Ironic writes to its boot ISO if its API uses its own certificate authority.
func (r *Rig) CAConfig() map[string]string {
	return map[string]string{
		"etc/ironic-python-agent/ironic.crt": string(r.Conductor.CertificatePEM()),
		"etc/ironic-python-agent.d/ironic-tls.conf": "[DEFAULT]\ncafile = /etc/ironic-python-agent/ironic.crt\n" +
			"insecure = false\n",
	}
}

// APIParameter returns the kernel parameter with the conductor's address.
func (r *Rig) APIParameter() string { return fmt.Sprintf("ipa-api-url=https://%s:%d", Host, APIPort) }

const (
	// Publisher is a publisher ID of virtual media.
	Publisher = "5f9b1a80-0d5e-4c8e-8b1f-6a1c2d3e4f50"
	// NetworkData is the path of the network data in a config drive.
	NetworkData = "openstack/latest/network_data.json"
)
