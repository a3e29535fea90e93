package qemu

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/testenv"
)

// TestFlash sets variables in a copy of OVMF's template. lab/e2e reads such variables with efibootmgr.
func TestFlash(t *testing.T) {
	testenv.Files(t, "install ovmf", "/usr/share/OVMF")
	template, err := Variables(UEFI)
	if err != nil {
		t.Fatal(err)
	}
	f := Flash(filepath.Join(t.TempDir(), "vars.fd"))
	if err := copyFile(template, string(f)); err != nil {
		t.Fatal(err)
	}
	before, err := f.Variables()
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"http://192.0.2.1/first.iso", "http://192.0.2.1/second.iso"} {
		if err := f.bootByHTTP(url); err != nil {
			t.Fatal(err)
		}
	}
	after, err := f.Variables()
	if err != nil {
		t.Fatal(err)
	}
	if len(after) != len(before)+2 {
		t.Errorf("got %d variables after %d, want two more", len(after), len(before))
	}
	found := map[string][]byte{}
	for _, v := range after {
		found[v.Name] = v.Data
	}
	if !bytes.Contains(found["Boot7777"], []byte("second.iso")) || !bytes.Equal(found["BootNext"], []byte{0x77, 0x77}) {
		t.Errorf("got boot option %q and BootNext %v, want the second URL", found["Boot7777"], found["BootNext"])
	}
	err = f.Set(GlobalVariable, "Large", make([]byte, 1<<20))
	if err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("a variable larger than the store: got %v, want no space", err)
	}
}
