package vmedia

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Media of a signed image add what is harmless: protected parameters and files of the image stay as they are.
func TestSignedImage(t *testing.T) {
	m := newMachine(t)
	const own = "etc/ironic-python-agent.d/10-own.conf"
	m.write("ramdisk/"+own, "signed")
	m.attach("sda", usb, "0", "x", floppy(t, "ir-vfd-dev", "parameters.txt",
		"ipa-api-url=https://a ipa-insecure=1 rootpwd=x sshkey=y ironroot.shell=1"), mib)
	m.attach("sr0", "pci0000:00/ata1", "5", "x", iso(t, "config-2", "", map[string]string{
		own: "replaced", "etc/ironic-python-agent.d/50-medium.conf": "new", "etc/ironic-python-agent/ca.pem": "new",
	}), 10*mib)
	var log bytes.Buffer
	o := m.options("boot_method=vmedia ipa-insecure=0 rootpwd=own")
	o.Signed, o.Log = true, slog.New(slog.NewTextHandler(&log, nil))
	media := New(o)
	params, err := media.Load(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"ipa-api-url": "https://a", "ipa-insecure": "0", "rootpwd": "own", "sshkey": "", "ironroot.shell": "",
	} {
		if params[name] != want {
			t.Errorf("parameter %s: got %q, want %q", name, params[name], want)
		}
	}
	unsigned := media.Unsigned()
	if !unsigned.Params["ipa-api-url"] || unsigned.Params["rootpwd"] || len(unsigned.Params) != 1 {
		t.Errorf("unsigned parameters: got %v, want ipa-api-url", unsigned.Params)
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
	for _, want := range []string{"parameter=rootpwd", "parameter=ipa-insecure", "file=/" + own} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log: got\n%s\nwant %q", &log, want)
		}
	}
	// The files of media can be replaced by those of a later medium.
	again := New(o)
	again.unsigned = unsigned
	if again.isSigned(copied{path: "etc/ironic-python-agent/ca.pem"}) || !again.isSigned(copied{path: own}) {
		t.Error("a file of a medium counts as signed, or a signed one does not")
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
	if media.isSigned(copied{path: "etc/ironic-python-agent/own.conf"}) {
		t.Error("a file counts as signed")
	}
}
