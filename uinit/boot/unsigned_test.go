//go:build linux

package boot

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/vmedia"
	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// Media of an attacker cannot control a node that was started from a signed image: they get neither commands nor
// containers nor another Ironic. The same media configure another image.
func TestHostileMedia(t *testing.T) {
	testenv.Programs(t, "mkfs.vfat", "mcopy", "genisoimage")
	dir := t.TempDir()
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
	const secret = "attackers-own-token-of-more-than-32-characters"
	floppy := testenv.SparseFile(t, 1<<20)
	testenv.Run(t, "mkfs.vfat", "-n", "ir-vfd-dev", floppy)
	parameters := write("parameters", "ipa-standalone=1 ipa-agent-token="+secret+
		" ipa-api-url=https://attacker.example ipa-insecure=1 ipa-ironic-api-version=1.61 ipa-debug=1"+
		" ironroot.network_disks=1")
	testenv.Run(t, "mcopy", "-i", floppy, parameters, "::/parameters.txt")
	write("iso/etc/ironic-python-agent.d/mysteps.yaml", "steps: []\n")
	write("iso/etc/ironic-python-agent.d/90-more.conf", "[DEFAULT]\nstandalone = true\nerase_network_disks = true\n"+
		"api_url = https://attacker.example\n[container]\nallow_arbitrary_containers = true\n")
	disc := filepath.Join(dir, "disc")
	testenv.Run(t, "genisoimage", "-quiet", "-r", "-V", "config-2", "-o", disc, filepath.Join(dir, "iso"))
	for _, signed := range []bool{true, false} {
		root := t.TempDir()
		attachMedium(t, root, "sda", "pci0000:00/0000:00:14.0/usb1/1-4/1-4:1.0/host5/target5:0:0/5:0:0:0", "0", floppy)
		attachMedium(t, root, "sr0", "pci0000:00/ata1/host1/target1:0:0/1:0:0:0", "5", disc)
		ramdisk := filepath.Join(root, "ramdisk")
		own := filepath.Join(ramdisk, "etc/ironic-python-agent.d/10-own.conf")
		if err := errors.Join(os.MkdirAll(filepath.Dir(own), 0o755),
			os.WriteFile(own, []byte("[DEFAULT]\napi_url = https://ironic.example\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		media := vmedia.New(vmedia.Options{
			System: sysfs.Root{Path: root}, Params: config.Params{"boot_method": "vmedia"}, Root: ramdisk,
			Signed: signed, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		params, err := media.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(sources(params, media))
		if err != nil {
			t.Fatal(err)
		}
		closed := !c.Standalone && !c.Insecure && c.IronicAPIVersion == "" && !c.EraseNetworkDisks &&
			!c.Container.AllowArbitraryContainers && c.APIURL == "https://ironic.example" &&
			!c.Params.AllowsNetworkDisks(c.Signed)
		_, err = os.Stat(filepath.Join(ramdisk, "etc/ironic-python-agent.d/mysteps.yaml"))
		if closed != signed || errors.Is(err, fs.ErrNotExist) != signed || c.TokenUnverified != signed {
			t.Errorf("signed %t: got configuration %v, token unverified %t, steps %v",
				signed, c, c.TokenUnverified, err)
		}
		if !c.Debug || c.AgentToken != secret {
			t.Errorf("signed %t: got debug %t, want what is harmless", signed, c.Debug)
		}
		for _, u := range c.Unused() {
			log.WriteString(u.Name + ": " + u.Reason + "\n")
		}
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has the token:\n%s", &log)
		}
		for _, want := range []string{
			"parameter=ipa-standalone", "standalone of file ", "allow_arbitrary_containers of ",
		} {
			if strings.Contains(log.String(), want) != signed {
				t.Errorf("signed %t: got log\n%swant %q in it: %t", signed, &log, want, signed)
			}
		}
	}
}
