package vmedia

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
)

// Media of a signed image add what is harmless: protected parameters and files of the image stay as they are.
func TestSignedImage(t *testing.T) {
	m := newMachine(t)
	const own, steps = "etc/ironic-python-agent.d/10-own.conf", "etc/ironic-python-agent.d/mysteps.yaml"
	m.write("ramdisk/"+own, "signed")
	m.attach("sda", usb, "0", "x", floppy(t, "ir-vfd-dev", "parameters.txt",
		"ipa-api-url=https://a ipa-insecure=1 rootpwd=x sshkey=y ironroot.shell=1 ipa-standalone=1 ipa-debug=1 "+
			"boot_method=vmedia some.other=1 ipa-agent-token=t"), mib)
	m.attach("sr0", "pci0000:00/ata1", "5", "x", iso(t, "config-2", "", map[string]string{
		own: "replaced", "etc/ironic-python-agent.d/50-medium.conf": "new", "etc/ironic-python-agent/ca.pem": "new",
		steps: "new", networkFile: `{"links": []}`,
	}), 10*mib)
	var log bytes.Buffer
	o := m.options("boot_method=vmedia ipa-insecure=0 rootpwd=own ipa-debug=0")
	o.Signed, o.Log = true, slog.New(slog.NewTextHandler(&log, nil))
	media := New(o)
	params, err := media.Load(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"ipa-api-url": "https://a", "ipa-insecure": "0", "rootpwd": "own", "sshkey": "", "ironroot.shell": "",
		"ipa-standalone": "", "ipa-debug": "0", "some.other": "", "ipa-agent-token": "t", "boot_method": "vmedia",
	} {
		if params[name] != want {
			t.Errorf("parameter %s: got %q, want %q", name, params[name], want)
		}
	}
	if data, err := media.NetworkData(limited(t), func() {}); string(data) != `{"links": []}` || err != nil {
		t.Errorf("network data: got %q, %v, want that of the medium", data, err)
	}
	unsigned := media.Unsigned()
	want := map[string]bool{"ipa-api-url": true, "ipa-agent-token": true}
	if diff := cmp.Diff(want, unsigned.Params); diff != "" {
		t.Errorf("unsigned parameters (-want +got):\n%s", diff)
	}
	if _, err := os.Lstat(filepath.Join(o.Root, steps)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: got %v, want no such file", steps, err)
	}
	for name, want := range map[string]string{
		own: "signed", "etc/ironic-python-agent.d/50-medium.conf": "new", "etc/ironic-python-agent/ca.pem": "new",
	} {
		path := filepath.Join(o.Root, name)
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
		if got := unsigned.Files[path]; got != (want == "new") {
			t.Errorf("%s counts as unsigned: %t", name, got)
		}
	}
	for _, want := range []string{
		"parameter=rootpwd", "parameter=ipa-insecure", "parameter=ipa-standalone", "parameter=ipa-debug",
		"count=1", "file=/" + own, "file=/" + steps,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log: got\n%s\nwant %q", &log, want)
		}
	}
	// The files and parameters of media can be replaced by a later medium's.
	o.Params = params
	again := New(o)
	again.unsigned = unsigned
	if again.refusal(copied{path: "etc/ironic-python-agent/ca.pem"}) != "" || again.refusal(copied{path: own}) == "" {
		t.Error("a file of a medium counts as signed, or a signed one does not")
	}
	later := config.Params{"ipa-api-url": "https://b", "ipa-debug": "1"}
	if again.restrict(later, "/dev/sdb"); later["ipa-api-url"] != "https://b" || len(later) != 1 {
		t.Errorf("a later medium: got %v, want another URL", later)
	}
}

// Without a signature, media replace files and parameters.
func TestUnsignedImage(t *testing.T) {
	m := newMachine(t)
	media := New(m.options("boot_method=vmedia"))
	if media.Unsigned() != nil {
		t.Errorf("got %v, want nil", media.Unsigned())
	}
	m.write("ramdisk/etc/ironic-python-agent/own.conf", "")
	for _, name := range []string{"own.conf", "steps.yaml"} {
		if reason := media.refusal(copied{path: "etc/ironic-python-agent/" + name}); reason != "" {
			t.Errorf("%s: got %q, want no refusal", name, reason)
		}
	}
}
