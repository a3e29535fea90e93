package qemu

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

// TestFlash sets variables in a copy of OVMF's template.
func TestFlash(t *testing.T) {
	testenv.Files(t, "install ovmf", "/usr/share/OVMF")
	f, err := NewFlash(filepath.Join(t.TempDir(), "vars.fd"), UEFI)
	if err != nil {
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
	testenv.Programs(t, "efibootmgr")
	if err := f.Set(GlobalVariable, "BootOrder", []byte{0x77, 0x77}); err != nil {
		t.Fatal(err)
	}
	entries, order, err := f.BootEntries(t.Context())
	if e := entries["7777"]; err != nil || !slices.Equal(order, []string{"7777"}) || !e.Active ||
		!strings.HasPrefix(e.Text, "HTTP\t") || !strings.Contains(e.Text, "second.iso") {
		t.Errorf("got entries %v, order %v and %v, want the active entry of the second URL", entries, order, err)
	}
	err = f.Set(GlobalVariable, "Large", make([]byte, 1<<20))
	if err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("a variable larger than the store: got %v, want no space", err)
	}
}
