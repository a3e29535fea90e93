//go:build linux

package media

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// partitioned creates a disk whose only partition contains an image.
func partitioned(t *testing.T, image string) string {
	t.Helper()
	testenv.Programs(t, "sgdisk")
	content, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	path := rig.File(t, "partitioned", int64(len(content))+2*rig.MiB, nil)
	testenv.Run(t, "sgdisk", "-n", fmt.Sprintf("1:1M:+%dM", len(content)/rig.MiB), path)
	rig.Patch(t, path, rig.MiB, content)
	return path
}

// TestVirtualMedia boots with media of every kind. Two belong to the BMC: a CD with the certificate authority of
// Ironic's API, and a floppy without the usual label that contains the API's URL. All other media, and the kernel's
// command line, contain the decoy's address.
//
// Parity: D1, D2, D3
func TestVirtualMedia(t *testing.T) {
	t.Parallel()
	ns := rig.NewNamespace(t)
	wrong := rig.NewDecoy(t, ns)
	stray := rig.FATImage(t, 4*rig.MiB, "ir-vfd-dev", wrong.APIParameter())
	r := rig.Start(t, rig.Setup{
		Namespace: ns, NoIronic: true, Append: "ipa-insecure=0 boot_method=vmedia " + wrong.APIParameter(),
		Machine: qemu.Config{Memory: 512 * rig.MiB, Disks: []qemu.Disk{
			{Bus: qemu.SATA, File: rig.ISOImage(t, "VMEDIA_BOOT_ISO", map[string]string{
				"etc/ironic-python-agent.d/a.conf": wrong.Conf(),
			})},
			{Bus: qemu.Virtio, File: stray},
			{Bus: qemu.Virtio, File: partitioned(t, stray)},
			{Bus: qemu.USB, File: rig.FATImage(t, 4<<30, "ir-vfd-dev", wrong.APIParameter())},
			{Bus: qemu.USB, File: partitioned(t, stray)},
		}},
		Prepare: func(r *rig.Rig, c *qemu.Config) {
			c.CDROM = rig.ISOImage(t, "VMEDIA_BOOT_ISO", r.CAConfig())
			c.Extra = append(c.Extra,
				rig.BMCFloppy(rig.FATImage(t, rig.MiB, "OTHER", r.APIParameter()+" ipa-debug=1"), "ACME",
					"Virtual Media")...)
		},
	})
	r.WaitAgent(t)
	for _, want := range []string{
		`configuration copied from boot ISO.* device=/dev/sr0 .*/etc/ironic-python-agent/ironic\.crt`,
		`parameters read from virtual floppy.* label=OTHER parameters="parameters ipa-api-url,ipa-debug"`,
	} {
		if n := len(regexp.MustCompile(want).FindAllString(rig.WaitConsole(t, r.Machine, want), -1)); n != 1 {
			t.Errorf("got %d lines on the console that match %q, want one", n, want)
		}
	}
	if strings.Contains(r.Machine.Console().String(), "medium not usable") {
		t.Error("a medium that is not the BMC's was read")
	}
}
