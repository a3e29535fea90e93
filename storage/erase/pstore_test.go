package erase

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/testenv"
	"ironroot/storage/block"
)

// firmware is a machine with two entries of pstore, and two crash logs among its UEFI variables.
func firmware(t *testing.T, mounts string) (sys block.System, pstore, variables string) {
	t.Helper()
	sys = block.System{Root: t.TempDir()}
	pstore, variables = sys.Sys("fs/pstore"), sys.Sys("firmware/efi/efivars")
	for path, text := range map[string]string{
		sys.Proc("mounts"):                       mounts,
		filepath.Join(pstore, "dmesg-efi-1"):     "oops",
		filepath.Join(pstore, "dmesg-efi-2"):     "oops",
		filepath.Join(variables, crashLog):       "panic",
		filepath.Join(variables, oldCrashLog):    "panic",
		filepath.Join(variables, otherVariables): "boot entry",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return sys, pstore, variables
}

const (
	crashLog       = "dump-type0-1-1-1700000000-C-cfc8fc79-be2e-4ddc-97f0-9f98bfe298a0"
	oldCrashLog    = "dump-type0-1-1-1700000000-CFC8FC79-BE2E-4DDC-97F0-9F98BFE298A0"
	otherVariables = "Boot0001-8be4df61-93ca-11d2-aa0d-00e098032b8c"

	bothMounts = "sysfs /sys sysfs rw 0 0\npstore /sys/fs/pstore pstore rw,nosuid 0 0\nefivarfs /sys/firmware/efi/efivars efivarfs rw 0 0\n"
)

func TestPstore(t *testing.T) {
	sys, pstore, variables := firmware(t, bothMounts)
	if err := Pstore(t.Context(), sys); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(pstore); err != nil || len(entries) != 0 {
		t.Errorf("pstore: got %v and %v, want nothing left", entries, err)
	}
	entries, err := os.ReadDir(variables)
	if err != nil || len(entries) != 1 || entries[0].Name() != otherVariables {
		t.Errorf("UEFI variables: got %v and %v, want %s alone", entries, err, otherVariables)
	}
}

// A machine that was booted by BIOS and has no pstore has nothing to erase.
func TestPstoreNone(t *testing.T) {
	sys, pstore, _ := firmware(t, "sysfs /sys sysfs rw 0 0\n")
	for _, directory := range []string{sys.Sys("firmware"), pstore} {
		if err := os.RemoveAll(directory); err != nil {
			t.Fatal(err)
		}
	}
	if err := Pstore(t.Context(), sys); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}

// Crash logs that remain, or cannot be listed, are an error.
func TestPstoreFails(t *testing.T) {
	testenv.Root(t)
	unmounted, _, _ := firmware(t, "pstore /sys/fs/pstore pstore rw 0 0\n")
	if err := Pstore(t.Context(), unmounted); err == nil || !strings.Contains(err.Error(), "efivarfs is not mounted") {
		t.Errorf("without efivarfs: got %v, want an error", err)
	}
	unmounted, _, _ = firmware(t, "efivarfs /sys/firmware/efi/efivars efivarfs rw 0 0\n")
	if err := Pstore(t.Context(), unmounted); err == nil || !strings.Contains(err.Error(), "pstore is not mounted") {
		t.Errorf("without pstore: got %v, want an error", err)
	}
	sys, _, variables := firmware(t, bothMounts)
	if err := unix.Mount(variables, variables, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(variables, 0) })
	if err := unix.Mount("", variables, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := Pstore(t.Context(), sys); err == nil || !strings.Contains(err.Error(), crashLog+" is left") {
		t.Errorf("crash logs that cannot be removed: got %v, want an error that names %s", err, crashLog)
	}
}
