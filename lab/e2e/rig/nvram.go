//go:build linux

package rig

import (
	"bytes"
	"path/filepath"
	"testing"

	"ironroot/internal/test/attack"
	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// Flash is a machine's variables.
type Flash string

// Of returns the variables of a GUID.
func (f Flash) Of(t *testing.T, guid []byte) map[string][]byte {
	t.Helper()
	variables, err := qemu.Flash(f).Variables()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]byte{}
	for _, v := range variables {
		if bytes.Equal(v.GUID, guid) {
			found[v.Name] = v.Data
		}
	}
	return found
}

// Add sets a variable of that GUID. No machine may be running.
func (f Flash) Add(t *testing.T, name string, data []byte) {
	t.Helper()
	f.AddOf(t, qemu.GlobalVariable, name, data)
}

// AddOf sets a variable of any GUID. No machine may be running.
func (f Flash) AddOf(t *testing.T, guid []byte, name string, data []byte) {
	t.Helper()
	if err := qemu.Flash(f).Set(guid, name, data); err != nil {
		t.Fatal(err)
	}
}

// Entries returns the boot entries by number, in the form that efibootmgr prints, and the boot order.
func (f Flash) Entries(t *testing.T) (entries map[string]string, order []string) {
	t.Helper()
	testenv.Programs(t, "efibootmgr")
	found, order, err := qemu.Flash(f).BootEntries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entries = map[string]string{}
	for number, e := range found {
		entries[number] = e.Text
	}
	return entries, order
}

// NewFlash creates the variables of a machine in its directory.
func NewFlash(t *testing.T, dir string) Flash {
	t.Helper()
	f, err := qemu.NewFlash(filepath.Join(dir, "vars.fd"), qemu.UEFI)
	if err != nil {
		t.Fatal(err)
	}
	return Flash(f)
}

// PlantedVariable is a kernel parameter that the kernel passes to process 1 as a variable of the environment. Attacks
// search for it.
const PlantedVariable = " IRONROOT_PLANTED=" + attack.Secret
